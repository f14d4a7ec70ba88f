"""Which runs may go, and how much space each would free."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mwmagic.errors import BadArguments
from mwmagic.model.status import RunState
from mwmagic.record.paths import keep_number

from .index import indexed
from .scaling import Scaling
from .sweep import Sweep, stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mwmagic.record import Record

__all__ = ["Removal", "removals", "remove"]


LOST_SECONDS = 86400.0
"""How long the record of a run that was lost must be unchanged."""

BLOCK_BYTES = 512
"""The unit in which the system reports what a file takes up."""


@dataclass(frozen=True)
class Removal:
    """A run that may go, and how many bytes its files take up."""

    record: Record
    size: int


def removals(
    records: Sequence[Record], *, keep: int | None = None, older: float | None = None
) -> list[Removal]:
    """Return the runs that may go; those with a tag, and those that are not over, stay.

    So do the trials of a sweep or a scaling study that is there: without them it would run again.
    The latest `keep` runs stay, and those that began within `older` seconds. The oldest come first;
    BadArguments is raised if neither is given.
    """
    if keep is None and older is None:
        raise BadArguments(
            "say which runs may go: --keep 50 keeps the latest, --older 30d is an age"
        )
    first = len(records) if keep is None else max(len(records) - keep, 0)
    limit = time.time() if older is None else time.time() - older
    roots = {record.root for record in records}
    kinds: tuple[type[Sweep], ...] = (Sweep, Scaling)
    needed = {(root, one.key) for root in roots for kind in kinds for one in stored(root, kind)}
    found = []
    for record, facts in zip(records[:first], indexed(records[:first]), strict=True):
        if facts.tags or not RunState(facts.state).final:
            continue
        if (record.root, facts.trial.partition("/")[0]) in needed:
            continue
        size, changed = _measured(record)
        lost = facts.state == RunState.LOST.value
        # Its supervisor may be alive on another machine that shares the disk.
        active = lost and changed > time.time() - LOST_SECONDS
        began = changed if facts.started is None else facts.started
        if began <= limit and not active:
            found.append(Removal(record, size))
    return found


def remove(removal: Removal) -> None:
    """Remove a run's record; no other run gets its number, by which sweeps and notes name it.

    Raises OSError if a part of it cannot be removed.
    """
    record = removal.record
    keep_number(record.root, record.number)
    shutil.rmtree(record.path)


def _measured(record: Record) -> tuple[int, float]:
    """Return how many bytes a record takes up, and when one of its files was last changed."""
    size, changed = 0, 0.0
    for folder, _, names in os.walk(record.path):
        for path in (folder, *(f"{folder}/{name}" for name in names)):
            try:
                status = os.lstat(path)
            except OSError:  # it is gone, and so is its size
                continue
            size += status.st_blocks * BLOCK_BYTES
            changed = max(changed, status.st_mtime)
    return size, changed
