"""Follow a worker through the start-up of a multi-worker job, by what its framework logs.

TensorFlow tells these at ``TF_CPP_MIN_LOG_LEVEL=0`` and needs nothing else. Only the
leader (``chief:0``, else ``worker:0``) hears who is missing and when all have met; the
others tell no more than that they reached the leader.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .noise import NATIVE
from .progress import Progress

_SERVER = re.compile(r"Started server with target|Jax service listening on")
_MISSING = re.compile(r"Waiting for (\d{1,9})/\d+ tasks to connect")
_NAMES = re.compile(r"Example stragglers:")
_TASK = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)\b")
_ARRIVED = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+) has connected to coordination service")
_JOINED = re.compile(r"Coordination agent has successfully connected")
_MET = re.compile(
    r"(?:\[\d+\] )?Barrier\((?:WaitForAllTasks|\[Init\]Wait_for_all_tasks)[^)]*\) has passed "
    r"with status: OK|Connected to distributed JAX controller"
)
_GLOO = re.compile(
    r"\[Gloo\] Rank \d+ is connected to (\d+) peer ranks\. Expected number of connected "
    r"peer ranks is : (\d+)"
)


@dataclass(frozen=True)
class Phase:
    """Which milestones of a start-up one worker has passed.

    Parameters
    ----------
    server : bool
        It listens for the others.
    joined : bool
        It reached the leader's coordination service.
    missing : int
        How many tasks the leader waits for; 0 for all others.
    waiting : tuple of str
        The tasks it waits for, as ``worker:1``; TensorFlow names a few of many.
    connected : bool
        All tasks have met. A TensorFlow worker that is not the leader logs nothing
        of it, so for such a one this comes with its first progress.
    training : bool
        It printed its first progress.
    """

    server: bool = False
    joined: bool = False
    missing: int = 0
    waiting: tuple[str, ...] = ()
    connected: bool = False
    training: bool = False

    @property
    def word(self) -> str:
        """The furthest milestone: starting, server, waiting, connected or training."""
        if self.training:
            return "training"
        if self.connected:
            return "connected"
        if self.missing or self.waiting:
            return "waiting"
        return "server" if self.server else "starting"


class Phases:
    """Read the lines of one worker, in their order."""

    def __init__(self) -> None:
        self.phase = Phase()
        self._listing = False  # the lines with the stragglers' names
        self._progress = Progress()

    def feed(self, line: str) -> Phase:
        """Take the next finished line, without ANSI codes; return where the worker stands."""
        if not self.phase.training:
            self._read(line)
            if self._progress.line(line) is not None:
                self.train()
        return self.phase

    def train(self) -> Phase:
        """Note that progress was seen on a line that has not ended yet."""
        self._connect(training=True)
        return self.phase

    def _read(self, line: str) -> None:
        named = _TASK.fullmatch(line) if self._listing else None
        if named is not None:
            waiting = dict.fromkeys([*self.phase.waiting, f"{named[1]}:{named[2]}"])
            self.phase = replace(self.phase, waiting=tuple(waiting))
        elif (gloo := _GLOO.search(line)) and gloo[1] == gloo[2]:
            self._connect()
        elif native := NATIVE.match(line):
            self._notice(line, native.end())

    def _notice(self, line: str, start: int) -> None:
        self._listing = _NAMES.match(line, start) is not None
        missing = _MISSING.match(line, start)
        if _MET.match(line, start) or (missing and missing[1] == "0"):
            self._connect()
        elif missing:
            self.phase = replace(self.phase, missing=int(missing[1]), waiting=())
        elif arrived := _ARRIVED.match(line, start):
            task = f"{arrived[1]}:{arrived[2]}"
            left = tuple(name for name in self.phase.waiting if name != task)
            self.phase = replace(self.phase, waiting=left)
        elif _SERVER.match(line, start):
            self.phase = replace(self.phase, server=True)
        elif _JOINED.match(line, start):
            self.phase = replace(self.phase, joined=True)

    def _connect(self, *, training: bool = False) -> None:
        self.phase = replace(
            self.phase, joined=True, missing=0, waiting=(), connected=True, training=training
        )
