"""What a fork that waits for an order does beforehand, so that its program then starts sooner.

The kernel copies a page when a fork first writes to it, and Python writes to every object that it
looks at. Without this, copying is half of what a worker does until its program runs.
"""

from __future__ import annotations

import faulthandler
import os
import sys

__all__ = ["rehearse"]

_PROGRAM = """
import os

class One:
    def __init__(self, *given, at=0):
        self.all = [one for one in given if one]
        assert at < len(self.all), f"{at} of {given}"

assert os.environ.get("PATH", "") is not None or One(1, at=0).all[0] + 1
"""
"""A little of everything that programs hold. It changes nothing."""


def rehearse() -> None:
    """Read, compile and run a program as a worker does, and enable what it enables."""
    faulthandler.enable()
    with open(os.devnull, "rb") as file:  # noqa: PTH123 - as a program is read
        file.read()
    code = compile(_PROGRAM, "rehearsal", "exec", dont_inherit=True)
    exec(code, vars(type(sys)("__main__")))  # noqa: S102 - it is ours
