"""Has a running worker profile itself for some seconds, and reads what its framework wrote.

That says which part of the time was input, and which collectives. The file is an ``XSpace``, as
TensorFlow and JAX share it. Only the few fields that are needed are read, so that no framework has
to be imported.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mwmagic.errors import BadArguments, NoRun, SupervisorError, WaitTimeout
from mwmagic.frameworks import framework_for
from mwmagic.model.cluster import find_task
from mwmagic.model.option import read_seconds
from mwmagic.record.paths import replace
from mwmagic.record.reader import json_object

from .arguments import reader

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from mwmagic.model.cluster import TaskName
    from mwmagic.record import Record

__all__ = ["Profile", "add_profile", "events", "parts_of", "profile", "profile_lines"]

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


PROFILE_BEGIN_SECONDS = 10.0
"""How long a worker has to take up a request."""

PROFILED_SECONDS = 60.0
"""How long it has to write what it has measured."""

PROFILE_LOOK_SECONDS = 0.1

PROFILE_SECONDS_LIMIT = 20.0
"""The longest profile: its file grows by megabytes a second, each of which takes 0.6 s to read."""


def profile(record: Record, task: TaskName, seconds: float, *, risk: bool = False) -> Profile:
    """Profile a task of a run that is going; its program is not touched.

    NoRun is raised if the run or the task is over, WaitTimeout if it does not answer,
    SupervisorError if its framework cannot profile, and BadArguments if the framework's profiler
    sometimes crashes the task and `risk` does not accept that.
    """
    if not 0 < seconds <= PROFILE_SECONDS_LIMIT:
        raise BadArguments(
            f"a profile takes up to {PROFILE_SECONDS_LIMIT:g} s, not {seconds:g}: a few steps are "
            "enough, as --seconds 5"
        )
    found = find_task(task, record.known_tasks())
    status = record.status
    task_status = status.tasks.get(str(found))
    if status.over or task_status is None or not task_status.state.alive:
        raise NoRun(f"{found} of run {record.number} is not running, so it cannot be profiled")
    framework = framework_for(record.part("options").get("framework", ""))
    if framework.profiler_crashes and not risk:
        raise BadArguments(
            f"{framework.title}'s profiler sometimes crashes the process that it profiles, and the "
            f"run fails with it: add --risk to profile {found} all the same"
        )
    paths = record.paths.task(found, record.attempts)
    answer, folder = paths.profiled, paths.profiles
    answer.unlink(missing_ok=True)
    before = set(folder.rglob("*.xplane.pb"))
    asked = {
        "seconds": seconds,
        "until": time.time() + PROFILE_BEGIN_SECONDS,
        "folder": str(folder),
    }
    replace(paths.profile, json.dumps(asked).encode())
    limit = time.monotonic() + PROFILE_BEGIN_SECONDS
    while paths.profile.exists() and time.monotonic() < limit:
        time.sleep(PROFILE_LOOK_SECONDS)
    try:
        paths.profile.unlink()
    except FileNotFoundError:
        pass
    else:
        raise WaitTimeout(
            f"{found} did not begin a profile within {PROFILE_BEGIN_SECONDS:g} s: it is asked when "
            "it reports a step, so its program must use `fit` or `report()`, train now, and run "
            f"where {record.path} is; `%mw_stacks` shows where it is"
        )
    limit = time.monotonic() + seconds + PROFILED_SECONDS
    while not (known := json_object(answer)) and time.monotonic() < limit:
        if record.status.over:
            raise NoRun(
                f"run {record.number} ended while {found} was profiled: give fewer --seconds"
            )
        time.sleep(PROFILE_LOOK_SECONDS)
    new = sorted(set(folder.rglob("*.xplane.pb")) - before)
    if "error" in known or not new:
        why = known.get("error", "it wrote no profile")
        raise SupervisorError(f"{found} could not be profiled: {why}; its program continues")
    took = float(known["took"])
    parts = {name: min(spent, took) for name, spent in parts_of(new[-1]).items()}
    return Profile(str(found), new[-1], took, parts)


def profile_lines(found: Profile) -> list[str]:
    """Say what a profile shows, and where it is."""
    folder = found.file.parent.parent.parent.parent
    return [str(found), f"{found.file} (tensorboard --logdir {folder}, or XProf, shows it)"]


# As magics and commands take it.


def add_profile(parser: argparse.ArgumentParser) -> None:
    """Declare which task is profiled, and for how long."""
    what = "The task, such as 1 or worker:1."
    parser.add_argument("task", metavar="TASK", help=what)
    what = "For how long, in seconds (default: 5)."
    parser.add_argument("--seconds", type=reader(read_seconds), default=5.0, metavar="S", help=what)
    what = "Profile even if the framework's profiler may crash the task."
    parser.add_argument("--risk", action="store_true", help=what)
