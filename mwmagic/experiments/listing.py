"""The recorded runs, as Python programs ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mwmagic import record
from mwmagic.record.metrics import frame_of

from .index import indexed

if TYPE_CHECKING:
    from pathlib import Path

    from .runs import Facts

__all__ = ["runs"]

_OWN = ("number", "name", "state", "started", "seconds", "tasks", "hosts", "attempts", "cause")


def runs(directory: Path | str = ".", *, frame: bool = False) -> Any:  # noqa: ANN401 - pandas may be missing
    """Return the runs recorded below a directory, oldest first.

    Parameters
    ----------
    directory : path
        The directory that holds ``.mwmagic``.
    frame : bool
        Return a pandas DataFrame: a row for each run, and a column for each fact, parameter and
        metric. A metric's column has its last value, and ``best`` with its name the best one. A
        parameter or metric that is named like another column is prefixed with a dot.

    Returns
    -------
    list of Record, or DataFrame

    Raises
    ------
    NotInstalled
        A frame without pandas.
    """
    found = record.runs(directory)
    return frame_of(map(_row, indexed(found))) if frame else found


def _row(one: Facts) -> dict[str, Any]:
    row = {name: getattr(one, name) for name in _OWN}
    row |= {"tags": " ".join(one.tags), "note": one.note}
    best = {f"best {name}": value for name, value in one.best.items()}
    for more in (one.parameters, one.last, best):
        row |= {f".{name}" if name in row else name: value for name, value in more.items()}
    return row
