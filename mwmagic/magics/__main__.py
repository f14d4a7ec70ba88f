"""``python -m mwmagic.magics`` prints the reference page, from the magics' own parsers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .extension import CONFIGURABLE
from .magic import NAMES, find

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

__all__ = ["arguments", "page"]

_HEAD = """# Reference

Generated from the magics' own help by `make docs`; a test keeps it current.
Every magic prints its help with `--help`, completes its arguments, and treats what follows `#` as a
comment. `{name}` and `$name` in its line are replaced by the notebook's variables; the body of a
`%%` cell stays as it is.
"""


def _names(action: argparse.Action) -> str:
    value = action.metavar or (
        f"{{{','.join(map(str, action.choices))}}}" if action.choices else ""
    )
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    flags = ", ".join(action.option_strings)
    takes = "" if action.nargs == 0 else f" {value or action.dest.upper()}"
    return f"`{flags}{takes}`".replace("|", "\\|")


def arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Return the lines of a table of a parser's arguments."""
    yield "| argument | meaning |\n|---|---|"
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of them
        yield f"| {_names(action)} | {(action.help or '').replace('%%', '%')} |"


def _magic(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"## `{parser.prog}`\n"
    yield f"{parser.description}\n"
    yield from arguments(parser)
    yield ""


def _defaults() -> Iterator[str]:
    yield "## Defaults\n"
    yield "`%config MWMagic.restarts = 3` changes a default for the session.\n"
    yield "| option | default | meaning |\n|---|---|---|"
    for name, option in sorted(CONFIGURABLE.items()):
        yield f"| `MWMagic.{name}` | `{option.default!r}` | {option.help} |"


def page() -> str:
    """Return the page, in Markdown."""
    magics = [line for one in NAMES for line in _magic(find(one).parser)]
    return "\n".join([_HEAD, *magics, *_defaults()]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
