"""The table of runs: for a notebook, a terminal, and for programs."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

from mwmagic.errors import BadArguments
from mwmagic.experiments.filters import Filter, check_names
from mwmagic.experiments.runs import Facts, best_first, differing, indexed, usual_metrics, with_dot
from mwmagic.model.findings import Cause
from mwmagic.model.status import RunState
from mwmagic.model.values import counted, finite
from mwmagic.record.metrics import rises

from .failure import headline
from .run import clock, state_tone

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from mwmagic.record import Record

__all__ = [
    "SAME_IN_ALL",
    "Column",
    "RunTable",
    "aligned",
    "aligned_columns",
    "curve_column",
    "described",
    "metric_column",
    "parameter_column",
    "short_name",
    "took_text",
    "value_text",
]

_OWN_NAMES = (
    "folder",
    "run",
    "program",
    "began",
    "took",
    "state",
    "tasks",
    "cause",
    "tags",
    "note",
)
"""The names of the columns that every table may have."""

NO_RUNS = "no runs are recorded here"

SAME_IN_ALL = "the same in all: "
"""How the line begins that names what is the same in all rows."""


@dataclass(frozen=True)
class Column:
    """A column of a table: its cells as text, and what they are sorted by."""

    name: str
    texts: list[str]
    keys: list[Any]
    """A number, a text or None for each cell: what lacks a value comes last."""
    shown: bool = True
    """Whether the table has it unless a reader chooses otherwise."""
    curves: list[list[float]] | None = None
    """A line to draw in each cell in place of its text."""
    best: int | None = None
    """The row that has the best value of a metric, if some are worse."""


class RunTable(Sequence["Record"]):
    """Recorded runs with what they differ in: the oldest first, unless they are sorted.

    `where` is a filter such as ``units>=64 and state==finished``; `sort` a column, a parameter or a
    metric, the smallest first unless `reverse`; `best` a metric, the best run first. `last` takes
    only so many of the latest runs that `where` leaves, and `metrics` are those to show, by default
    a loss and an accuracy. With `folder`, the directory above the folders of the runs, each row
    names its own. A name that no run has, a filter that cannot be read, or two orders raise
    BadArguments.
    """

    def __init__(
        self,
        records: Sequence[Record],
        *,
        where: str | None = None,
        sort: str | None = None,
        reverse: bool = False,
        best: str | None = None,
        last: int | None = None,
        metrics: Sequence[str] = (),
        folder: Path | None = None,
    ) -> None:
        if sort and best:
            raise BadArguments("--sort and --best both set the order: leave one out")
        known = list(records) if folder or where else list(records[-(last or 0) :])
        facts = indexed(known)
        records_of = dict(zip(map(id, facts), known, strict=True))
        self._folders: dict[int, str] = {}
        if folder:
            facts = sorted(facts, key=lambda one: one.started or 0.0)
            self._folders = {id(one): _place(records_of[id(one)], folder) for one in facts}
        values = {}
        metric_names = set[str]()
        if where or sort or best or metrics:
            metric_names = {name for one in facts for name in one.best}
            values = {id(one): one.values(metric_names) for one in facts}
        if folder:
            values = {key: {**one, "folder": self._folders[key]} for key, one in values.items()}
        names = {name for one in values.values() for name in one}
        if where:
            check = Filter(where)
            check.check_names(names) if facts else None
            facts = [one for one in facts if check(values[id(one)])]
        if known:
            check_names(filter(None, (*metrics, best, sort)), names)
            _check_metrics(filter(None, (*metrics, best)), metric_names)
        facts = facts[-(last or 0) :]
        if best:
            facts = best_first(facts, best)
        elif sort:
            keys = {key: one.get(sort) for key, one in values.items()}
            facts = _ordered(facts, keys, reverse=reverse)
        if reverse and not sort:
            facts.reverse()
        self.facts = facts
        self.metrics = list(metrics) or list(
            dict.fromkeys([*([best] if best else []), *usual_metrics(facts)])
        )
        self._records = [records_of[id(one)] for one in facts]
        self.ordered = bool(sort or best or reverse)
        self._filtered = bool(where) and bool(known)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def columns(self) -> tuple[list[Column], list[str]]:
        """Return the columns, those that are shown first, and the lines below them."""
        other, same = self._parameters()
        metrics = dict.fromkeys(name for one in self.facts for name in one.best)
        hidden = [
            *(
                metric_column(self.facts, name, shown=False)
                for name in metrics
                if name not in self.metrics
            ),
            *(
                parameter_column(self.facts, name, title, shown=False)
                for name, title in self._titles(same, short=False).items()
            ),
        ]
        columns, notes = self._parted([*self._visible(other), *hidden], same)
        return columns, [*notes, *self.troubles]

    def _visible(self, other: Sequence[str]) -> list[Column]:
        """Return the columns that are shown, and those that would be empty.

        `other` names the parameters that differ.
        """
        drawn = len(self.facts) <= CURVE_ROWS
        causes = [_cause(one) for one in self.facts]
        tags = [", ".join(one.tags) for one in self.facts]
        notes = [_bounded(" ".join(one.note.split()), CAUSE_CHARACTERS) for one in self.facts]
        places = [self._folders.get(id(one), "") for one in self.facts]
        return [
            *([Column("folder", places, places)] if self._folders else []),
            *_own(self.facts),
            *(
                parameter_column(self.facts, name, title)
                for name, title in self._titles(other, short=True).items()
            ),
            *(metric_column(self.facts, name, shown=True) for name in self.metrics),
            *(curve_column(self.facts, name) for name in self.metrics[:1] if drawn),
            Column("cause", causes, causes, shown=any(causes)),
            Column("tags", tags, tags, shown=any(tags)),
            Column("note", notes, notes, shown=any(notes)),
        ]

    def _titles(self, names: Collection[str], *, short: bool) -> dict[str, str]:
        """Return the names of parameters' columns, which no others have; filters take them."""
        taken = {*_OWN_NAMES, *(metric for one in self.facts for metric in one.best)}
        titles = {name: short_name(name, [*names]) if short else name for name in names}
        return {
            name: with_dot(name, taken) if title in taken else title
            for name, title in titles.items()
        }

    def _parameters(self) -> tuple[list[str], dict[str, Any]]:
        other, same = differing(self.facts)
        return (list(same), {}) if len(self.facts) == 1 else (other, same)

    def nothing(self) -> str:
        """Say why there are no rows."""
        return "no run matches the filter" if self._filtered else NO_RUNS

    def __repr__(self) -> str:
        if not self.facts:
            return self.nothing()
        shown, notes = self.shown()
        return "\n".join([*aligned_columns(shown), *notes])

    def shown(self) -> tuple[list[Column], list[str]]:
        """Return the columns that are shown, and the lines below them."""
        other, same = self._parameters()
        columns, notes = self._parted(self._visible(other), same)
        return [one for one in columns if one.shown], [*notes, *self.troubles]

    def _parted(
        self, columns: list[Column], same: Mapping[str, Any]
    ) -> tuple[list[Column], list[str]]:
        """Return columns, and in a line what is the same in all rows, programs and tasks too."""
        alike = {
            one.name: one.texts[0]
            for one in columns
            if one.name in ("program", "tasks") and len({*one.texts}) == 1
        }
        if len(self.facts) == 1:
            alike = {}
        texts = ", ".join(
            f"{name}={value_text(value)}" for name, value in {**alike, **same}.items()
        )
        chosen = [replace(one, shown=False) if one.name in alike else one for one in columns]
        chosen.sort(key=lambda one: not one.shown)
        return chosen, [f"{SAME_IN_ALL}{texts}"] if texts else []

    @property
    def tones(self) -> list[str]:
        """How each row's state is classified: wait, run, good, bad or off."""
        return [state_tone(RunState(one.state)) for one in self.facts]

    @property
    def troubles(self) -> list[str]:
        """Say which of the records cannot be read as a whole."""
        found = [one.trouble for one in self.facts if one.trouble]
        more = len(found) - TROUBLES_LIMIT
        rest = [f"and {counted(more, 'other record')} like these"] if more > 0 else []
        return found[:TROUBLES_LIMIT] + rest

    def as_json(self) -> str:
        """Return the runs as JSON: a list of objects, whose fields only grow."""
        pairs = zip(self.facts, self._records, strict=True)
        return json.dumps([described(one, record) for one, record in pairs])

    def as_csv(self) -> str:
        """Return the runs as CSV, a column for each parameter and for each metric."""
        file = io.StringIO()
        names = list(dict.fromkeys(name for one in self.facts for name in one.parameters))
        metrics = list(dict.fromkeys(name for one in self.facts for name in one.last))
        own = ["number", "name", "state", "started", "seconds", "tasks", "hosts", "attempts"]
        places = ["folder"] if self._folders else []
        head = [*places, *own, "cause", "tags", "note"]
        writer = csv.writer(file)
        writer.writerow(
            [
                *head,
                *(with_dot(name, {*head, *metrics}) for name in names),
                *(with_dot(name, head) for name in metrics),
                *(f"best {name}" for name in metrics),
            ]
        )
        for one in self.facts:
            facts = [getattr(one, name) for name in own]
            given = [one.parameters.get(name) for name in names]
            reached = [*(one.last.get(name) for name in metrics)]
            reached += [one.best.get(name) for name in metrics]
            places = [self._folders[id(one)]] if self._folders else []
            writer.writerow(
                [*places, *facts, one.cause, " ".join(one.tags), one.note, *given, *reached]
            )
        return file.getvalue()


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines whose columns stand below each other.

    A row with one cell is a title, which is no column's.
    """
    widths = [
        max(map(len, column)) for column in zip(*(r for r in rows if len(r) > 1), strict=True)
    ]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=False)).rstrip()
        for row in rows
    ]


def aligned_columns(columns: Sequence[Column]) -> list[str]:
    """Return columns with their names as such lines."""
    return aligned(list(zip(*([one.name, *one.texts] for one in columns), strict=True)))


def _place(record: Record, folder: Path) -> str:
    """Return the folder of a run below another one."""
    return record.root.relative_to(folder).as_posix()


def described(one: Facts, record: Record) -> dict[str, Any]:
    """Return a run as JSON values; docs/use/agents.md has its fields, which only grow."""
    hidden = ("failure", "sparks")
    known = {name: value for name, value in vars(one).items() if name not in hidden}
    cause = Cause.from_json(one.failure) if one.failure else None
    why = headline(cause) if cause else ""
    found: dict[str, Any] = finite({**known, "why": why, "directory": str(record.path.absolute())})
    return found


def _check_metrics(names: Iterable[str], known: Collection[str]) -> None:
    """Raise BadArguments for names of columns and parameters in place of metrics."""
    for name in names:
        if name not in known:
            there = f"the metrics are {', '.join(sorted(known))}" if known else "no run has one"
            raise BadArguments(f"{name} is not a metric: {there}; --sort {name} sorts by it")


def _ordered(facts: list[Facts], keys: dict[int, Any], *, reverse: bool) -> list[Facts]:
    """Sort runs by a fact; those that lack it come last."""
    having = [one for one in facts if keys[id(one)] is not None]
    try:
        having.sort(key=lambda one: keys[id(one)])
    except TypeError:  # numbers and texts
        having.sort(key=lambda one: str(keys[id(one)]))
    if reverse:
        having.reverse()
    return having + [one for one in facts if keys[id(one)] is None]


def _own(facts: Sequence[Facts]) -> list[Column]:
    """Return the columns that every table has."""
    return [
        Column("run", [str(one.number) for one in facts], [one.number for one in facts]),
        Column("program", [one.name for one in facts], [one.name for one in facts]),
        Column("began", [_began(one) for one in facts], [one.started for one in facts]),
        Column("took", [took_text(one.seconds) for one in facts], [one.seconds for one in facts]),
        Column("state", [_state(one) for one in facts], [one.state for one in facts]),
        Column("tasks", [_tasks(one) for one in facts], [one.tasks for one in facts]),
    ]


def parameter_column(
    facts: Sequence[Facts], name: str, title: str, *, shown: bool = True
) -> Column:
    """Return the column of a parameter."""
    values = [one.parameters.get(name) for one in facts]
    texts = [value_text(one.parameters.get(name, "")) for one in facts]
    numbers = [isinstance(one, int | float) and not isinstance(one, bool) for one in values]
    keys = [value if number else text or None
            for value, number, text in zip(values, numbers, texts, strict=True)]  # fmt: skip
    return Column(title, texts, keys, shown)


def metric_column(facts: Sequence[Facts], name: str, *, shown: bool) -> Column:
    """Return the column of a metric: its last value, and its best one."""
    keys = [one.best.get(name, one.last.get(name)) for one in facts]
    known = {row: one.best[name] for row, one in enumerate(facts) if name in one.best}
    best = None
    if len(set(known.values())) > 1:
        best = (max if rises(name) else min)(known, key=lambda row: known[row])
    return Column(name, [_metric(one, name) for one in facts], keys, shown, best=best)


def curve_column(facts: Sequence[Facts], name: str) -> Column:
    """Return the column with a metric's course, as a line in each cell."""
    curves = [one.curve(name) for one in facts]
    shown = any(len(one) > 1 for one in curves)
    keys = [None] * len(curves)
    return Column(f"{name} curve", [_bars(one) for one in curves], keys, shown, curves)


_BARS = "▁▂▃▄▅▆▇█"


def _bars(values: Sequence[float]) -> str:
    """Return points as a line of bars, the lowest value as the lowest bar."""
    if not values:
        return ""
    low, high = min(values), max(values)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((one - low) * scale)] for one in values)


def _began(one: Facts) -> str:
    return "" if one.started is None else time.strftime("%d %b %H:%M", time.localtime(one.started))


def _state(one: Facts) -> str:
    more = [f"attempt {one.attempts}"] if one.attempts > 1 else []
    more += [counted(one.cells, "cell")] if one.cells else []
    return f"{one.state} ({', '.join(more)})" if more else one.state


def _tasks(one: Facts) -> str:
    return f"{one.tasks} on {counted(one.hosts, 'host')}" if one.hosts > 1 else str(one.tasks)


def took_text(seconds: float | None) -> str:
    """Return a duration as a cell has it."""
    if seconds is None:
        return ""
    if seconds >= 60:  # noqa: PLR2004 - a minute
        return clock(seconds)
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004 - two digits


def _cause(one: Facts) -> str:
    cause = Cause.from_json(one.failure) if one.failure else None
    return _bounded(headline(cause), CAUSE_CHARACTERS) if cause else ""


def short_name(name: str, among: Sequence[str]) -> str:
    """Return the last part of a parameter's name, if no other column has it."""
    last = name.rpartition(".")[2]
    return name if sum(one.rpartition(".")[2] == last for one in among) > 1 else last


TROUBLES_LIMIT = 3
"""How many damaged records are named below a table."""

CURVE_ROWS = 1000
"""The most rows of a table that draws the first metric's curve in each."""

PARAMETER_CHARACTERS = 40
"""How much of a parameter's value a table shows."""

CAUSE_CHARACTERS = 80
"""How much of a failure, or of a note."""


def value_text(value: object) -> str:
    """Return a value as a cell has it: numbers with four digits, and no long texts."""
    text = f"{value:.4g}" if isinstance(value, float) else " ".join(str(value).split())
    return _bounded(text, PARAMETER_CHARACTERS)


def _bounded(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def _metric(one: Facts, name: str) -> str:
    last, best = one.last.get(name), one.best.get(name)
    if last is None:
        return "" if best is None else f"best {best:.4g}"
    return f"{last:.4g}" if best is None or best == last else f"{last:.4g} (best {best:.4g})"
