"""Editing of what is typed at a prompt: its history, also the next time, and completion."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["editing"]

INDENT = "    "
"""What Tab adds where there is nothing to complete."""

LINES = 2_000
"""The most lines that are kept."""


def _file() -> Path:
    """Return where the lines are kept: the place that the XDG specification has for histories."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "mwmagic" / "live_history"


def _bind(readline: Any, complete: Callable[[str], list[str]]) -> None:  # noqa: ANN401 - a module
    """Have Tab complete names, and indent where there are none."""
    found: list[str] = []

    def next_one(text: str, state: int) -> str | None:
        if state == 0:
            found[:] = complete(text) if text else [INDENT]
        return found[state] if state < len(found) else None

    readline.set_completer(next_one)
    readline.set_completer_delims(" \t\n`~!@#$%^&*()-=+[{]}\\|;:'\",<>/?")
    readline.parse_and_bind("tab: complete")


@contextmanager
def editing(complete: Callable[[str], list[str]], *, typing: bool) -> Iterator[None]:
    """Have `input` edit lines, where they are typed at a terminal.

    Parameters
    ----------
    complete : callable
        Returns what completes names with dots between them.
    typing : bool
        Whether lines are typed at a terminal.
    """
    try:
        import readline
    except ImportError:  # a Python without it
        typing = False
    if not typing:
        yield
        return
    _bind(readline, complete)
    file = _file()
    with suppress(OSError):  # the first time, or it cannot be read
        readline.read_history_file(file)
    try:
        yield
    finally:
        with suppress(OSError):  # the home directory may be read-only
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            readline.set_history_length(LINES)
            file.touch(mode=0o600)
            readline.write_history_file(file)
