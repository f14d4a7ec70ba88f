"""Loads and unloads the magics, with the defaults that ``%config`` sets."""

from __future__ import annotations

import traceback
from types import new_class
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, magics_class
from IPython.display import display
from traitlets import Bool, Enum, Float, Int, TraitType, Tuple, Unicode

from mwmagic.client.arguments import choices
from mwmagic.model.options import OPTIONS

from .completion import install
from .magic import NAMES, Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

    from mwmagic.client.run import Run
    from mwmagic.experiments.scaling import Scaling
    from mwmagic.experiments.sweep import Sweep
    from mwmagic.model.option import Option
    from mwmagic.record import Record

    from .session import Session

__all__ = ["CONFIGURABLE", "MWMagic", "load", "unload"]

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
    """The magics, and the session that the first of them begins."""

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


_UNDO = "_mwmagic_undo"
"""The shell's attribute that holds the function to unload."""

_SESSION = "_mwmagic_kept"
"""The shell's attribute with the session that a reload keeps."""

_RUN, _RECORD = "mwmagic.client.run.Run", "mwmagic.record.reader.Record"
_SWEEP, _SCALING = "mwmagic.experiments.sweep.Sweep", "mwmagic.experiments.scaling.Scaling"
"""The classes of runs, sweeps and scaling studies, by name: they need not be imported to say how
they are shown."""


def load(shell: InteractiveShell) -> None:
    """Register the magics with a shell."""
    magics = MWMagic(shell, vars(shell).pop(_SESSION, None))
    shell.register_magics(magics)
    forget = install(shell, lambda: magics.session)
    hide = _show_runs(shell, lambda: magics.session)
    hide_lists = _show_lists(shell)
    shell.events.register("post_run_cell", magics.settle)

    def undo() -> None:
        forget()
        hide()
        hide_lists()
        shell.events.unregister("post_run_cell", magics.settle)
        if _reloading():
            setattr(shell, _SESSION, magics.begun)
        else:
            magics.close()
        _unregister(shell, magics)

    setattr(shell, _UNDO, undo)


def _show_runs(shell: InteractiveShell, session: Callable[[], Session]) -> Callable[[], None]:
    """Make runs and studies show themselves as a cell's value; return a function that undoes it."""
    formatter = shell.display_formatter.ipython_display_formatter

    def show(run: Run | Record) -> None:
        session().displays.show_any(run)

    def show_sweep(sweep: Sweep) -> None:
        session().displays.keep_sweep(sweep)

    def show_scaling(scaling: Scaling) -> None:
        from mwmagic.dashboard.scaling import NotebookScaling

        display(NotebookScaling(scaling.study()))

    kinds: dict[str, Callable[[Any], None]] = {_RUN: show, _RECORD: show}
    kinds |= {_SWEEP: show_sweep, _SCALING: show_scaling}

    def hide() -> None:
        for kind in kinds:
            formatter.pop(kind, None)

    for kind, shown in kinds.items():
        module, _, name = kind.rpartition(".")
        formatter.for_type_by_name(module, name, shown)
    return hide


def _show_lists(shell: InteractiveShell) -> Callable[[], None]:
    """Make a list of runs show itself as a table; return a function that undoes it."""
    formatter = shell.display_formatter.formatters["text/html"]

    def show(several: list[Any]) -> str | None:
        kinds = {f"{type(one).__module__}.{type(one).__name__}" for one in several}
        if not several or not kinds <= {_RUN, _RECORD}:
            return None
        from mwmagic.dashboard.runs import NotebookTable

        records = [getattr(one, "record", one) for one in several]
        found: str = NotebookTable(records)._repr_html_()
        return found

    before = formatter.for_type(list, show)

    def hide() -> None:
        formatter.pop(list, None)
        if before is not None:
            formatter.for_type(list, before)

    return hide


def _reloading() -> bool:
    """Return whether IPython unloads the extension only to load it again, which it does not say."""
    calls = traceback.walk_stack(None)
    return any(frame.f_code.co_name == "reload_extension" for frame, _ in calls)


def unload(shell: InteractiveShell) -> None:
    """Remove the magics from a shell and end their clusters; a reload keeps those.

    IPython does not do so by itself: it would still offer them.
    """
    undo = getattr(shell, _UNDO, None)
    if undo is not None:
        undo()
        delattr(shell, _UNDO)


def _unregister(shell: InteractiveShell, magics: Registered) -> None:
    manager = shell.magics_manager
    for kind, names in magics.magics.items():
        for name in names:
            manager.magics[kind].pop(name, None)
    manager.registry.pop(type(magics).__name__, None)
    if magics in shell.configurables:
        shell.configurables.remove(magics)
