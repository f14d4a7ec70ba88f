"""One worker, as the agent knows it."""

from __future__ import annotations

import os
import signal
import time

from .family import Row
from .line import LinePair
from .system import contents
from .variables import LABEL, LINE, SCRATCH
from .wire import CHUNK_BYTES, parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .log import Log


class Process:
    """One worker, from the command that starts it until its exit is reported."""

    def __init__(self, command: dict[str, Any], log: Log, mark: int | None, badge: int) -> None:
        self.command = command
        self.name: str = command["process"]
        self.log = log
        self.line = LinePair()
        self.mark = mark
        self.badge = badge
        self.pid = 0
        self.pidfd = -1
        self.warm = False
        self.cold: dict[str, Any] | None = None
        self.scratch = scratch_of(command["env"])
        self.asked = time.monotonic()
        self.deadline: float | None = None
        self.doomed = False
        self.shot = False
        self.cpu = 0.0
        self.memory = 0
        self.state = ""
        self.exit: dict[str, Any] | None = None

    @property
    def dying(self) -> bool:
        """Whether none of its processes may stay alive."""
        return self.doomed or self.exit is not None

    @property
    def exited_at(self) -> float:
        """The time of its exit."""
        return float(self.exit["time"]) if self.exit else 0.0

    @property
    def environment(self) -> dict[str, str]:
        """The worker's whole environment, with the label that its descendants inherit."""
        own = {LABEL: f"{os.getpid()}/{self.name}", LINE: str(self.line.far.fileno())}
        own[SCRATCH] = self.scratch
        return {**self.command["env"], **own}

    def signal(self, number: int) -> None:
        """Send a signal to the main process, if it exists."""
        if self.pidfd >= 0 and not self.exit:
            signal.pidfd_send_signal(self.pidfd, number)
            self.shot |= number == signal.SIGKILL

    def end(self, deadline: float, *, gently: bool) -> None:
        """Ask it to end, once, and have it killed at the earliest of all given deadlines."""
        if self.deadline is None:
            stat = contents(f"/proc/{self.pid}/stat") if self.pid else None
            self.state = Row(self.pid, stat).state if stat else ""
            if gently:
                self.signal(signal.SIGTERM)
        self.deadline = min(deadline, self.deadline or deadline)

    def used(self, cpu: float, memory: int) -> None:
        """Keep the maximum that it was seen to use, including its descendants."""
        self.cpu, self.memory = max(self.cpu, cpu), max(self.memory, memory)

    def report(self) -> dict[str, Any] | None:
        """Return the JSON object in which the worker reported why it exits."""
        path = self.command["report"]
        data = contents(path, CHUNK_BYTES + 1) if path else None
        try:
            return parsed(data) if data and len(data) <= CHUNK_BYTES else None
        except ValueError:
            return None

    def launched(self) -> None:
        """Leave the worker's ends of its log and its line to it."""
        self.log.launched()
        self.line.far.close()

    def close(self) -> None:
        """Close all that is open, and remove its temporary files."""
        self.log.close()
        self.line.close()
        if os.path.lexists(self.scratch):
            import shutil  # which takes a while to import

            shutil.rmtree(self.scratch, ignore_errors=True)


def scratch_of(env: dict[str, str]) -> str:
    """Return a folder for a worker's temporary files, whose name nobody else can know before."""
    return f"{env.get('TMPDIR') or '/tmp'}/mwmagic-{os.urandom(8).hex()}"  # noqa: S108 - where Python has them
