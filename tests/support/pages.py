"""The pages of the documentation that are generated: ``python tests/support/pages.py reference``.

The other one is ``failures``.
"""

import os
import re
import sys
from dataclasses import replace

from mwmagic.diagnosis.table import KNOWN, REMARKS, STALLS
from mwmagic.magics.extension import CONFIGURABLE
from mwmagic.magics.magic import NAMES, find
from mwmagic.model.findings import Position, Symptom, Whereabouts
from mwmagic.words.failure import sentence

_FAILURES_HEAD = """\
# Known failures

Generated from the table in `mwmagic/diagnosis/table.py` by `make docs`; a test keeps it current.
When a run fails, stalls or does something unintended, mwmagic looks for the signs below in the
exception and at the end of the log, where `...` stands for what varies. Signs in *italics* are what
mwmagic itself observes of the processes. Each sign was provoked with the installed TensorFlow.

A run fails a notebook where `%mw_wait` waits for it. Let every notebook that nbclient, nbconvert,
papermill or nbval executes end with `%mw_wait`: otherwise the run is stopped when the kernel ends,
and neither that nor a failure is an error.
"""

_PARTS = (
    ("What ends a run", KNOWN),
    ("What keeps a run from making progress", STALLS),
    ("What goes wrong without ending a run", REMARKS),
)

_AT = "main.py:7 in load"
_SINGLE = (Position("worker:1", Whereabouts.IN_USER_CODE, _AT),)
_SEVERAL = (Position("worker:0", Whereabouts.IN_FRAMEWORK, "main.py:9 in train"), *_SINGLE)
_POSITIONS = {Symptom.KEEPS_OTHERS_WAITING: _SINGLE, Symptom.DIFFERENT_PLACES: _SEVERAL}
_GAP = re.compile(r"\{\w+\}")


def _observed(finding):
    """Say a symptom of an example."""
    positions = _POSITIONS.get(finding.symptom, ())
    example = replace(
        finding,
        task="" if positions else "worker:1",
        peer="worker:0",
        at=_AT,
        address="localhost:20001",
        host="localhost",
        detail=os.strerror(finding.errno) if finding.errno else None,
        positions=positions,
    )
    return f"- *{sentence(example)}*"


def _quoted(sign):
    return f"- `{sign}`" if "`" not in sign else f"- `` {sign} ``"


def _entry(known):
    signs = "\n".join([*map(_observed, known.symptoms), *map(_quoted, known.signs)])
    meaning, remedy = (_GAP.sub("`...`", text) for text in (known.meaning, known.remedy))
    return f"### {known.title}\n\n{signs}\n\n{meaning}\n\nTry: {remedy}. [More]({known.link})\n"


def _part(title, table):
    return "\n".join([f"## {title}\n", *map(_entry, table)])


def failures():
    """Return the page of known failures, in Markdown."""
    return "\n".join([_FAILURES_HEAD, *(_part(title, table) for title, table in _PARTS)])


_REFERENCE_HEAD = """# Reference

Generated from the magics' own help by `make docs`; a test keeps it current.
Every magic prints its help with `--help`, completes its arguments, and treats what follows `#` as a
comment. `{name}` and `$name` in its line are replaced by the notebook's variables; the body of a
`%%` cell stays as it is.
"""


def _names(action):
    value = action.metavar or (
        f"{{{','.join(map(str, action.choices))}}}" if action.choices else ""
    )
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    flags = ", ".join(action.option_strings)
    takes = "" if action.nargs == 0 else f" {value or action.dest.upper()}"
    return f"`{flags}{takes}`".replace("|", "\\|")


def _magic(parser):
    yield f"## `{parser.prog}`\n"
    yield f"{parser.description}\n"
    yield "| argument | meaning |\n|---|---|"
    for action in parser._actions:
        yield f"| {_names(action)} | {(action.help or '').replace('%%', '%')} |"
    yield ""


def _defaults():
    yield "## Defaults\n"
    yield "`%config MWMagic.restarts = 3` changes a default for the session.\n"
    yield "| option | default | meaning |\n|---|---|---|"
    for name, option in sorted(CONFIGURABLE.items()):
        yield f"| `MWMagic.{name}` | `{option.default!r}` | {option.help} |"


def reference():
    """Return the page of the magics, from their own parsers, in Markdown."""
    magics = [line for one in NAMES for line in _magic(find(one).parser)]
    return "\n".join([_REFERENCE_HEAD, *magics, *_defaults()]) + "\n"


if __name__ == "__main__":
    sys.stdout.write({"reference": reference, "failures": failures}[sys.argv[1]]())
