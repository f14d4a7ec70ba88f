"""IPython magics."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from .completion import install
from .extension import MWMagic, Registered

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

    from mwmagic.client.run import Run

    from .session import Session

__all__ = ["MWMagic", "load", "unload"]

_UNDO = "_mwmagic_undo"
"""The shell's attribute that holds the function to unload."""


_KEPT = "_mwmagic_kept"
"""The shell's attribute with the session that a reload keeps."""

_RUN = "mwmagic.client.run.Run"
"""The class of runs, by its name: it need not be imported to say how it is shown."""


def load(shell: InteractiveShell) -> None:
    """Register the magics with a shell."""
    magics = MWMagic(shell, vars(shell).pop(_KEPT, None))
    shell.register_magics(magics)
    forget = install(shell, lambda: magics.session)
    hide = _show_runs(shell, lambda: magics.session)
    shell.events.register("post_run_cell", magics.settle)

    def undo() -> None:
        forget()
        hide()
        shell.events.unregister("post_run_cell", magics.settle)
        if _reloading():
            setattr(shell, _KEPT, magics.begun)
        else:
            magics.close()
        _unregister(shell, magics)

    setattr(shell, _UNDO, undo)


def _show_runs(shell: InteractiveShell, session: Callable[[], Session]) -> Callable[[], None]:
    """Make a `Run` show itself as a cell's value; return a function that undoes it."""
    formatter = shell.display_formatter.ipython_display_formatter
    module, _, name = _RUN.rpartition(".")

    def show(run: Run) -> None:
        session().displays.show_any(run)

    formatter.for_type_by_name(module, name, show)
    return lambda: formatter.pop(_RUN, None)


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
