"""The lines that were typed at a prompt, which its arrow keys bring back, also the next time."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["editing"]

LINES = 2_000
"""The most lines that are kept."""


def _file() -> Path:
    """Return where the lines are kept: the place that the XDG specification has for histories."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "mwmagic" / "live_history"


@contextmanager
def editing(*, typing: bool) -> Iterator[None]:
    """Have `input` edit lines with their history, where they are typed at a terminal."""
    try:
        import readline
    except ImportError:  # a Python without it
        typing = False
    if not typing:
        yield
        return
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
