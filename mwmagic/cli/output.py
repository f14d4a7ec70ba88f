"""What commands print: on streams that may be closed or full, safe for a terminal, or as JSON."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.logs.terminal import printable
from mwmagic.model.variables import ANNOUNCED

if TYPE_CHECKING:
    import argparse

__all__ = ["add_json", "prepare", "say", "show", "silence"]

STREAMS = ("stdin", "stdout", "stderr")


def prepare() -> None:
    """Have all three standard streams, also where the shell closed one, as with ``>&-``.

    Otherwise a pipe to another process could get the number of a closed one.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < len(STREAMS):
        pass
    os.close(descriptor)
    for name in STREAMS:
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("r" if name == "stdin" else "w"))  # noqa: SIM115 - it stays open
        elif isinstance(stream, TextIOWrapper) and name != "stdin":
            # A log may contain characters that the terminal's encoding lacks.
            stream.reconfigure(errors="replace")


def add_json(command: argparse.ArgumentParser) -> None:
    """Add the option of commands that also print for programs."""
    what = "Print JSON, whose fields docs/use/agents.md describes."
    command.add_argument("--json", action="store_true", help=what)


def show(text: str) -> None:
    """Print text, which may hold names and messages that are not ours."""
    print(printable(text))


def say(text: str) -> None:
    """Print a line about the command itself, beside its output."""
    with suppress(OSError):  # of a terminal that was closed, or a disk that is full
        print(f"{ANNOUNCED}{printable(text)}", file=sys.stderr)


def silence() -> None:
    """Drop what was not printed yet; the interpreter would fail to print it at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
