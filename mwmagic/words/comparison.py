"""What a comparison of runs says: a sentence, and tables in which differences come first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mwmagic.experiments.compare import ABSENT
from mwmagic.model.values import counted

from .table import aligned, short_name, took_text, value_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mwmagic.experiments.compare import Aspect, SideBySide
    from mwmagic.experiments.runs import Facts

__all__ = ["KINDS_OF_ASPECTS", "alike", "cells", "code_lines", "conclusion", "plain", "tables"]

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
        rows += [[f"  {row.name}", *cells(found, row)] for row in several]
    lines = aligned(rows)
    same, code = alike(found), code_lines(found)
    lines += [f"the same in all: {same}"] if same else []
    lines += ["code:", *(f"  {line}" for line in code)] if code else []
    return "\n".join([conclusion(found), "", *lines])
