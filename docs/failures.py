"""The pages of known failures: one has them all, the other leads to them from what a user sees."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from mwmagic.diagnosis.known import CLASSES
from mwmagic.diagnosis.running import REMARKS, STALLS
from mwmagic.diagnosis.table import KNOWN
from mwmagic.model.findings import Position, Symptom, Whereabouts
from mwmagic.words.failure import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mwmagic.diagnosis.known import KnownFailure
    from mwmagic.model.findings import Finding

_HEAD = """\
# Known failures

When a run fails, stalls or does something unintended, mwmagic looks for the signs below in the
exception and at the end of the log; in a sign, `...` stands for the part that varies. Signs
in *italics* are what mwmagic itself observes of the processes. Each sign was provoked with the installed TensorFlow.

A failed run is an error in the notebook only if a cell waits for the run, as `%mw_wait` does. End
every notebook that nbclient, nbconvert, papermill or nbval executes with `%mw_wait`: without it,
the run is stopped when the kernel ends, and no failure is reported as an error.

Generated from the tables in `mwmagic/diagnosis/` by `make docs`; a test keeps it current.
"""

_INDEX = """\
# Find a failure by what you see

Search this page for a part of your error message; `...` stands for the part that varies. Lines in
*italics* are what mwmagic itself reports. Each links to its entry in [Known failures](failures.md),
which says what it means and what to try. `mwmagic explain RUN` does all this for a recorded run.

Generated from the tables in `mwmagic/diagnosis/` by `make docs`; a test keeps it current.
"""

_PARTS = (
    ("What ends a run", KNOWN),
    ("What keeps a run from making progress", STALLS),
    ("What goes wrong without ending a run", REMARKS),
)

_AT = "main.py:7 in load"
_PEER = "worker:0"
_ADDRESS = "localhost:20001"
_SINGLE = (Position("worker:1", Whereabouts.IN_USER_CODE, _AT),)
_SEVERAL = (Position("worker:0", Whereabouts.IN_FRAMEWORK, "main.py:9 in train"), *_SINGLE)
_POSITIONS = {Symptom.KEEPS_OTHERS_WAITING: _SINGLE, Symptom.DIFFERENT_PLACES: _SEVERAL}
_GAP = re.compile(r"\{\w+\}")
_ERRORS = {Symptom.LACKS_NAME: ": NameError: name 'images' is not defined"}
"""How a symptom's sentence continues with the error that shows it."""


def _observed(finding: Finding) -> str:
    """Say a symptom of an example."""
    positions = _POSITIONS.get(finding.symptom, ())
    example = replace(
        finding,
        task="" if positions else "worker:1",
        peer=_PEER,
        at=_AT,
        address=_ADDRESS,
        code=1 if finding.code is None else finding.code,
        seconds=40.0,
        host="localhost",
        detail=os.strerror(finding.errno) if finding.errno else None,
        positions=positions,
    )
    return f"- *{sentence(example)}{_ERRORS.get(finding.symptom, '')}*"


def _quoted(sign: str) -> str:
    for classes in CLASSES:
        sign = sign.replace(classes, "...")
    return f"- `{sign}`" if "`" not in sign else f"- `` {sign} ``"


def _filled(text: str) -> str:
    """Fill the gaps of a text with what the example of `_observed` has."""
    return _GAP.sub("`...`", text.replace("{peer}", _PEER).replace("{address}", _ADDRESS))


def _entry(known: KnownFailure) -> str:
    signs = "\n".join([*map(_observed, known.symptoms), *map(_quoted, known.signs)])
    meaning, remedy = map(_filled, (known.meaning, known.remedy))
    return f"### {known.title}\n\n{signs}\n\n{meaning}\n\nTry: {remedy}. [More]({known.link})\n"


def _part(title: str, table: Iterable[KnownFailure]) -> str:
    return "\n".join([f"## {title}\n", *map(_entry, table)])


def page() -> str:
    """Return the page, in Markdown."""
    return "\n".join([_HEAD, *(_part(title, table) for title, table in _PARTS)])


def _seen(known: KnownFailure, title: str) -> Iterator[str]:
    """Return the rows of a failure in the index, each with a link to its entry."""
    link = f"[{known.title}](failures.md#{title})"
    for sign in (*map(_observed, known.symptoms), *map(_quoted, known.signs)):
        shown = sign.removeprefix("- ").replace("|", "\\|")
        yield f"| {shown} | {link} |"


def _slugs(titles: Iterable[str]) -> Iterator[str]:
    """Return what links to headings end with; of equal ones the later are numbered."""
    counts: Counter[str] = Counter()
    for title in titles:
        slug = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        yield f"{slug}-{counts[slug]}" if counts[slug] else slug
        counts[slug] += 1


def index() -> str:
    """Return the page that leads from what a user sees to the known failures, in Markdown."""
    slugs = _slugs(known.title for _, table in _PARTS for known in table)
    parts = [_INDEX]
    for title, table in _PARTS:
        rows = [row for known in table for row in _seen(known, next(slugs))]
        rows.sort(key=lambda row: row.strip("|`* '").casefold())
        parts.append("\n".join([f"## {title}\n", "| you see | it is |\n|---|---|", *rows, ""]))
    return "\n".join(parts)
