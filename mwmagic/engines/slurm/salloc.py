"""An allocation of Slurm that lasts no longer than the process that asked for it."""

from __future__ import annotations

import asyncio
import re
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from mwmagic.agent.system import PR_SET_PDEATHSIG, prctl
from mwmagic.engines.link import within
from mwmagic.errors import ClusterError

from .job import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .job import Queries

__all__ = ["Grant", "Salloc"]

QUEUE_POLL_SECONDS = 3.0
"""How often Slurm is asked what a job waits for."""

RETURN_SECONDS = 5.0
"""How long salloc may take to give the allocation back before it is killed."""

PRINTED_CHARACTERS = 8192
"""How much is kept of what salloc says."""

_PIECE_BYTES = 4096

_MARK = b"mwmagic "

T = TypeVar("T")

_PROGRAM = (
    'printf "mwmagic %s %s %s\\n" '
    '"$SLURM_JOB_ID" "$SLURM_JOB_NODELIST" "$SLURM_TASKS_PER_NODE"; '
    "exec >/dev/null; read -r end || sleep 2"
)
"""Runs as long as the allocation: until a line comes, or until its standard input, which is
salloc's, ends. It then waits for the signal that salloc gets: if it exited at the same
time, salloc of Slurm 22.05 would wait for it forever, without a pause."""

_END = b"end\n"
_STRAY = "received spurious message"

_NUMBER = re.compile(r"^salloc: (?:(?:Pending|Granted) job allocation|job) (\d+)\b", re.MULTILINE)


def _end_with_parent() -> None:
    """Have salloc withdraw even a request that waits when the process that made it is killed."""
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _opened(pipe: T | None) -> T:
    """Return a pipe of a process that was started with it."""
    if pipe is None:
        raise ValueError("the process was started without pipes")
    return pipe


async def _ended(process: asyncio.subprocess.Process) -> bool:
    """Return whether a process ends soon, as do those that hold its pipes."""
    try:
        await within(RETURN_SECONDS, process.wait())
    except asyncio.TimeoutError:
        return False
    return True


@dataclass(frozen=True)
class Grant:
    """What was allocated.

    `nodes` is such as ``n[1-3]``; `tasks` is how many tasks Slurm places on each, such as
    ``2(x3)``.
    """

    job: Job
    nodes: str
    tasks: str


class Salloc:
    """A request for an allocation, and then the allocation."""

    def __init__(self, commands: Queries) -> None:
        self._commands = commands
        self._starting: asyncio.Task[asyncio.subprocess.Process] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._job: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._printed = ""
        self._reader: asyncio.Task[None] | None = None
        self._granted = False

    @property
    def pids(self) -> set[int]:
        """The id of the process, if it runs."""
        return {self._process.pid} if self._process is not None and self.alive else set()

    @property
    def alive(self) -> bool:
        """Whether salloc runs: without it nothing would give the allocation back."""
        return self._process is not None and self._process.returncode is None

    async def open(self, arguments: Sequence[str], notify: Callable[[str], None]) -> Grant:
        """Ask for an allocation and wait until it is granted."""
        # Cancelling a start kills the process, which may have its job by then: `close` ends it.
        self._starting = asyncio.create_task(self._started(arguments))
        self._process = process = await asyncio.shield(self._starting)
        watch = asyncio.create_task(self._watch(notify))
        try:
            grant = await self._grant(_opened(process.stdout))
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        if grant is None:
            if self._reader is not None:
                await self._reader
            raise ClusterError(self.words)
        self._granted = True
        return grant

    async def _started(self, arguments: Sequence[str]) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *("salloc", *arguments, "sh", "-c", _PROGRAM),
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=self._commands.env,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        except FileNotFoundError:
            raise ClusterError(
                "there is no salloc on this machine: the engine slurm asks Slurm for machines "
                "with it; run this on a login node of the Slurm cluster, or inside a job"
            ) from None
        except OSError as error:
            raise ClusterError(f"salloc cannot be started: {error}") from error
        self._reader = asyncio.create_task(self._read(_opened(process.stderr)))
        return process

    async def _read(self, errors: asyncio.StreamReader) -> None:
        """Keep what salloc says, and learn the job's number from it as early as possible."""
        while piece := await errors.read(_PIECE_BYTES):
            self._printed = (self._printed + piece.decode(errors="replace"))[-PRINTED_CHARACTERS:]
            match = _NUMBER.search(self._printed)
            if match and not self._job.done():
                self._job.set_result(Job(match[1], self._commands))

    async def _watch(self, notify: Callable[[str], None]) -> None:
        """Pass on what Slurm says while the job waits."""
        job, said = await asyncio.shield(self._job), ""
        while True:
            words = await job.waits()
            if words not in ("", said):
                notify(words)
                said = words
            await asyncio.sleep(QUEUE_POLL_SECONDS)

    async def _grant(self, output: asyncio.StreamReader) -> Grant | None:
        """Wait for the allocation; return None if salloc ends without one."""
        while line := await output.readline():
            fields = line.decode(errors="replace").split()
            if line.startswith(_MARK) and len(fields) == 4:  # noqa: PLR2004 - those of the program
                job = Job(fields[1], self._commands)
                if not self._job.done():
                    self._job.set_result(job)
                return Grant(job, *fields[2:])
        return None

    @property
    def disturbed(self) -> bool:
        """Whether salloc gave up because of a message that was not meant for it.

        Slurm may give it the port of an srun that was killed, whose step still reports there.
        """
        return _STRAY in self._printed

    @property
    def words(self) -> str:
        """What salloc says, in one line: its errors, if it has any."""
        printable = "".join(c if c.isprintable() or c == "\n" else " " for c in self._printed)
        lines = [line.removeprefix("salloc: ").strip() for line in printable.splitlines()]
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        return "; ".join(errors or [line for line in lines if line]) or "salloc says nothing"

    async def close(self) -> None:
        """Give the allocation back, or withdraw the request for it."""
        if self._starting is None:
            return
        try:
            self._process = process = await asyncio.shield(self._starting)
        except ClusterError:
            return
        stdin = _opened(process.stdin)
        if self._granted:
            stdin.write(_END)
        else:
            self._signal(signal.SIGTERM)
        stdin.close()
        if not await _ended(process):
            self._signal(signal.SIGKILL)
            await _ended(process)
        await self._cancel()

    async def _cancel(self) -> None:
        """Cancel the job, in case salloc could not give it back; it may be gone already."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        if self._job.done():
            await self._commands.answer("scancel", "--quiet", self._job.result().number)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)
