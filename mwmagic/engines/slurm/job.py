"""A job of Slurm: what Slurm says about it and its nodes, and how it is asked."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from mwmagic.engines.link import within

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["Job", "JobNode", "JobStatus", "Queries", "placed_tasks"]

COMMAND_SECONDS = 10.0
"""Time limit for a scheduler's command."""


class Queries:
    """Runs a scheduler's commands; `pids` are the processes of those that run."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = dict(env)
        self.pids: set[int] = set()

    async def answer(self, *command: str) -> str:
        """Return what a command prints; nothing if it fails, is missing or takes too long."""
        starting = asyncio.create_task(self._started(command))
        try:
            # Cancelling a start would lose track of the process.
            process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await self._end(await starting)
            raise
        if process is None:
            return ""
        try:
            out, _ = await within(COMMAND_SECONDS, process.communicate())
        except asyncio.TimeoutError:
            return ""
        finally:
            await self._end(process)
        return "" if process.returncode else out.decode(errors="replace")

    async def _started(self, command: Sequence[str]) -> asyncio.subprocess.Process | None:
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=null, stdout=pipe, stderr=null, env=self.env, start_new_session=True
            )
        except OSError:
            return None
        self.pids.add(process.pid)
        return process

    async def _end(self, process: asyncio.subprocess.Process | None) -> None:
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            self.pids.discard(process.pid)


EXPLAIN_SECONDS = 0.3
"""How long a job may take to end before its cause of death is reported without its last word."""

EXPLAIN_PAUSE_SECONDS = 0.03

SHORT_SECONDS = 120
"""The time left below which it is shown in seconds."""

FORESEEN = timedelta(days=100)
"""Slurm takes a job without a time limit to last a year: a start later than this is unknown."""

_COMPLETING = "COMPLETING"
"""The state of a job whose processes are ending, which hides why it ends."""

_ENDINGS = {"TimeLimit": "TIMEOUT", "NodeDown": "NODE_FAIL", "OutOfMemory": "OUT_OF_MEMORY"}
"""The states that will follow, by the reason that is shown meanwhile."""

_CANCELLED = re.compile(r"\bCANCELLED AT \S+(?: DUE TO ([A-Z ]+))?")
_CAUSES = {
    "TIME LIMIT": "TIMEOUT",
    "PREEMPTION": "PREEMPTED",
    "NODE FAILURE": "NODE_FAIL",
    "JOB REQUEUE": "REQUEUED",
}
"""What a step that is ended says of it, and the state of its job that will follow."""

_MEMORY = re.compile(r"exceeded memory limit(?: \([^()]*\))?|oom[-_]kill")
"""What is reported of a step that used more memory than it has."""

_SPEAKERS = ("srun: ", "slurmstepd")
"""How a line begins that Slurm itself says of a step."""

_QUEUED = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED"})
_ALIVE = _QUEUED | {"RUNNING"}
_NOTHING = frozenset({"", "None", "none", "N/A", "(null)", "Unknown"})
_TROUBLE = ("down", "fail", "error", "unknown", "power", "reboot")
_LAYOUT = re.compile(r"\bNodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S+)")
_GPUS = re.compile(r"\bgpu(?::[\w.-]+?)?:\d+(?![\w.:-])")
_GROUP = re.compile(r"(\d{1,9})(?:\(x(\d{1,9})\))?")
_DURATION = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d\d)")


@dataclass(frozen=True)
class JobStatus:
    """A job, in the words of ``squeue``: such as ``PENDING``, and its reason such as ``Resources``.

    `start` is when it started or is expected to start, if that is known; `left` is the time until
    its limit; `nodes` is such as ``n[1-3]``.
    """

    state: str
    reason: str = ""
    start: str = ""
    left: str = ""
    nodes: str = ""

    @property
    def words(self) -> str:
        """The state and the reason for it, such as ``NODE_FAIL (NodeDown)``."""
        state = _ENDINGS.get(self.reason, self.state) if self.ending else self.state
        return f"{state} ({self.reason})" if self.reason else state

    @property
    def ending(self) -> bool:
        """Whether its processes are ending, so that its last state is not known yet."""
        return self.state == _COMPLETING

    @property
    def running(self) -> bool:
        """Whether its nodes can be used."""
        return self.state == "RUNNING"

    @property
    def queued(self) -> bool:
        """Whether it waits to run, perhaps again."""
        return self.state in _QUEUED

    @property
    def over(self) -> bool:
        """Whether it was ended, stopped or suspended."""
        return self.state not in _ALIVE

    @property
    def seconds(self) -> int | None:
        """The seconds until its limit; None without a limit."""
        match = _DURATION.fullmatch(self.left)
        if match is None:
            return None
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return seconds + 60 * (minutes + 60 * (hours + 24 * days))

    @property
    def remaining(self) -> str:
        """The time until its limit in words, such as ``59 min``; empty without a limit."""
        if self.seconds is None:
            return ""
        if self.seconds < SHORT_SECONDS:
            return f"{self.seconds} s"
        minutes = self.seconds // 60
        return f"{minutes} min" if minutes < 2 * 60 else f"{minutes // 60} h"

    def expected(self, now: datetime) -> str:
        """Return the expected start in words, such as ``14:20``; empty if it is unknown."""
        try:
            start = datetime.strptime(self.start, "%Y-%m-%dT%H:%M:%S")  # noqa: DTZ007 - local time, as Slurm prints it
        except ValueError:
            return ""
        if start - now > FORESEEN:
            return ""
        return f"{start:%H:%M}" if start.date() == now.date() else f"{start:%d %b %H:%M}"


@dataclass(frozen=True)
class JobNode:
    """A node, in the words of ``sinfo``, and the address at which the other nodes reach it.

    `state` is such as ``allocated`` or ``down*``, where the star means that it does not respond;
    `reason` is why an administrator or Slurm took it out of service.
    """

    name: str
    address: str
    state: str = ""
    reason: str = ""

    @property
    def trouble(self) -> str | None:
        """What is wrong with it, such as ``node n2 is DOWN* (Not responding)``."""
        if not (self.state.startswith(_TROUBLE) or "*" in self.state):
            return None
        reason = f" ({self.reason})" if self.reason else ""
        return f"node {self.name} is {self.state.upper()}{reason}"


def placed_tasks(text: str, count: int) -> list[int]:
    """Return how many tasks Slurm places on each of `count` nodes, given such as ``2(x3),1``.

    Nothing is returned if the text does not say that.
    """
    placed: list[int] = []
    for group in text.split(","):
        match = _GROUP.fullmatch(group)
        times = int(match[2] or 1) if match else 0
        if match is None or len(placed) + times > count:
            return []
        placed += [int(match[1])] * times
    return placed if len(placed) == count else []


def _field(text: str) -> str:
    """Return a field's text, on one line; empty where Slurm has nothing to say."""
    text = "".join(char if char.isprintable() else " " for char in text).strip()
    return "" if text in _NOTHING else text


def _last_words(text: str) -> str:
    """Return a job's last state, according to what its steps say when they are ended."""
    found = _CANCELLED.findall(text)
    return _CAUSES.get(found[-1].strip(), "CANCELLED") if found else ""


class Job:
    """A job, whose facts are asked for each time."""

    def __init__(self, number: str, commands: Queries) -> None:
        self.number = number
        self._ask = commands.answer

    async def status(self) -> JobStatus | None:
        """Return its status; None if Slurm does not answer or has forgotten it."""
        form = "--format=%A|%T|%r|%S|%L|%N"
        jobs = f"--jobs={self.number}"
        text = await self._ask("squeue", "--noheader", "--states=all", jobs, form)
        for line in text.splitlines():
            number, *fields = (_field(field) for field in line.split("|"))
            if number == self.number and len(fields) == 5:  # noqa: PLR2004 - the others of the format
                return JobStatus(*fields)
        return None

    async def nodes(self, names: str) -> dict[str, JobNode]:
        """Return nodes by name; those that Slurm does not know are left out."""
        form = "--format=%N|%o|%T|%E"
        text = await self._ask("sinfo", "--noheader", "--all", "--Node", f"--nodes={names}", form)
        found = {}
        for line in text.splitlines():
            fields = [_field(field) for field in line.split("|", 3)]
            if len(fields) == 4 and fields[0]:  # noqa: PLR2004 - those of the format
                name, address, *state = fields
                found[name] = JobNode(name, address or name, *state)
        return found

    async def names(self, nodes: str) -> list[str]:
        """Return the names in a list such as ``n[1-3]``, in the order in which Slurm ranks them."""
        return (await self._ask("scontrol", "show", "hostnames", nodes)).split()

    async def gpus(self) -> dict[str, str]:
        """Return the job's GPUs on each node, such as ``gpu:a100:2``, as ``--gres`` takes them."""
        text = await self._ask("scontrol", "--details", "--oneliner", "show", "job", self.number)
        found: dict[str, str] = {}
        for nodes, devices in _LAYOUT.findall(text):
            if asked := ",".join(_GPUS.findall(devices)):
                found |= dict.fromkeys(await self.names(nodes), asked)
        return found

    async def waits(self) -> str:
        """Return in words what a job that is not yet running waits for; empty if unknown."""
        status = await self.status()
        if status is None or status.running:
            return ""
        if status.state != "PENDING":
            return f"Slurm job {self.number}: {status.words}"
        expected = status.expected(datetime.now())  # noqa: DTZ005 - local time, as Slurm prints it
        reason = f" ({status.reason})" if status.reason else ""
        starts = f", starts about {expected}" if expected else ""
        return f"Slurm job {self.number} waits{reason}{starts}"

    async def why(self, node: str, said: Callable[[], str] = str) -> str | None:
        """Return in words why a node was lost, if Slurm has ended the job or misses the node."""
        deadline = time.monotonic() + EXPLAIN_SECONDS
        words = None
        with suppress(asyncio.TimeoutError):
            words = await within(EXPLAIN_SECONDS, self._trouble(node))
        while words and _COMPLETING in words and time.monotonic() < deadline:
            if state := _last_words(said()):
                return words.replace(_COMPLETING, state)
            await asyncio.sleep(EXPLAIN_PAUSE_SECONDS)
            words = await self._trouble(node)
        return words

    def step_words(self, text: str) -> str | None:
        """Return in words why a step ended, given the last lines that it printed, if they say."""
        if not text.startswith(_SPEAKERS):
            return None
        found = _MEMORY.search(text)
        return f"Slurm job {self.number}: OUT_OF_MEMORY ({found[0]})" if found else text

    async def _trouble(self, node: str) -> str | None:
        status, nodes = await asyncio.gather(self.status(), self.nodes(node))
        if status is not None and status.over:
            return f"Slurm job {self.number}: {status.words}"
        if status is not None and status.queued:  # it had this node
            return f"Slurm job {self.number}: REQUEUED"
        if node in nodes and nodes[node].trouble:
            return nodes[node].trouble
        left = await self.names(status.nodes) if status is not None and status.running else []
        if not left or node in left:
            return None
        reason = f" ({nodes[node].reason})" if node in nodes and nodes[node].reason else ""
        return f"Slurm took node {node} from job {self.number}{reason}"
