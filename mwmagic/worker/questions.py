"""The questions of a program, which has no keyboard: they go to the notebook."""

from __future__ import annotations

import builtins
import os

__all__ = ["install"]


def install() -> None:
    """Have `input`, and with it Python's debugger, ask in the notebook; but not in children."""
    home, plain = os.getpid(), builtins.input

    def ask(prompt: object = "", /) -> str:
        if os.getpid() != home:
            return plain(prompt)
        from .live import ask

        return ask(prompt)

    ask.__name__ = "input"
    builtins.input = ask
