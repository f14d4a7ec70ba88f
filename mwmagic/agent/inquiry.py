"""Child processes whose output answers a command, such as for the versions of packages."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from .system import spawn, waiting_in
from .wire import as_text, parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .family import Family
    from .system import EventWriter, Loop

PROGRAM = os.path.abspath(sys.argv[0])  # noqa: PTH100 - pathlib is slow to import
"""The agent's own program, which answers some inquiries."""

ANSWER_BYTES = 4 << 20
"""The most that is read of an answer."""


class Inquiry:
    """A child process that is asked something."""

    def __init__(
        self, argv: list[str], env: dict[str, str], seconds: float, question: bytes = b""
    ) -> None:
        self.name = argv[0].rpartition("/")[2]
        self.seconds = seconds
        self.output = os.memfd_create(self.name)
        stdin = os.memfd_create(self.name)
        try:
            os.pwrite(stdin, question, 0)
            self.pid, self.reply = spawn(argv, env, "/", (stdin, self.output))
        except OSError:
            os.close(self.output)
            raise
        finally:
            os.close(stdin)
        self.pidfd = os.pidfd_open(self.pid)
        self.deadline = time.monotonic() + seconds
        self.late = False

    def expire(self) -> None:
        """Kill it."""
        self.late = True
        self.deadline = float("inf")
        signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    @property
    def answer(self) -> str:
        """What it printed."""
        return as_text(os.pread(self.output, ANSWER_BYTES, 0)).strip()

    def trouble(self, status: int) -> str | None:
        """Return why there is no answer, if there is none."""
        if self.late:
            return f"{self.name} did not answer within {self.seconds:g} seconds"
        failed = waiting_in(self.reply)
        if failed:
            return as_text(failed)
        if status:
            return self.answer or f"{self.name} exits with {os.waitstatus_to_exitcode(status)}"
        return None

    def close(self) -> None:
        """Close all that is open."""
        for descriptor in (self.output, self.reply, self.pidfd):
            os.close(descriptor)


class Inquiries:
    """The inquiries that wait for an answer."""

    def __init__(self, loop: Loop, family: Family) -> None:
        self.loop = loop
        self.family = family
        self.open: set[Inquiry] = set()

    def make(self, inquiry: Inquiry, then: Callable[[str, str | None], None]) -> None:
        """Wait for an answer: `then` gets what was printed, and why there is no answer."""
        self.open.add(inquiry)
        self.family.helpers.add(inquiry.pid)
        self.loop.watch(inquiry.pidfd, lambda: self.answered(inquiry, then))

    def answered(self, inquiry: Inquiry, then: Callable[[str, str | None], None]) -> None:
        """Pass on an answer."""
        pid, status = os.waitpid(inquiry.pid, os.WNOHANG)
        if not pid:
            return
        then(inquiry.answer, inquiry.trouble(status))
        self.loop.unwatch(inquiry.pidfd)
        inquiry.close()
        self.open.discard(inquiry)
        self.family.helpers.discard(inquiry.pid)

    def expire(self, now: float) -> None:
        """Kill what takes too long."""
        for inquiry in self.open:
            if now >= inquiry.deadline:
                inquiry.expire()

    def moments(self) -> list[float]:
        """Return when the inquiries expire."""
        return [inquiry.deadline for inquiry in self.open]


FIND_SECONDS = 20.0
"""How long it may take: the packages may be on a disk across a network."""


class Packages:
    """The `find` commands, each answered by a Python with the workers' environment."""

    def __init__(self, inquiries: Inquiries, events: EventWriter) -> None:
        self.inquiries = inquiries
        self.events = events

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
            self.events.emit("found", id=number, versions=versions)
        else:
            self.events.emit("refused", command="find", id=number, reason=None, error=why)


def is_there(name: str) -> bool:
    """Return whether a package can be imported; what an uninstallation leaves behind cannot."""
    from importlib.util import find_spec

    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def version_of(name: str) -> str | None:
    """Return the version of a package, no text if it has none, and None if it is not there."""
    from importlib.metadata import PackageNotFoundError, packages_distributions, version

    if not is_there(name):
        return None
    try:
        return version(name) or ""
    except PackageNotFoundError:  # tf-nightly and others bring the same package
        others = packages_distributions().get(name, ())
        return next((version(other) or "" for other in others), "")


def print_versions(names: Iterable[str]) -> None:
    """Print the versions as a line of JSON, in the workers' Python; it imports no package."""
    from .fork_server.zygote import hide_folder

    hide_folder()
    sys.stdout.write(json.dumps({name: version_of(name) for name in names}))
