"""``python -m mwmagic.diagnosis`` prints the page of known failures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .table import KNOWN, NOTICES, STALLS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .table import Known

__all__ = ["page"]

_HEAD = """\
# Known failures

Generated from the table in `mwmagic/diagnosis/table.py` by `make docs`; a test keeps it current.
When a run fails, stalls or ends otherwise than meant, mwmagic looks for the signs below in the
exception, in the end of the log and in the state of the processes, and says what they mean. Each
sign was provoked with the installed TensorFlow; `...` stands for what varies.
"""

_PARTS = (
    ("What ends a run", KNOWN),
    ("What keeps a run from going on", STALLS),
    ("What goes on, but not as meant", NOTICES),
)


def _entry(known: Known) -> str:
    signs = "\n".join(
        f"- `{sign}`" if "`" not in sign else f"- `` {sign} ``" for sign in known.signs
    )
    meaning, remedy = (text.replace("{0}", "`...`") for text in (known.meaning, known.remedy))
    return f"### {known.title}\n\n{signs}\n\n{meaning}\n\nTry: {remedy}. [More]({known.link})\n"


def _part(title: str, table: Iterable[Known]) -> str:
    return "\n".join([f"## {title}\n", *map(_entry, table)])


def page() -> str:
    """Return the page, in Markdown."""
    return "\n".join([_HEAD, *(_part(title, table) for title, table in _PARTS)])


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - the page is its output
