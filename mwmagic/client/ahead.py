"""The process of a supervisor, which may start before it is known which cluster it is for.

It imports for longer than anything else that a declaration waits for, and meanwhile this process
has as much to import itself.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Newborn", "newborn", "started_ahead"]

_PROGRAM = """\
import os, sys
library, own = os.path.dirname(os.__file__), sys.argv.pop()
def rank(path):
    return 0 if path.startswith(library) and "site-packages" not in path else 1 + (path != own)
sys.path = sorted([*sys.path, own], key=rank)
from mwmagic.supervisor.__main__ import main
main()
"""
"""Starts a supervisor; its last argument is where this package is.

What PYTHONPATH holds comes after Python's own modules, whose names it may have, and after this
package, of which it may hold another version.
"""


class Newborn:
    """A supervisor's process that waits for its input.

    Attributes
    ----------
    process : subprocess.Popen
        The process, with pipes as standard input and output.
    errors : file
        What it printed before it had a log.
    """

    def __init__(self) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(Path(__file__).parents[2])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            # Elsewhere a file of the user's, named like a standard module, would be imported.
            cwd="/",
            start_new_session=True,
        )

    def words(self) -> str:
        """Return what it printed before it had a log."""
        self.errors.seek(0)
        return self.errors.read().decode("utf-8", "replace")

    def close(self) -> None:
        """Kill it, since it is not needed."""
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            if file is not None:
                file.close()


_AHEAD: list[Newborn] = []


@contextmanager
def started_ahead() -> Iterator[None]:
    """Start the process that the next `newborn` returns; end it afterwards if nothing took it."""
    _AHEAD.append(Newborn())
    try:
        yield
    finally:
        while _AHEAD:
            _AHEAD.pop().close()


def newborn() -> Newborn:
    """Return a supervisor's process, new or started ahead."""
    return _AHEAD.pop() if _AHEAD else Newborn()
