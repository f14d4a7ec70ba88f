"""The table of runs: for a notebook, a terminal, and for programs."""

from __future__ import annotations

import csv
import html
import io
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, overload

from mwmagic.errors import BadArguments
from mwmagic.experiments.filters import Filter, check_names
from mwmagic.experiments.runs import Facts, best_first, differing, facts_of, usual_metrics
from mwmagic.model.values import counted

from .failure import headline
from .run import clock

if TYPE_CHECKING:
    from mwmagic.record import Record

__all__ = ["RunTable"]

NO_RUNS = "no runs are recorded here"

_OWN = ("run", "program", "began", "took", "state", "tasks")


class RunTable(Sequence["Record"]):
    """Recorded runs with what they differ in: the oldest first, unless they are sorted.

    Parameters
    ----------
    records : sequence of Record
        The runs.
    where : str, optional
        A filter such as ``units>=64 and state==finished``.
    sort : str, optional
        A column, a parameter or a metric: the smallest first.
    reverse : bool
        Whether the order is turned round.
    best : str, optional
        A metric: the best run first.
    last : int, optional
        How many of the latest runs.
    metrics : sequence of str
        Those to show; by default a loss and an accuracy.

    Raises
    ------
    BadArguments
        A name that no run has, a filter that cannot be read, or two orders.
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
    ) -> None:
        if sort and best:
            raise BadArguments("--sort and --best both set the order: leave one out")
        known = {record.number: record for record in records[-(last or 0) :]}
        facts = [facts_of(record) for record in known.values()]
        values = {one.number: one.values() for one in facts}
        names = {name for one in values.values() for name in one}
        if where:
            check = Filter(where)
            check.check_names(names) if facts else None
            facts = [one for one in facts if check(values[one.number])]
        if known:
            check_names(filter(None, (*metrics, best, sort)), names)
        if best:
            facts = best_first(facts, best)
        elif sort:
            facts = _ordered(facts, {key: one.get(sort) for key, one in values.items()})
        if reverse:
            facts.reverse()
        self.facts = facts
        self.metrics = list(metrics) or list(
            dict.fromkeys([*([best] if best else []), *usual_metrics(facts)])
        )
        self._records = [known[one.number] for one in facts]
        self._filtered = bool(where) and bool(known)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def _rows(self) -> tuple[list[list[str]], str]:
        """Return the rows, the first with the columns' names; and what is the same in all."""
        other, same = differing(self.facts)
        if len(self.facts) == 1:
            other, same = list(same), {}
        why = ["cause"] if any(one.cause for one in self.facts) else []
        rows = [[*_OWN, *(_short(name, other) for name in other), *self.metrics, *why]]
        for one, record in zip(self.facts, self._records, strict=True):
            shown = [_value(one.parameters.get(name, "")) for name in other]
            shown += [_metric(one, name) for name in self.metrics]
            rows.append([*_facts(one, record), *shown, *([_cause(record)] if why else [])])
        alike = ", ".join(f"{name}={_value(value)}" for name, value in same.items())
        return rows, f"the same in all: {alike}" if alike else ""

    def _nothing(self) -> str:
        return "no run matches the filter" if self._filtered else NO_RUNS

    def __repr__(self) -> str:
        if not self.facts:
            return self._nothing()
        rows, alike = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, *([alike] if alike else [])])

    def _repr_html_(self) -> str:
        if not self.facts:
            return html.escape(self._nothing())
        rows, alike = self._rows()
        head = "".join(f"<th>{html.escape(text)}" for text in rows[0])
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(text)}" for text in row) for row in rows[1:]
        )
        note = f"<caption>{html.escape(alike)}</caption>" if alike else ""
        return f"<table>{note}<thead><tr>{head}<tbody>{body}</table>"

    def as_json(self) -> str:
        """Return the runs as JSON: a list of objects, whose fields only grow."""
        return json.dumps([asdict(one) for one in self.facts], default=str)

    def as_csv(self) -> str:
        """Return the runs as CSV, a column for each parameter and for each metric."""
        file = io.StringIO()
        names = list(dict.fromkeys(name for one in self.facts for name in one.parameters))
        metrics = list(dict.fromkeys(name for one in self.facts for name in one.last))
        own = ["number", "name", "state", "started", "seconds", "tasks", "hosts", "attempts"]
        writer = csv.writer(file)
        writer.writerow([*own, "cause", *names, *metrics, *(f"best {name}" for name in metrics)])
        for one in self.facts:
            facts = [getattr(one, name) for name in own]
            given = [one.parameters.get(name) for name in names]
            reached = [*(one.last.get(name) for name in metrics)]
            reached += [one.best.get(name) for name in metrics]
            writer.writerow([*facts, one.cause, *given, *reached])
        return file.getvalue()


def _ordered(facts: list[Facts], keys: dict[int, Any]) -> list[Facts]:
    """Sort runs by a fact; those that lack it come last."""
    having = [one for one in facts if keys[one.number] is not None]
    try:
        having.sort(key=lambda one: keys[one.number])
    except TypeError:  # numbers and texts
        having.sort(key=lambda one: str(keys[one.number]))
    return having + [one for one in facts if keys[one.number] is None]


def _facts(one: Facts, record: Record) -> list[str]:
    began = "" if one.started is None else time.strftime("%d %b %H:%M", time.localtime(one.started))
    took = "" if one.seconds is None else _took(one.seconds)
    on = f" on {counted(one.hosts, 'host')}" if one.hosts > 1 else ""
    cells = len(record.cells())
    more = [f"attempt {one.attempts}"] if one.attempts > 1 else []
    more += [counted(cells, "cell")] if cells else []
    state = f"{one.state} ({', '.join(more)})" if more else one.state
    return [str(one.number), one.name, began, took, state, f"{one.tasks}{on}"]


def _took(seconds: float) -> str:
    if seconds >= 60:  # noqa: PLR2004 - a minute
        return clock(seconds)
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004 - two digits


def _cause(record: Record) -> str:
    cause = record.status.cause
    return _bounded(headline(cause), CAUSE_CHARACTERS) if cause else ""


def _short(name: str, among: Sequence[str]) -> str:
    """Return the last part of a parameter's name, if no other column has it."""
    last = name.rpartition(".")[2]
    return name if sum(one.rpartition(".")[2] == last for one in among) > 1 else last


PARAMETER_CHARACTERS = 40
"""How much of a parameter's value a table shows."""

CAUSE_CHARACTERS = 80
"""How much of a failure."""


def _value(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return _bounded(text, PARAMETER_CHARACTERS)


def _bounded(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def _metric(one: Facts, name: str) -> str:
    last, best = one.last.get(name), one.best.get(name)
    if last is None:
        return "" if best is None else f"best {best:.4g}"
    return f"{last:.4g}" if best is None or best == last else f"{last:.4g} (best {best:.4g})"
