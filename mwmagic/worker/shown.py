# ruff: noqa: ANN401 - Matplotlib is not always installed
"""Figures that a worker shows, which has no window: they are kept in the run's record.

Without a display Matplotlib draws with Agg, whose `show` does nothing.
"""

from __future__ import annotations

import io
import os
import sys
from functools import wraps
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from mwmagic.model import variables

from .line import save_file

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["keep_figures"]

FIGURES_LIMIT = 50
"""The most figures that are kept of one task."""

FIGURES_BYTES = 20_000_000
"""How much they may take together."""


class _Folder:
    """Where figures are kept, beside the task's log, which these are, and how many."""

    def __init__(self, log: str) -> None:
        self._log = log
        self._kept: WeakSet[Any] = WeakSet()
        self._count = self._size = 0
        self._full = False

    def keep(self, figure: Any) -> None:
        """Keep a figure that is new or was changed, and say where."""
        if self._full or (figure in self._kept and not figure.stale):
            return
        file = io.BytesIO()
        figure.savefig(file, format="png", bbox_inches="tight")
        self._full = self._count >= FIGURES_LIMIT or self._size + file.tell() > FIGURES_BYTES
        if self._full:
            _say(f"further figures are not kept after {self._count} of this task; use savefig")
            return
        self._count, self._size = self._count + 1, self._size + file.tell()
        path = f"{self._log}.figure-{self._count}.png"
        save_file(path, file.getvalue())
        self._kept.add(figure)
        figure.stale = False  # whatever changes it from now on sets this
        _say(f"plt.show() has no window here; the figure is in {os.path.relpath(path)}")


def keep_figures(pyplot: ModuleType) -> None:
    """Keep from now on what `show` shows, unless a backend with windows shows it."""
    stacks = os.environ.get(variables.STACKS, "")
    if not stacks:
        return
    folder, original = _Folder(stacks.removesuffix(".stacks")), pyplot.show

    @wraps(original)
    def show(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if pyplot.get_backend().lower() == "agg":
            current = pyplot.gcf().number if pyplot.get_fignums() else None
            for number in pyplot.get_fignums():
                _try_keeping(folder, pyplot.figure(number))
            if current is not None:
                pyplot.figure(current)
        return result

    vars(pyplot).update(show=show)


def _try_keeping(folder: _Folder, figure: Any) -> None:
    try:
        folder.keep(figure)
    except Exception as error:  # noqa: BLE001 - a program that only shows must not fail by it
        _say(f"plt.show() has no window here, and the figure is not kept: {error}"[:300])


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"{variables.ANNOUNCED}{text}\n")
