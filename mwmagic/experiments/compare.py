"""Several recorded runs side by side: what changed, what came of it, and curves on one axis."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from dataclasses import dataclass
from difflib import SequenceMatcher
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from mwmagic.errors import BadArguments, NoRun, NotInstalled
from mwmagic.record.metrics import rises

from .filters import check_names
from .parameters import parameters, without_values
from .runs import facts_of, usual_metrics
from .series import SPEED, read_series, thinned

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mwmagic.record import Record

    from .runs import Facts
    from .series import Point, Series

__all__ = [
    "ABSENT",
    "VALUE_HIDDEN",
    "Aspect",
    "Changes",
    "CodeLine",
    "Curve",
    "CurvePoint",
    "SideBySide",
    "axes_of",
    "chosen_curves",
    "compare",
    "curves_of",
    "figure",
    "is_secret",
    "thinned_curves",
]

COMPARED_LIMIT = 24
"""The most runs that are compared: as many as have a look of their own in a chart."""

CURVE_POINTS, ALL_POINTS = 200, 5000
"""The most points of a curve, and of all together."""

ABSENT = ""
"""The value in a row of a run that has none."""

NOT_RECORDED = "(not recorded)"
"""What stands for the value of a variable that a run had from its environment."""

VALUE_HIDDEN = "(set)"
"""What stands for the value of a variable that may be a secret: pages are shown to others."""

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)


class Aspect(NamedTuple):
    """One fact of all the runs.

    `kind` is one of ``parameter``, ``argument``, ``variable``, ``module``, ``version``, ``place``
    and ``result``.
    """

    kind: str
    name: str
    values: tuple[Any, ...]

    @property
    def differs(self) -> bool:
        """Whether not all runs have the same value."""
        return any(one != self.values[0] for one in self.values)


class CodeLine(NamedTuple):
    """A line of a difference between two sources: of the first (-), the second (+) or both."""

    sign: str
    text: str


class Changes(NamedTuple):
    """How two runs differ: parameters, how many lines of code, and all else."""

    parameters: list[Aspect]
    lines: int
    others: list[Aspect]


class CurvePoint(NamedTuple):
    """The workers' mean at one moment, with the least and the greatest of their values.

    `step` is None if no steps are known, `epoch` if no epochs are; `seconds` are since the run
    began. A value that is not finite is None.
    """

    step: float | None
    epoch: float | None
    seconds: float
    value: float | None
    low: float | None
    high: float | None


class Curve(NamedTuple):
    """A metric of a run."""

    run: int
    metric: str
    points: list[CurvePoint]


@dataclass(frozen=True)
class SideBySide:
    """What two or more runs have in common, and what not."""

    facts: list[Facts]
    """The runs, in the order in which they were given."""
    rows: list[Aspect]
    """What they were given, and where they ran."""
    results: list[Aspect]
    """What came of it: the best value of each metric, then how long it took."""
    metrics: list[str]
    """The metrics to show first; the first one says which run is best."""
    sources: list[str]
    """The code of each."""
    curves: list[Curve]
    """All metrics of all runs."""
    arguments: set[str]
    """The parameters that arguments set."""

    @property
    def ranked(self) -> list[Facts]:
        """The runs that have the first metric, the best first."""
        metric = self.metrics[0] if self.metrics else ""
        having = [one for one in self.facts if metric in one.best]
        return sorted(having, key=lambda one: one.best[metric], reverse=rises(metric))

    @property
    def axes(self) -> list[str]:
        """What all curves can be drawn by: ``step``, ``epoch`` and ``seconds``, if known."""
        return axes_of(self.curves)

    def between(self, one: Facts, other: Facts) -> list[Aspect]:
        """Return the rows in which two of the runs differ, with the values of these two."""
        at = [self.facts.index(one), self.facts.index(other)]
        pairs = [row._replace(values=tuple(row.values[i] for i in at)) for row in self.rows]
        found = [row for row in pairs if row.differs]
        # An argument or a variable that sets a parameter is one change, not two.
        names = {row.name for row in found if row.kind == "parameter"}
        kept = [row for row in found if row.kind != "variable" or row.name not in names]
        return [row for row in kept if row.kind != "argument" or not names & self.arguments]

    def changes(self, one: Facts, other: Facts) -> Changes:
        """Return how two of the runs differ, each change once."""
        rows = self.between(one, other)
        signs = [line.sign for line in self.code(one, other)]
        lines = max(signs.count("-"), signs.count("+"))
        # A parameter that only one of them has is among the lines of code, which may be gone.
        parameters = [
            row for row in rows if row.kind == "parameter" and not (signs and ABSENT in row.values)
        ]
        return Changes(parameters, lines, [row for row in rows if row.kind != "parameter"])

    def code(self, one: Facts, other: Facts) -> list[CodeLine]:
        """Return how the code of two of the runs differs, but for the values of parameters."""
        sources = [self.sources[self.facts.index(run)] for run in (one, other)]
        if all(sources) or not any(sources):
            return _difference(*sources)
        gone = other if sources[0] else one
        return [CodeLine("@", f"the code of run {gone.number} is not in its record")]


def compare(
    records: Sequence[Record], metrics: Sequence[str] = (), *, curves: bool = True
) -> SideBySide:
    """Compare recorded runs, showing some metrics first: by default a loss and an accuracy.

    Without `curves` their metrics are not read step by step, which may be long. BadArguments is
    raised if there are fewer than two runs or too many, or if no run has such a metric.
    """
    if len(records) < 2:  # noqa: PLR2004 - a comparison has two sides
        raise BadArguments(
            "a comparison needs two runs or more, such as 3 5, or --where 'units>=64'; "
            "%mw_runs, or `mwmagic runs`, lists them"
        )
    if len(records) > COMPARED_LIMIT:
        raise BadArguments(
            f"{len(records)} runs are too many to compare; choose {COMPARED_LIMIT} at most, for "
            "example with --last or --where"
        )
    records = [one.read_once() for one in records]
    facts = [facts_of(one, curves=False) for one in records]
    names = list(dict.fromkeys(name for one in facts for name in one.best))
    check_names(metrics, names)
    sources = [_source(one) for one in records]
    return SideBySide(
        facts=facts,
        rows=[*_parameters(records, facts), *_launches(records), *_origins(records, facts)],
        results=_results(facts, names),
        metrics=list(metrics) or usual_metrics(facts),
        sources=sources,
        arguments={name for one in sources for name in _by_argument(one)},
        curves=_all_curves(records, facts) if curves else [],
    )


# Rows.


def _row(kind: str, name: str, values: Iterable[Any]) -> Aspect:
    return Aspect(kind, name, tuple(ABSENT if one is None else one for one in values))


def _parameters(records: Sequence[Record], facts: Sequence[Facts]) -> list[Aspect]:
    """Return the parameters; one from a variable whose value is not recorded has no known value."""
    names = dict.fromkeys(name for one in facts for name in one.parameters)
    pairs = list(zip([one.inherited for one in records], facts, strict=True))
    rows = [
        Aspect(
            "parameter",
            name,
            tuple(
                one.parameters.get(name, NOT_RECORDED if name in inherited else ABSENT)
                for inherited, one in pairs
            ),
        )
        for name in names
    ]
    return sorted(rows, key=lambda row: not row.differs)


def _launches(records: Sequence[Record]) -> list[Aspect]:
    """Return the arguments and the variables that were given."""
    launches = [next(iter(one.launches), {}) for one in records]
    words = [one.get("args") for one in launches]
    args = [" ".join(map(str, one)) if isinstance(one, list) else "" for one in words]
    given = [one.get("given") for one in launches]
    known: list[dict[str, Any]] = [one if isinstance(one, dict) else {} for one in given]
    rows = [_row("argument", "arguments", args)] if any(args) else []
    for name in dict.fromkeys(name for one in known for name in one):
        row = _row("variable", name, [one.get(name) for one in known])
        if is_secret(name) and not row.differs:
            continue
        if is_secret(name):
            row = row._replace(values=tuple(f"{VALUE_HIDDEN} {i}" for i in _ranks(row.values)))
        rows.append(row)
    return rows


def is_secret(name: str) -> bool:
    """Return whether the name of a variable says that its value is a secret."""
    return bool(_SECRET.search(name))


def _ranks(values: Sequence[Any]) -> list[int]:
    """Number values, equal ones alike: it shows which differ, and not what they are."""
    order = list(dict.fromkeys(map(str, values)))
    return [order.index(str(one)) + 1 for one in values]


def _origins(records: Sequence[Record], facts: Sequence[Facts]) -> list[Aspect]:
    """Return modules, versions and places that are not the same for all.

    Versions and commits are found while a run is under way: one that was short may have ended
    before.
    """
    rows = [
        _row("place", "program", [one.name for one in facts]),
        _row("place", "tasks", [one.tasks for one in facts]),
        _row("place", "hosts", [one.hosts for one in facts]),
    ]
    modules = [one.modules() for one in records]
    versions = [one.part("versions") for one in records]
    if not all(versions):
        versions = []
    for kind, several in (("module", modules), ("version", versions)):
        for name in sorted({name for one in several for name in one}):
            values = [one.get(name) for one in several]
            short = [None if one is None else str(one)[:12] for one in values]
            rows.append(_row(kind, name, short))
    commits = [one.part("git").get("commit") for one in records]
    if all(commits):
        rows.append(_row("place", "commit", [str(one)[:12] for one in commits]))
    return [row for row in rows if row.differs]


def _results(facts: Sequence[Facts], names: Sequence[str]) -> list[Aspect]:
    rows = [_row("result", name, [one.best.get(name) for one in facts]) for name in names]
    took = _row("result", "took", [one.seconds for one in facts])
    return [_row("result", "state", [one.state for one in facts]), *rows, took]


# Code.


def _source(record: Record) -> str:
    """Return the recorded code of a run: its program, or its live cells."""
    program = record.program
    if program is not None:
        return program[1].decode("utf-8", "replace")
    return "\n".join(record.cell_source(one.cell) for one in record.cells())


def _by_argument(source: str) -> set[str]:
    """Return the parameters of a program that its arguments set."""
    try:
        return {one.name for one in parameters(source) if one.way is not None}
    except SyntaxError:
        return set()


CONTEXT_LINES = 2
"""How many equal lines are shown before and after those that differ."""


def _difference(one: str, other: str) -> list[CodeLine]:
    first, second = one.splitlines(), other.splitlines()
    plain = [without_values(text).splitlines() for text in (one, other)]
    found: list[CodeLine] = []
    matcher = SequenceMatcher(None, plain[0], plain[1], autojunk=False)
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        found += [CodeLine("@", f"line {group[0][3] + 1}")]
        for kind, start, end, begin, until in group:
            if kind == "equal":
                found += [CodeLine(" ", text) for text in second[begin:until]]
                continue
            found += [CodeLine("-", text) for text in first[start:end]]
            found += [CodeLine("+", text) for text in second[begin:until]]
    return found


# Curves.


def axes_of(curves: Sequence[Curve]) -> list[str]:
    """Return what all curves can be drawn by: ``step``, ``epoch`` and ``seconds``, if known."""
    points = [point for curve in curves for point in curve.points]
    found = [("step", [one.step for one in points]), ("epoch", [one.epoch for one in points])]
    return [name for name, values in found if values and None not in values] + ["seconds"]


def thinned_curves(curves: Sequence[Curve], limit: int) -> list[Curve]:
    """Return curves with so many points at most, of all of them together."""
    count = max(min(CURVE_POINTS, limit // max(len(curves), 1)), 2)
    return [one._replace(points=thinned(one.points, count)) for one in curves]


def _all_curves(records: Sequence[Record], facts: Sequence[Facts]) -> list[Curve]:
    """Return the metrics of some runs, with as many points of each as a chart of all shows."""
    pairs = zip(records, facts, strict=True)
    read = [curve for record, one in pairs for curve in curves_of(read_series(record), one)]
    return thinned_curves(read, ALL_POINTS)


def chosen_curves(records: Sequence[Record], metrics: Sequence[str]) -> list[Curve]:
    """Return the curves to draw of some runs: of some metrics, by default a loss and an accuracy.

    Raises NoRun if a run has none, BadArguments if no run has such a metric or the runs are many.
    """
    if len(records) > COMPARED_LIMIT:
        raise BadArguments(
            f"{len(records)} runs are too many for one picture; choose {COMPARED_LIMIT} at most"
        )
    facts = [facts_of(one.read_once(), curves=False) for one in records]
    check_names(metrics, list(dict.fromkeys(name for one in facts for name in one.last)))
    wanted = list(metrics) or usual_metrics(facts)
    found = [one for one in _all_curves(records, facts) if one.metric in wanted]
    lacking = [one.number for one in facts if one.number not in {curve.run for curve in found}]
    if lacking:
        names = f"values of {' or '.join(wanted)}" if wanted else "metrics"
        raise NoRun(f"run {lacking[0]} has no {names} to draw: leave it out")
    return sorted(found, key=lambda one: wanted.index(one.metric))


CHART_INCHES = (5.0, 3.2)
"""The size of a chart in a figure."""


def figure(records: Sequence[Record], metrics: Sequence[str] = ()) -> Any:  # noqa: ANN401 - matplotlib may be missing
    """Return the curves of some runs as a matplotlib figure, a chart for each metric."""
    curves = chosen_curves(records, metrics)
    try:
        drawn = import_module("matplotlib.figure")
    except ImportError:
        raise NotInstalled(
            "a figure needs matplotlib, which is not installed here: pip install matplotlib, or "
            "draw the curves with `%mw_export svg`, which needs nothing"
        ) from None
    axis = axes_of(curves)[0]
    names = list(dict.fromkeys(one.metric for one in curves))
    columns, lines = min(len(names), 2), (len(names) + 1) // 2
    size = (CHART_INCHES[0] * columns, CHART_INCHES[1] * lines)
    found = drawn.Figure(figsize=size, layout="constrained")
    for place, name in enumerate(names, 1):
        chart = found.add_subplot(lines, columns, place)
        chart.set(xlabel=axis, ylabel=name.replace("$", r"\$"))  # else it may begin a formula
        for one in curves:
            if one.metric == name:
                _draw(chart, one, axis)
        if len(records) > 1:
            chart.legend()
    return found


def _draw(chart: Any, curve: Curve, axis: str) -> None:  # noqa: ANN401 - matplotlib's
    """Draw a curve, and the spread of the workers around it."""
    xs = [getattr(one, axis) for one in curve.points]
    rows = [(one.value, one.low, one.high) for one in curve.points]
    values, low, high = zip(
        *([math.nan if one is None else one for one in row] for row in rows), strict=True
    )
    [line] = chart.plot(xs, values, label=f"run {curve.run}", marker="." if len(xs) == 1 else "")
    chart.fill_between(xs, low, high, color=line.get_color(), alpha=0.2, linewidth=0)


def curves_of(series: Series, facts: Facts) -> list[Curve]:
    """Return the metrics of a run, of all its workers together."""
    metrics: dict[str, dict[str, list[Point]]] = {}
    for point in sorted(series.points, key=lambda one: one.key.attempt):
        if point.key.metric is not None:
            tasks = metrics.setdefault(point.key.metric, {})
            _join(tasks.setdefault(point.key.task, []), point)
    began = min([one.wall for one in series.points], default=0.0)
    if facts.started is not None and facts.started < began:
        began = facts.started
    found = [
        Curve(facts.number, name, _merged(list(tasks.values()), began, stepped=series.stepped))
        for name, tasks in metrics.items()
    ]
    return sorted(found, key=lambda one: (one.metric != "loss", one.metric == SPEED))


def _join(points: list[Point], new: Point) -> None:
    """Add a point; what an earlier attempt had from there on, a later one trained again."""
    while points and points[-1].x >= new.x and points[-1].key.attempt < new.key.attempt:
        points.pop()
    points.append(new)


def _merged(tasks: list[list[Point]], began: float, *, stepped: bool) -> list[CurvePoint]:
    """Return the mean and the spread of several tasks' points, at those of the fullest."""
    base = max(tasks, key=len)
    found = []
    for point in base:
        others = [_at(points, point.x) for points in tasks if points is not base]
        known = [one for one in (point.y, *others) if one is not None]
        mean = None if point.y is None else float(f"{sum(known) / len(known):.5g}")
        found.append(
            CurvePoint(
                point.x if stepped else None,
                point.epoch if stepped or point.epoch is not None else point.x,
                round(point.wall - began, 3),
                mean,
                None if mean is None else min(known),
                None if mean is None else max(known),
            )
        )
    return found


def _at(points: Sequence[Point], x: float) -> float | None:
    """Return the value between two points; None beyond the first and the last."""
    at = bisect_left(points, x, key=lambda one: one.x)
    if at == len(points) or (at == 0 and points[0].x != x):
        return None
    after, before = points[at], points[max(at - 1, 0)]
    if after.x == x or after.y is None or before.y is None:
        return after.y if after.x == x else None
    return before.y + (after.y - before.y) * (x - before.x) / (after.x - before.x)
