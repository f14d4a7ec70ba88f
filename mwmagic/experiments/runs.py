"""The facts of recorded runs, read once from each record: what is compared, sorted and filtered."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mwmagic.record.metrics import given as given_at_fit
from mwmagic.record.metrics import read_few, rises
from mwmagic.record.reader import read_annotations

from .parameters import values
from .series import thinned

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from mwmagic.model.status import RunStatus
    from mwmagic.record import Record

__all__ = [
    "SPARK_POINTS",
    "Facts",
    "best_first",
    "differing",
    "facts_of",
    "usual_metrics",
    "with_dot",
]

_USUAL = ("val_loss", "loss", "val_accuracy", "accuracy")
"""The metrics that a table shows if nobody chooses: of each pair the one of the validation."""


SPARK_POINTS = 30
"""The most points of a metric in a row of the table: enough for a line as high as a word."""

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
        parameters=_parameters(record),
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


def _parameters(record: Record) -> dict[str, Any]:
    """Read the parameters from the recorded code, arguments and variables.

    A variable that the launching process had, and that was not given, is known by its name alone:
    the record keeps no values of those, so such a parameter is left out. The parameters of live
    cells are the variables at the start of their last `fit`.
    """
    if record.status.live:
        return given_at_fit(record.paths.metrics)
    program = record.program
    if program is None:
        return {}
    launch, source = program
    args, given = launch.get("args"), launch.get("given")
    args = [str(one) for one in args] if isinstance(args, list) else []
    given = given if isinstance(given, dict) else {}
    hidden = record.inherited - set(given)
    try:
        found = values(source.decode("utf-8", "surrogateescape"), args, given, hidden)
    except SyntaxError:
        return {}
    return {name: _listed(value) for name, value in found.items()}


def _listed(value: Any) -> Any:  # noqa: ANN401 - any literal
    """Return a value as JSON has it, in which a tuple is a list."""
    return [_listed(one) for one in value] if isinstance(value, list | tuple) else value


def differing(runs: Sequence[Facts]) -> tuple[list[str], dict[str, Any]]:
    """Return the parameters that differ between runs, and those that are the same in all.

    One that some runs lack differs if all are of one program; otherwise it is neither.
    """
    found: dict[str, list[Any]] = {}
    for run in runs:
        for name, value in run.parameters.items():
            found.setdefault(name, []).append(value)
    one_program = len({run.name for run in runs}) == 1
    known = {run.name for run in runs if run.parameters}
    # A program has none, or the record of a run has lost its code.
    having = sum(bool(run.parameters) or run.name not in known for run in runs)
    lacking = {name for name, seen in found.items() if len(seen) < having}
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
