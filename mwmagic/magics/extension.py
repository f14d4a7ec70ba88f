"""All magics, as IPython registers them, and the defaults that ``%config`` sets."""

from __future__ import annotations

from types import new_class
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, magics_class
from traitlets import Bool, Enum, Float, Int, TraitType, Tuple, Unicode

from mwmagic.client.arguments import choices
from mwmagic.model.options import OPTIONS

from .catalogue import NAMES
from .entry import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from mwmagic.model.option import Option

    from .session import Session

__all__ = ["CONFIGURABLE", "MWMagic", "Registered"]

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
    """The magics, and the session that the first of them begins.

    Attributes
    ----------
    begun : Session or None
        The session, once there is one.
    """

    def __init__(self, shell: Any, begun: Session | None = None) -> None:  # noqa: ANN401 - IPython is not typed
        super().__init__(shell)
        self.begun = begun
        if begun is not None:
            begun.defaults = self._defaults
        for written in NAMES:
            one = Entry(written, lambda: self.session)
            self.magics[one.kind][one.name] = one

    @property
    def session(self) -> Session:
        """The session, which begins when it is first asked for."""
        if self.begun is None:
            from .session import Session

            self.begun = Session(self.shell, self._defaults)
        return self.begun

    def _defaults(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in CONFIGURABLE}

    def close(self) -> None:
        """End every cluster that does not outlive the kernel."""
        if self.begun is not None:
            self.begun.close()

    def settle(self, _result: object = None) -> None:
        """Finish the output of what is over."""
        if self.begun is not None:
            self.begun.displays.settle()


def _defaults(namespace: dict[str, Any]) -> None:
    namespace["__doc__"] = "Multi-worker training from a notebook."
    namespace["__module__"] = __name__
    namespace.update({name: _trait(option) for name, option in CONFIGURABLE.items()})


MWMagic: type[Registered] = new_class("MWMagic", (Registered,), exec_body=_defaults)
"""The class behind ``%config MWMagic``, with a trait for each configurable option."""
