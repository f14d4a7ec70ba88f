"""Keeps a cell from showing what a magic returns: the one place that knows how IPython shows it."""

from __future__ import annotations

import inspect
import sys

__all__ = ["silence"]

_CALLS = {"run_line_magic", "run_cell_magic"}
"""What IPython turns a magic into, from 7.34 to 9."""


def silence(result: object) -> None:
    """Keep the cell from showing a result if its last line is the magic itself.

    A variable that the result was assigned to may still be shown. IPython puts its own hook
    in place for each cell, so what is set here does not outlast the cell.
    """
    show = sys.displayhook

    def hook(value: object) -> None:
        sys.displayhook = show
        if value is not result or not _CALLS & _names():
            show(value)

    sys.displayhook = hook


def _names() -> set[str]:
    """Return the names in the expression whose value a hook is called with."""
    frame = inspect.currentframe()
    for _ in range(2):  # this function's and the hook's
        frame = frame and frame.f_back
    return set(frame.f_code.co_names) if frame else set()
