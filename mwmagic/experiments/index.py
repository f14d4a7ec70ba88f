"""The index beside the runs: the facts of those that are over, so that a table reads few files.

It is only a copy. Each row has the time of the folder that it was read from, which changes when a
file there is replaced or added, and counts while that is the same. A file of the index that was
deleted, damaged or written by another version is made again. So it needs no lock: of two processes
that write at once one loses rows, which are read again.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic import __version__
from mwmagic.model.status import RunState
from mwmagic.record import reader
from mwmagic.record.metrics import frame_of
from mwmagic.record.paths import index_file, make_private, replace

from .runs import Facts, facts_of, with_dot

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from mwmagic.record import Record

__all__ = ["OVER_STATES", "OWN_COLUMNS", "indexed", "rows_of", "runs"]

INDEX_VERSION = 2
"""Raised with any change of what facts are read from a record."""

SHARD_LIMIT = 500
"""How many numbers of runs share a file, which is written as a whole."""

FRESH_SECONDS = 2.0
"""A record that changed so lately is not kept: another change might not move its times."""

_COLUMNS = [one.name for one in fields(Facts)]
_HEAD = json.dumps([INDEX_VERSION, __version__, _COLUMNS])
OVER_STATES = (RunState.FINISHED.value, RunState.FAILED.value, RunState.STOPPED.value)
"""The states that nothing follows; that a run was lost is found out each time."""

_TAGS = _COLUMNS.index("tags")

Rows = dict[str, list[Any]]
"""For the name of each run's folder its stamp, then its facts."""


def indexed(records: Sequence[Record]) -> list[Facts]:
    """Return the facts of runs in their order, from the index as far as that is up to date."""
    parts: dict[tuple[str, int], list[int]] = {}
    names: list[str] = []
    for at, record in enumerate(records):
        folder, name = os.path.split(record.path)  # ten times as fast as the parts of a path object
        names.append(name)
        parts.setdefault((folder, record.number // SHARD_LIMIT), []).append(at)
    found: dict[int, Facts] = {}
    for (folder, part), places in parts.items():
        file = index_file(Path(folder), part)
        rows = _load(file)
        new: Rows = {}
        for at in places:
            found[at] = _facts(names[at], records[at], rows, new)
        if new:
            _save(file, {**rows, **new})
    return [found[at] for at in range(len(records))]


def _facts(name: str, record: Record, rows: Rows, new: Rows) -> Facts:
    """Return a run's facts; those that were read from its record, and may be kept, join `new`."""
    stamp = record.paths.stamp()
    row = rows.get(name)
    if row is not None and row[0] == stamp:
        values = row[1:]
        values[_TAGS] = tuple(values[_TAGS])
        return Facts(*values)
    facts = facts_of(record)
    if stamp and facts.state in OVER_STATES and time.time_ns() - stamp > FRESH_SECONDS * 1e9:
        new[name] = [stamp, *(getattr(facts, column) for column in _COLUMNS)]
    return facts


def _load(file: Path) -> Rows:
    """Return the rows of a file of the index; none if it is missing, damaged or of another kind."""
    try:
        head, check, body = file.read_bytes().split(b"\n", 2)
        if head != _HEAD.encode() or int(check) != zlib.crc32(body):
            return {}
        rows: Rows = json.loads(body)
    except (OSError, ValueError):
        return {}
    return rows


def _save(file: Path, rows: Rows) -> None:
    """Write the rows of runs that are still there; a folder that cannot be written has no index."""
    folder = file.parent.parent
    there = {name: row for name, row in rows.items() if (folder / name).is_dir()}
    body = json.dumps(there).encode()
    with suppress(OSError):
        make_private(file.parent)
        replace(file, b"%s\n%d\n%s" % (_HEAD.encode(), zlib.crc32(body), body))


# As Python programs ask for them.

_OWN = ("number", "name", "state", "started", "seconds", "tasks", "hosts", "attempts", "cause")

OWN_COLUMNS = (*_OWN, "tags", "note")
"""The columns that every run has."""


def runs(directory: Path | str = ".", *, frame: bool = False) -> Any:  # noqa: ANN401 - pandas may be missing
    """Return the runs recorded below a directory, oldest first.

    Parameters
    ----------
    directory : path
        The directory that holds ``.mwmagic``.
    frame : bool
        Return a pandas DataFrame: a row for each run, and a column for each fact, parameter and
        metric. A metric's column has its last value, and ``best`` with its name the best one. A
        parameter that is named like a metric, or either like a fact, is prefixed with a dot.

    Returns
    -------
    list of Record, or DataFrame

    Raises
    ------
    NotInstalled
        A frame without pandas.
    """
    found = reader.runs(directory)
    if not frame:
        return found
    return frame_of(rows_of(indexed(found)))


def rows_of(facts: Sequence[Facts]) -> list[dict[str, Any]]:
    """Return the facts of runs as rows of a DataFrame."""
    metrics = {name for one in facts for name in one.last}
    return [_row(one, metrics) for one in facts]


def _row(one: Facts, metrics: Collection[str]) -> dict[str, Any]:
    own = {name: getattr(one, name) for name in _OWN}
    own |= {"tags": " ".join(one.tags), "note": one.note}
    taken = {*own, *metrics}
    return {
        **own,
        **{with_dot(name, taken): value for name, value in one.parameters.items()},
        **{with_dot(name, own): value for name, value in one.last.items()},
        **{f"best {name}": value for name, value in one.best.items()},
    }
