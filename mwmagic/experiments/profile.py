"""What a framework's profiler wrote: which part of the time was input, and which collectives.

The file is an ``XSpace``, as TensorFlow and JAX share it. Only the few fields that are needed are
read, so that no framework has to be imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Profile", "events", "parts_of"]

INPUT, COLLECTIVE = "input", "collective"

_SIGNS = {
    INPUT: ("IteratorGetNext", "MultiDeviceIteratorGetNext"),
    COLLECTIVE: ("CollectiveReduce", "CollectiveGather", "CollectiveBcast", "RingReduce"),
}
"""How the names of the events begin that a part consists of."""

_SECONDS = 1e-12
"""How long one picosecond is."""


@dataclass(frozen=True)
class Profile:
    """A profile of a task: its file, how long it took, and the seconds of each part.

    A part that has no event is left out: the profiler may name it otherwise.
    """

    task: str
    file: Path
    seconds: float
    parts: dict[str, float]

    def __str__(self) -> str:
        told = [f"{name} {seconds / self.seconds:.0%}" for name, seconds in self.parts.items()]
        what = ", ".join(told) or "none of it is named as input or as a collective"
        return f"{self.task} in {self.seconds:.1f} s: {what}"


def parts_of(path: Path) -> dict[str, float]:
    """Return how many seconds the events of each part lasted, each moment counted once."""
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in _SIGNS}
    for name, start, duration in events(path.read_bytes()):
        for part, signs in _SIGNS.items():
            if name.startswith(signs):
                found[part].append((start, start + duration))
    return {part: _covered(spans) * _SECONDS for part, spans in found.items() if spans}


def _covered(spans: list[tuple[int, int]]) -> int:
    covered, until = 0, 0
    for start, end in sorted(spans):
        covered += max(0, end - max(start, until))
        until = max(until, end)
    return covered


def events(data: bytes) -> Iterator[tuple[str, int, int]]:
    """Return the name of each event of an ``XSpace``, with its start and length in picoseconds."""
    for plane in (value for number, value in _fields(data) if number == 1):
        inside = list(_fields(plane))
        names = dict(_named(entry) for number, entry in inside if number == 4)  # noqa: PLR2004
        for number, line in inside:
            if number == 3:  # noqa: PLR2004 - lines
                yield from _events_of(list(_fields(line)), names)


def _events_of(
    line: list[tuple[int, Any]], names: dict[int, str]
) -> Iterator[tuple[str, int, int]]:
    begin = 1000 * dict(line).get(3, 0)  # nanoseconds
    for number, event in line:
        if number == 4:  # noqa: PLR2004 - events
            known = dict(_fields(event))
            yield names.get(known.get(1, 0), ""), begin + known.get(2, 0), known.get(3, 0)


def _named(entry: bytes) -> tuple[int, str]:
    """Return the number and the name of an entry of the events' names."""
    pair = dict(_fields(entry))
    name = dict(_fields(pair.get(2, b""))).get(2, b"")
    return pair.get(1, 0), name.decode(errors="replace")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Return the fields of a protocol buffer's message: integers and bytes, by their numbers."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)  # noqa: PLR2004
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004
            return value, at
        shift += 7
