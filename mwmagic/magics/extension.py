"""All magics, as IPython registers them, and the defaults that ``%config`` sets."""

from __future__ import annotations

from types import new_class
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, magics_class
from traitlets import Bool, Enum, Float, Int, TraitType, Tuple, Unicode

from mwmagic.client.arguments import choices
from mwmagic.model.options import OPTIONS

from .cluster import mw_cluster
from .ending import mw_kill, mw_stop
from .export import mw_export
from .fetch import mw_fetch
from .live import mw_debug, mw_live, mw_reset
from .logs import mw_logs
from .looking import mw_runs, mw_stacks, mw_status
from .session import Session
from .show import mw_show
from .transfer import mw_pull, mw_push
from .worker import mw_restart, mw_wait, mw_worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from mwmagic.model.option import Option

__all__ = ["CONFIGURABLE", "MAGICS", "MWMagic", "Registered"]

MAGICS = (
    mw_cluster,
    mw_worker,
    mw_wait,
    mw_live,
    mw_push,
    mw_pull,
    mw_debug,
    mw_reset,
    mw_status,
    mw_show,
    mw_logs,
    mw_stop,
    mw_restart,
    mw_kill,
    mw_stacks,
    mw_runs,
    mw_fetch,
    mw_export,
)
"""Every magic, in the order of the reference."""

CONFIGURABLE = {name: option for name, option in OPTIONS.items() if option.configurable}
"""The options whose default can be set with ``%config``."""

_TRAITS: dict[type, Callable[..., TraitType[Any, Any]]] = {
    bool: Bool,
    int: lambda default, help: Int(default, min=0, help=help),  # noqa: A006 - traitlets' name
    float: lambda default, help: Float(default, min=0.0, help=help),  # noqa: A006 - the same
    str: Unicode,
    tuple: lambda default, help: Tuple(default_value=default, help=help),  # noqa: A006 - the same
}


def _trait(option: Option) -> TraitType[Any, Any]:
    """Return an option as a trait; a cluster checks the value again."""
    names = choices(option)
    if names:
        trait: TraitType[Any, Any] = Enum(names, default_value=option.default, help=option.help)
    else:
        trait = _TRAITS[option.kind](option.default, help=option.help)
        trait.allow_none = option.optional
    return trait.tag(config=True)


@magics_class
class Registered(Magics):
    """The magics, bound to a session."""

    def __init__(self, shell: Any, session: Session | None = None) -> None:  # noqa: ANN401 - IPython is not typed
        super().__init__(shell)
        self.session = session or Session(shell, self._defaults)
        self.session.defaults = self._defaults
        for one in MAGICS:
            self.magics[one.kind][one.name] = one.bound(self.session)

    def _defaults(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in CONFIGURABLE}

    def close(self) -> None:
        """End every cluster that does not outlive the kernel."""
        self.session.close()


def _defaults(namespace: dict[str, Any]) -> None:
    namespace["__doc__"] = "Multi-worker training from a notebook."
    namespace["__module__"] = __name__
    namespace.update({name: _trait(option) for name, option in CONFIGURABLE.items()})


MWMagic: type[Registered] = new_class("MWMagic", (Registered,), exec_body=_defaults)
"""The class behind ``%config MWMagic``, with a trait for each configurable option."""
