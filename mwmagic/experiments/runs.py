"""The facts of recorded runs, read once from each record: what is compared, sorted and filtered.

An index beside the runs has those of runs that are over, so that a table reads few files. It is
only a copy. Each row has the time of the folder that it was read from, which changes when a file
there is replaced or added, and counts while that is the same. A file of the index that was deleted,
damaged or written by another version is made again. So it needs no lock: of two processes that
write at once one loses rows, which are read again.
"""

from __future__ import annotations

import json
import math
import os
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic import __version__
from mwmagic.model.status import RunState
from mwmagic.record import reader
from mwmagic.record.metrics import frame_of, read_few, rises
from mwmagic.record.metrics import given as given_at_fit
from mwmagic.record.paths import index_file, make_private, replace
from mwmagic.record.reader import read_annotations

from .parameters import values
from .series import thinned

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mwmagic.model.status import RunStatus
    from mwmagic.record import Record

__all__ = [
    "OVER_STATES",
    "OWN_COLUMNS",
    "SPARK_POINTS",
    "Facts",
    "best_first",
    "differing",
    "facts_of",
    "indexed",
    "rows_of",
    "runs",
    "usual_metrics",
    "with_dot",
]

_USUAL = ("val_loss", "loss", "val_accuracy", "accuracy")
"""The metrics that a table shows if nobody chooses: of each pair the one of the validation."""


SPARK_POINTS = 30
"""The most points of a metric in a row of the table: enough for a line as high as a word."""

DIGITS_LIMIT = 4000
"""The most digits of an integer that is a number in a table; longer ones are texts."""

SPARK_METRICS = 20
"""The most metrics of a run that have such a line."""


@dataclass(frozen=True)
class Facts:
    """What a table shows of a run."""

    number: int
    name: str
    """That of its program."""
    state: str
    """One of `RunState`'s values."""
    started: float | None = None
    seconds: float | None = None
    """When it began, in seconds since 1970, and how long it took, or has taken when its record was
    last written."""
    tasks: int = 0
    hosts: int = 1
    attempts: int = 0
    cause: str = ""
    """The symptom of its first failure, as `mwmagic.model.findings` names it; empty without one."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Its program's parameters, as they were; without those that only a run of it could tell."""
    readable: bool = True
    """Whether these are known: its code is recorded, and is Python."""
    last: dict[str, float] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    """Its metrics: the last value of each and the best, judged by the metric's name."""
    tags: tuple[str, ...] = ()
    note: str = ""
    """What its user wrote to it."""
    script: str = ""
    """The whole path of the file that was launched; empty if that is not known."""
    cells: int = 0
    """How many live cells it ran."""
    failure: dict[str, Any] = field(default_factory=dict)
    """The cause of its failure, as `mwmagic.model.findings.Cause` is stored; empty without one."""
    trouble: str = ""
    """What is wrong with its record, in a sentence; empty if it can be read."""
    sparks: dict[str, str] = field(default_factory=dict)
    """A few points of each metric as a short text; `curve` reads them."""
    trial: str = ""
    """The sweep and the trial that it was launched for, as ``2/17``, or the scaling study, as
    ``scaling-1/2``; empty if it was for none."""

    def curve(self, metric: str) -> list[float]:
        """Return at most 30 values of a metric in order, for a small line; none without any."""
        return [float(one) for one in self.sparks.get(metric, "").split()]

    def values(self, metrics: Collection[str] = ()) -> dict[str, Any]:
        """Return all facts by the names that filters and columns have; metrics as the best.

        `metrics` has the names of those that other runs have.
        """
        own = {"run": self.number, "program": self.name, "state": self.state, "tasks": self.tasks}
        own |= {"began": self.started, "took": self.seconds, "hosts": self.hosts}
        own |= {"attempts": self.attempts, "cause": self.cause}
        own |= {"tags": frozenset(self.tags), "note": self.note}
        kind, _, number = self.trial.partition("/")[0].rpartition("-")
        own |= {kind or "sweep": _whole(number)} if self.trial else {}
        short: dict[str, Any] = {}
        for name, value in self.parameters.items():
            last = name.rpartition(".")[2]
            if last not in metrics:
                short.setdefault(last, value)
        taken = {*metrics, *self.best, *own}
        whole = {with_dot(name, taken): value for name, value in self.parameters.items()}
        return {**short, **whole, **self.best, **own}


def with_dot(name: str, taken: Collection[str]) -> str:
    """Return a parameter's or metric's name, with a dot before it if something else has it too."""
    return f".{name}" if name in taken else name


def facts_of(record: Record, *, curves: bool = True) -> Facts:
    """Read a record's facts, each of its files once; what is damaged or missing is left out.

    Without curves its metrics, which may be long, are not read.
    """
    record = record.read_once()
    info = record.info
    status = record.status
    written = read_annotations(record.paths.annotations)
    started, ended = (_real(info.get(name)) for name in ("started", "ended"))
    seconds = ended - started if ended is not None and started is not None else None
    if seconds is None:
        seconds = _real(record.part("durations").get("total"))
    last, best = _metrics(record.part("metrics"))
    parameters = _parameters(record)
    return Facts(
        number=record.number,
        name=record.name,
        state=status.state.value,
        started=started,
        seconds=seconds,
        tasks=len(record.tasks),
        hosts=max(len(status.hosts), 1),
        attempts=record.attempts,
        cause=_cause(status),
        parameters=parameters or {},
        readable=parameters is not None,
        last=last,
        best=best,
        tags=written.tags,
        note=written.note,
        script=str(record.script or ""),
        cells=record.cell_count(),
        failure=status.cause.as_json() if status.cause else {},
        trouble=record.trouble,
        sparks=_sparks(record.paths.metrics) if curves else {},
        trial=next((str(one.get("trial", "")) for one in record.launches), ""),
    )


def _sparks(path: Path) -> dict[str, str]:
    """Return the points of each metric in a ``metrics.jsonl``, of the first task that has it."""
    found: dict[str, list[float]] = {}
    tasks: dict[str, str] = {}
    for entry in read_few(path):
        for name, value in entry["metrics"].items():
            if name not in found and len(found) >= SPARK_METRICS:
                continue
            if tasks.setdefault(name, entry["task"]) == entry["task"] and math.isfinite(value):
                found.setdefault(name, []).append(value)
    return {
        name: " ".join(f"{one:.4g}" for one in thinned(all_, SPARK_POINTS))
        for name, all_ in found.items()
    }


def _cause(status: RunStatus) -> str:
    return status.cause.symptom.value if status.cause else ""


def _whole(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _real(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _metrics(known: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the last and the best values of the first task that has each metric."""
    last: dict[str, float] = {}
    best: dict[str, float] = {}
    for _, metrics in sorted(known.items()):
        for name, reaches in metrics.items() if isinstance(metrics, dict) else ():
            for into, key in ((last, "last"), (best, "best")):
                reached = reaches.get(key) if isinstance(reaches, dict) else None
                value = _real(reached.get("value")) if isinstance(reached, dict) else None
                if value is not None:
                    into.setdefault(name, value)
    return last, best


def _parameters(record: Record) -> dict[str, Any] | None:
    """Read the parameters from the recorded code, arguments and variables; None without the code.

    A variable that the launching process had, and that was not given, is known by its name alone:
    the record keeps no values of those, so such a parameter is left out. The parameters of live
    cells are the variables at the start of their last `fit`.
    """
    if record.status.live:
        return given_at_fit(record.paths.metrics)
    launch, source = record.program or ({}, b"")
    if not source:
        return None
    args, given = launch.get("args"), launch.get("given")
    args = [str(one) for one in args] if isinstance(args, list) else []
    given = given if isinstance(given, dict) else {}
    hidden = record.inherited - set(given)
    try:
        found = values(source.decode("utf-8", "surrogateescape"), args, given, hidden)
    except SyntaxError:
        return None
    return {name: _listed(value) for name, value in found.items()}


def _listed(value: Any) -> Any:  # noqa: ANN401 - any literal
    """Return a value as JSON has it, in which a tuple is a list.

    Python writes no integer of more digits in decimals, which a hexadecimal literal may have.
    """
    if isinstance(value, list | tuple):
        return [_listed(one) for one in value]
    return hex(value) if isinstance(value, int) and abs(value) >= 10**DIGITS_LIMIT else value


def differing(runs: Sequence[Facts]) -> tuple[list[str], dict[str, Any]]:
    """Return the parameters that differ between runs, and those that are the same in all.

    One that some runs lack differs if all are of one program; otherwise it is neither. Runs whose
    parameters are unknown have no say.
    """
    runs = [run for run in runs if run.readable]
    found: dict[str, list[Any]] = {}
    for run in runs:
        for name, value in run.parameters.items():
            found.setdefault(name, []).append(value)
    one_program = len({run.name for run in runs}) == 1
    lacking = {name for name, seen in found.items() if len(seen) < len(runs)}
    other = [
        name
        for name, seen in found.items()
        if any(one != seen[0] for one in seen) or (one_program and name in lacking)
    ]
    same = {name: seen[0] for name, seen in found.items() if name not in {*other, *lacking}}
    return other, same


def usual_metrics(runs: Iterable[Facts]) -> list[str]:
    """Return the metrics to show if none are chosen: a loss and an accuracy, where there are.

    A parameter that a program prints, as ``lr=0.1``, is none of them.
    """
    runs = list(runs)
    given = {name.rpartition(".")[2] for run in runs for name in run.parameters}
    there = {name for run in runs for name in run.best if name not in given}
    chosen = [one for one in _USUAL if one in there]
    loss = [one for one in chosen if "loss" in one][:1]
    accuracy = [one for one in chosen if "accuracy" in one][:1]
    return loss + accuracy or sorted(there)[:1]


def best_first(runs: Iterable[Facts], metric: str) -> list[Facts]:
    """Return runs by the best value of a metric; those without it come last."""
    sign = -1 if rises(metric) else 1
    return sorted(runs, key=lambda run: sign * run.best.get(metric, sign * math.inf))


INDEX_VERSION = 3
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
