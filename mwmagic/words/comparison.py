"""What a comparison of runs says: a sentence, and tables in which differences come first.

Below a finished run a line says what changed since an earlier one, and what came of it; before one
is repeated, lines say what is not as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mwmagic.experiments.compare import ABSENT, compare
from mwmagic.experiments.runs import indexed
from mwmagic.model.status import RunState
from mwmagic.model.values import counted
from mwmagic.record.metrics import rises
from mwmagic.record.reader import beside

from .failure import listed
from .table import aligned, short_name, took_text, value_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mwmagic.experiments.compare import Aspect, SideBySide
    from mwmagic.experiments.runs import Facts
    from mwmagic.record import Record

__all__ = [
    "KINDS_OF_ASPECTS",
    "alike",
    "cells",
    "changed_line",
    "code_lines",
    "conclusion",
    "inherited_words",
    "notices",
    "plain",
    "row_name",
    "tables",
    "unlike_words",
]

KINDS_OF_ASPECTS = {
    "parameter": "parameters",
    "argument": "arguments",
    "variable": "variables",
    "module": "modules beside the code",
    "version": "versions",
    "place": "where it ran",
    "result": "results",
}
"""What a kind of rows is called."""

CHANGES_NAMED_LIMIT = 4
"""How many changes a sentence names."""

CODE_LINES = 60
"""How many lines of a difference between sources are shown."""

BASELINE = "baseline"
"""The tag of the run that later ones of its file are compared with."""

CHANGES_SHOWN_LIMIT = 6
"""How many changes the line names."""


def conclusion(found: SideBySide) -> str:
    """Say which run is best, and what it differs in from the next one, or from the other."""
    ranked = found.ranked
    if len(ranked) < 2:  # noqa: PLR2004 - nothing to compare with
        one, other = found.facts[0], found.facts[-1]
        changes = _changes(found, other, one)
        return f"run {other.number} differs from run {one.number} in {changes}"
    metric, (best, second) = found.metrics[0], ranked[:2]
    value = value_text(best.best[metric])
    changes = _changes(found, best, second)
    if best.best[metric] == second.best[metric]:
        same = f"runs {best.number} and {second.number} are equally good by {metric} ({value})"
        return f"{same}; they differ in {changes}"
    return (
        f"run {best.number} is best by {metric} ({value}); it differs from run {second.number} "
        f"in {changes}"
    )


def _changes(found: SideBySide, one: Facts, other: Facts) -> str:
    """Name what two runs differ in."""
    changes = found.changes(one, other)
    parameters = [row.name for row in changes.parameters]
    names = [short_name(name, parameters) for name in parameters]
    names += [f"{counted(changes.lines, 'line')} of code"] if changes.lines else []
    for row in changes.others:
        if row.kind == "version":
            names.append(f"the version of {row.name}")
        elif row.kind in ("module", "place"):
            names.append(f"the {'module ' if row.kind == 'module' else ''}{row.name}")
        else:
            names.append(row.name)
    return _listed(names) or "nothing that is recorded"


def _listed(names: Sequence[str]) -> str:
    """Name several things, but not more than fit into a sentence."""
    shown, more = list(names[:CHANGES_NAMED_LIMIT]), len(names) - CHANGES_NAMED_LIMIT
    if more > 0:
        shown.append(f"{more} more")
    *first, last = shown or [""]
    return f"{', '.join(first)} and {last}" if first else last


def row_name(row: Aspect) -> str:
    """Return how a table names a row: a run has many values of a metric, and the best is shown."""
    metric = row.kind == "result" and row.name not in ("state", "took")
    return f"best {row.name}" if metric else row.name


def cells(found: SideBySide, row: Aspect) -> list[str]:
    """Return a row's values as text, a best one of results with a star."""
    if row.name == "took" and row.kind == "result":
        return [took_text(one or None) for one in row.values]
    texts = [_text(one) for one in row.values]
    if row.kind == "result" and row.name in found.metrics[:1] and found.ranked:
        best = found.ranked[0].best[row.name]
        texts = [
            f"{text} ★" if one == best and row.differs else text
            for one, text in zip(row.values, texts, strict=True)
        ]
    return texts


def _text(value: Any) -> str:  # noqa: ANN401 - any literal
    return "" if value == ABSENT else value_text(value)


def tables(found: SideBySide) -> list[tuple[str, list[Aspect]]]:
    """Return the kinds of rows, each with those that differ; results whether they do or not."""
    kinds = dict.fromkeys(row.kind for row in found.rows)
    differing = [
        (KINDS_OF_ASPECTS[kind], [row for row in found.rows if row.kind == kind and row.differs])
        for kind in kinds
    ]
    parameters = [one for one in differing[:1] if one[0] == KINDS_OF_ASPECTS["parameter"]]
    others = differing[len(parameters) :]
    both = [*parameters, (KINDS_OF_ASPECTS["result"], found.results), *others]
    return [(name, rows) for name, rows in both if rows]


def alike(found: SideBySide) -> str:
    """Name the parameters that are the same in all, in one line; empty without any."""
    same = [row for row in found.rows if row.kind == "parameter" and not row.differs]
    return ", ".join(f"{row.name}={_text(row.values[0])}" for row in same)


def code_lines(found: SideBySide) -> list[str]:
    """Return how the code of two runs differs, as `diff` shows it; nothing for more runs."""
    if len(found.facts) > 2:  # noqa: PLR2004 - a difference has two sides
        return []
    lines = found.code(*found.facts)
    shown = [f"{one.sign} {one.text}" for one in lines[:CODE_LINES]]
    left = len(lines) - CODE_LINES
    return shown + ([f"… and {counted(left, 'more line')}"] if left > 0 else [])


def plain(found: SideBySide) -> str:
    """Return a comparison as text for a terminal."""
    heads = ["", *(f"run {one.number}" for one in found.facts)]
    rows = [heads]
    for name, several in tables(found):
        rows.append([f"{name}:"])
        rows += [[f"  {row_name(row)}", *cells(found, row)] for row in several]
    lines = aligned(rows)
    same, code = alike(found), code_lines(found)
    lines += [f"the same in all: {same}"] if same else []
    lines += ["code:", *(f"  {line}" for line in code)] if code else []
    return "\n".join([conclusion(found), "", *lines])


def earlier_run(record: Record) -> Record | None:
    """Return the run to compare a run with: the latest baseline of its file, or the run before."""
    before = [one for one in beside(record) if one.number < record.number]
    facts = indexed(before)
    script = str(record.script or "")
    same = [at for at, one in enumerate(facts) if one.script == script and one.cells == 0]
    tagged = [at for at in same if BASELINE in facts[at].tags]
    finished = [at for at in same if facts[at].state == RunState.FINISHED.value]
    chosen = tagged or finished
    return before[chosen[-1]] if script and chosen else None


def notices(record: Record) -> list[str]:
    """Return the lines below a recorded run: what is wrong with its record, tags, note, changes."""
    tags = ", ".join(record.tags)
    lines = [
        record.trouble,
        f"tags: {tags}" if tags else "",
        f"note: {record.note}" if record.note else "",
        changed_line(record),
    ]
    return [line for line in lines if line]


def changed_line(record: Record) -> str:
    """Say what changed since the earlier run of a finished run's file; empty if nothing did."""
    if record.state != RunState.FINISHED.value:
        return ""
    earlier = earlier_run(record)
    if earlier is None:
        return ""
    found = compare([earlier, record], curves=False)
    changes = list(_changes_shown(found))
    if not changes:
        return ""
    if len(changes) > CHANGES_SHOWN_LIMIT:
        more = len(changes) - CHANGES_SHOWN_LIMIT
        changes = [
            *changes[:CHANGES_SHOWN_LIMIT],
            f"{more} more (a comparison of the two runs shows all)",
        ]
    since = f" since run {earlier.number}"
    since += f" ({BASELINE})" if BASELINE in earlier.tags else ""
    results = ", ".join(_results(found))
    return f"changed{since}: {', '.join(changes)}" + (f"; {results}" if results else "")


def _changes_shown(found: SideBySide) -> Iterator[str]:
    earlier, now = found.facts
    changes = found.changes(earlier, now)
    names = [one.name for one in changes.parameters]
    for row in changes.parameters:
        yield f"{short_name(row.name, names)} {_both(row)}"
    if changes.lines:
        yield f"{counted(changes.lines, 'line')} of code"
    for row in changes.others:
        yield f"the module {row.name}" if row.kind == "module" else f"{row.name} {_both(row)}"


def _both(row: Aspect) -> str:
    before, now = (value_text(one) if one != ABSENT else "none" for one in row.values)
    return f"{before} → {now}"


def _results(found: SideBySide) -> Iterator[str]:
    earlier, now = found.facts
    for name in found.metrics:
        before, after = earlier.best.get(name), now.best.get(name)
        if before is None or after is None:
            continue
        better = (
            "the same"
            if before == after
            else "better"
            if (after > before) == rises(name)
            else "worse"
        )
        yield f"best {name} {value_text(before)} → {value_text(after)} ({better})"
    if earlier.seconds is not None and now.seconds is not None:
        yield f"{took_text(earlier.seconds)} → {took_text(now.seconds)}"


def unlike_words(
    number: int,
    versions: Mapping[str, tuple[str | None, str | None]],
    changed: Sequence[str],
    gone: Sequence[str],
) -> list[str]:
    """Say what is not as it was in a run that is repeated.

    `versions` has what each package was, and is; `changed` and `gone` are modules beside the
    program.
    """
    lines = [
        f"{name} is {now or 'not installed'} now; run {number} had {was or 'none'}"
        for name, (was, now) in versions.items()
    ]
    if changed:
        verb = "has" if len(changed) == 1 else "have"
        lines.append(
            f"{listed(changed)} {verb} changed since run {number} was launched: the new version is "
            "imported, and the record of that run keeps the old one"
        )
    if gone:
        verb = "is" if len(gone) == 1 else "are"
        lines.append(
            f"{listed(gone)} {verb} gone since run {number} was launched; its record has a copy in "
            "the folder modules if the files were small"
        )
    return lines


def inherited_words(
    number: int, read: Sequence[str], then: Collection[str], now: Collection[str]
) -> list[str]:
    """Say which variables a repeated program reads that may not be as they were.

    `then` has the variables of the environment that the run was launched from, `now` those of the
    present one.
    """
    taken = [name if name in now else f"{name} (not set now)" for name in read if name in then]
    new = [name for name in read if name not in then and name in now]
    lines = []
    if taken:
        lines.append(
            f"run {number} read {listed(taken)} from its environment, whose values are not "
            "recorded: it now reads this environment's, unless -p sets others"
        )
    if new:
        lines.append(
            f"the program reads {listed(new)} from this environment; run {number} had no such "
            "variable"
        )
    return lines
