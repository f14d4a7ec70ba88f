"""The line below a finished run: what changed since an earlier one, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.experiments.compare import ABSENT, compare
from mwmagic.experiments.index import indexed
from mwmagic.model.status import RunState
from mwmagic.model.values import counted
from mwmagic.record.metrics import rises
from mwmagic.record.reader import beside

from .failure import listed
from .table import short_name, took_text, value_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from mwmagic.experiments.compare import Aspect, SideBySide
    from mwmagic.record import Record

__all__ = ["BASELINE", "changed_line", "earlier_run", "inherited_words", "notices", "unlike_words"]

BASELINE = "baseline"
"""The tag of the run that later ones of its file are compared with."""

CHANGES_SHOWN_LIMIT = 6
"""How many changes the line names."""


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
    changes = list(_changes(found))
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


def _changes(found: SideBySide) -> Iterator[str]:
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
        yield f"{name} {value_text(before)} → {value_text(after)} ({better})"
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
            f"run {number} took {listed(taken)} from its environment, whose values are not "
            "recorded: this environment's count now, unless -p sets others"
        )
    if new:
        lines.append(
            f"the program reads {listed(new)} from this environment; run {number} had no such "
            "variable"
        )
    return lines
