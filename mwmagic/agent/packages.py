"""The versions of packages that the workers' Python has; `versions` is the process that looks."""

from __future__ import annotations

import sys

from .inquiry import PROGRAM, Inquiry
from .wire import parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .inquiry import Inquiries
    from .outlet import Outlet

FIND_SECONDS = 20.0
"""How long it may take: the packages may be on a disk across a network."""


class Packages:
    """The `find` commands, each answered by a Python with the workers' environment."""

    def __init__(self, inquiries: Inquiries, outlet: Outlet) -> None:
        self.inquiries = inquiries
        self.outlet = outlet

    def find(self, number: int, names: list[str], env: dict[str, str]) -> None:
        """Start to answer."""
        argv = [sys.executable, PROGRAM, "versions", *names]
        inquiry = Inquiry(argv, env, FIND_SECONDS)
        self.inquiries.make(inquiry, lambda said, why: self.found(number, said, why))

    def found(self, number: int, said: str, why: str | None) -> None:
        """Report what was found: the last line, as start-up files of Python may print others."""
        try:
            versions = parsed(said.rpartition("\n")[2]) if why is None else {}
        except ValueError as error:
            why = str(error)
        if why is None:
            self.outlet.emit("found", id=number, versions=versions)
        else:
            self.outlet.emit("refused", command="find", id=number, reason=None, error=why)
