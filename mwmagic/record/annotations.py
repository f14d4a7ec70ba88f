"""What users write to a run afterwards: a note, and tags such as ``baseline``.

They have a file of their own in the run's folder, so nothing that a supervisor writes is touched.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mwmagic.errors import BadArguments, FileTrouble, NoRun
from mwmagic.model.stored import Stored

from . import files

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .reader import Record

__all__ = ["Annotations", "annotate", "read_annotations"]

NOTE_CHARACTERS = 2000
"""The longest note."""

_TAG = re.compile(r"[\w.+-]{1,64}")


@dataclass(frozen=True)
class Annotations(Stored):
    """What a user wrote to a run: a note, and tags, which are words in their order."""

    note: str = ""
    tags: tuple[str, ...] = ()


def read_annotations(path: Path) -> Annotations:
    """Return the note and tags in a run's file; none if there are none to read."""
    try:
        return _read(path)
    except OSError:
        return Annotations()


def _read(path: Path) -> Annotations:
    data = path.read_bytes()
    try:
        return Annotations.from_json(json.loads(data))
    except (ValueError, RecursionError):
        return Annotations()


def annotate(
    record: Record, *, note: str | None = None, add: Iterable[str] = (), remove: Iterable[str] = ()
) -> Annotations:
    """Replace a run's note, or add and remove tags, and return what it has now.

    An empty note removes it. BadArguments is raised if a tag is not one word, the note is too long,
    or a tag to remove is not there; NoRun or FileTrouble if the run's folder is gone or cannot be
    written.
    """
    path = record.paths.annotations
    try:
        known = _read(path)
    except FileNotFoundError:
        known = Annotations()
    except OSError as error:  # what it holds would be lost
        raise _trouble(record, "read from", error) from error
    added, removed = list(add), set(remove)
    for tag in added:
        if not _TAG.fullmatch(tag):
            raise BadArguments(
                f"{tag!r} cannot be a tag: write one word of letters, digits and . _ + -"
            )
    for tag in sorted(removed - set(known.tags)):
        there = f"it has {', '.join(known.tags)}" if known.tags else "it has none"
        raise BadArguments(f"run {record.number} has no tag {tag!r}: {there}")
    if note is not None and len(note) > NOTE_CHARACTERS:
        raise BadArguments(
            f"a note may have {NOTE_CHARACTERS:,} characters, and this one has {len(note):,}"
        )
    tags = tuple(sorted({*known.tags, *added} - removed))
    now = replace(known, tags=tags, note=known.note if note is None else note.strip())
    _save(record, now)
    return now


def _save(record: Record, now: Annotations) -> None:
    try:
        files.replace(record.paths.annotations, json.dumps(now.as_json()).encode() + b"\n")
    except FileNotFoundError:
        raise NoRun(f"the record of run {record.number} is gone from {record.path}") from None
    except OSError as error:
        raise _trouble(record, "written to", error) from error


def _trouble(record: Record, done: str, error: OSError) -> FileTrouble:
    where = f"{record.paths.annotations}: {error.strerror or error}"
    return FileTrouble(f"the note and tags of run {record.number} cannot be {done} {where}")
