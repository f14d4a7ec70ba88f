"""The Slurm engine: an allocation of its own, or the job that this is inside."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeVar

from mwmagic.agent.system import PR_SET_PDEATHSIG, prctl
from mwmagic.engines import Host, agent_command
from mwmagic.engines.link import Stderr, within
from mwmagic.errors import ClusterError
from mwmagic.model.machine import spread
from mwmagic.model.values import counted

from .job import Job, Queries, placed_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from mwmagic.model.cluster import Task
    from mwmagic.model.options import ClusterOptions

__all__ = ["SlurmEngine"]

ALLOCATION_TRIES = 3
"""How often salloc is started where messages that were not meant for it disturb it."""

_OWN = frozenset({"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT"})
"""Which Slurm to talk to; the others describe a job or change what commands print."""

_STEP = (
    *("--nodes=1", "--ntasks=1", "--overlap", "--quiet", "--kill-on-bad-exit=0"),
    *("--mpi=none", "--cpu-bind=none", "--export=ALL"),
)
"""A step of one process that has all of the job's CPUs and memory on its node."""

_NOISE = ("lacks support for cpu binding",)
"""What srun warns of although no binding was asked for: it is never why a step ends."""

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


def _environment() -> dict[str, str]:
    """Return this process's environment without what a job around it set."""
    others = ("SLURM_", "SQUEUE_", "SINFO_", "SCANCEL_")
    return {k: v for k, v in os.environ.items() if k in _OWN or not k.startswith(others)}


class SlurmEngine:
    """Nodes of a Slurm cluster; see `mwmagic.engines.Engine`.

    Inside a job it uses that job's nodes. Elsewhere it asks for an allocation, which
    ends with this process.
    """

    takes: ClassVar[frozenset[str]] = frozenset(
        {"nodes", "python", "scheduler", "interface", "files", "lease", "hold"}
    )

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        self._commands = Queries(_environment())
        self._salloc: Salloc | None = None
        self._job: Job | None = None
        self._ran = ""  # the number of the job that ran last
        self._hosts: list[Host] = []
        self._avoided: frozenset[str] = frozenset()
        self._bad: frozenset[str] = frozenset()

    @property
    def helpers(self) -> Collection[int]:
        """The ids of salloc and of Slurm's commands that run."""
        return self._commands.pids | (self._salloc.pids if self._salloc else set())

    # Allocating.

    async def allocate(
        self, tasks: Sequence[Task], *, avoid: Collection[str], notify: Callable[[str], None]
    ) -> Sequence[Host]:
        """Return nodes of the allocation if it has enough, else of a new one."""
        if self._job is not None and (hosts := await self._again(self._job, tasks, avoid)):
            return hosts
        await self.release()
        try:
            return await self._anew(tasks, notify)
        except ClusterError as error:
            await self.release()
            if not self._bad:
                raise
            notify(f"{error}; asking for all nodes")
            self._bad = frozenset()
        except BaseException:
            await self.release()
            raise
        return await self.allocate(tasks, avoid=avoid, notify=notify)

    async def _again(self, job: Job, tasks: Sequence[Task], avoid: Collection[str]) -> list[Host]:
        """Return nodes of the allocation that were not lost; nothing if there are too few."""
        status = await job.status()
        if status is not None and not status.running:
            self._avoided = frozenset(avoid)  # lost with the job, for which they are not to blame
            return []
        self._bad |= frozenset(avoid) - self._avoided
        self._avoided = frozenset(avoid)
        chosen = self._chosen(tasks, self._bad)
        if chosen or self._salloc is not None:
            return chosen if self._salloc is None or self._salloc.alive else []
        return await self._with_lost(job, tasks)

    async def _with_lost(self, job: Job, tasks: Sequence[Task]) -> list[Host]:
        """Return nodes of the job around this process, also lost ones that Slurm calls sound."""
        nodes = await job.nodes(",".join(self._bad))
        troubles = {name: node.trouble for name, node in nodes.items() if node.trouble}
        if chosen := self._chosen(tasks, frozenset(troubles)):
            return chosen
        raise ClusterError(
            f"Slurm job {job.number} has too few nodes left for {counted(len(tasks), 'task')}: "
            + "; ".join(map(str, troubles.values()))
        )

    def _chosen(self, tasks: Sequence[Task], avoid: Collection[str]) -> list[Host]:
        """Return as many nodes as were declared, or else all; nothing if they are too few."""
        hosts = [host for host in self._hosts if host.name not in avoid]
        count = self.options.nodes or len(hosts)
        enough = sum(host.slots or 0 for host in hosts[:count]) >= len(tasks)
        return hosts[:count] if enough and len(hosts) >= count else []

    async def _anew(self, tasks: Sequence[Task], notify: Callable[[str], None]) -> list[Host]:
        """Return nodes of the job around this process, or of a new allocation."""
        inside = os.environ.get("SLURM_JOB_ID")
        grant = await (self._found(inside, notify) if inside else self._asked(tasks, notify))
        self._job, self._ran = grant.job, grant.job.number
        self._hosts = await self._hosts_of(grant, len(tasks))
        chosen = self._chosen(tasks, ())
        if not chosen:
            raise ClusterError(
                f"Slurm job {grant.job.number} has {len(self._hosts)} nodes "
                f"({grant.nodes}), not {self.options.nodes or 1}; "
                "ask for fewer (--nodes)"
            )
        notify(await self._granted(grant, chosen, tasks))
        return chosen

    async def _found(self, number: str, notify: Callable[[str], None]) -> Grant:
        """Return the job around this process."""
        if self.options.scheduler:
            raise ClusterError(
                f"this is inside Slurm job {number}, whose nodes the cluster uses; leave out the "
                "scheduler's arguments, or remove SLURM_JOB_ID from the environment to ask for "
                "an allocation of its own"
            )
        job = Job(number, self._commands)
        if number == self._ran:
            await self._queued(job, notify)
        status = await job.status()
        if status is None or not status.running:
            raise ClusterError(
                f"SLURM_JOB_ID says that this is inside Slurm job {number}, "
                f"{f'which is {status.state}' if status else 'which Slurm does not know'}; "
                "remove it from the environment to ask for an allocation of its own"
            )
        tasks = "" if "SLURM_STEP_ID" in os.environ else os.environ.get("SLURM_TASKS_PER_NODE", "")
        return Grant(job, status.nodes, tasks)

    @staticmethod
    async def _queued(job: Job, notify: Callable[[str], None]) -> None:
        """Wait while Slurm has put the job around this process back into its queue."""
        while (status := await job.status()) is not None and (status.queued or status.ending):
            if words := await job.waits():
                notify(words)
            await asyncio.sleep(QUEUE_POLL_SECONDS)

    async def _asked(self, tasks: Sequence[Task], notify: Callable[[str], None]) -> Grant:
        """Ask for an allocation and wait for it; ask again where that was disturbed."""
        tries = 0
        while True:
            tries += 1
            self._salloc = Salloc(self._commands)
            try:
                return await self._salloc.open(self._arguments(len(tasks)), notify)
            except ClusterError as error:
                if not self._salloc.disturbed or tries == ALLOCATION_TRIES:
                    raise self._refusal(error) from None
            await self._salloc.close()

    def _refusal(self, error: ClusterError) -> ClusterError:
        """Return an error with the nodes that were left out of the request."""
        if not self._bad:
            return error
        lost = ", ".join(sorted(self._bad))
        return ClusterError(f"{error} (without {lost}, which this cluster lost)")

    def _arguments(self, tasks: int) -> list[str]:
        """Return what to ask for; the user's own arguments come last, as the last one counts."""
        nodes = self.options.nodes
        size = (
            [f"--ntasks={tasks}"]
            if nodes is None
            else [f"--nodes={nodes}", f"--ntasks-per-node={-(-tasks // nodes)}"]
        )
        avoided = [f"--exclude={','.join(sorted(self._bad))}"] if self._bad else []
        start = ["--job-name=mwmagic", "--no-kill", "--wait-all-nodes=1"]
        return [*start, *size, *avoided, *self.options.scheduler]

    # Nodes.

    async def _hosts_of(self, grant: Grant, tasks: int) -> list[Host]:
        names = await grant.job.names(grant.nodes)
        nodes = await grant.job.nodes(grant.nodes)
        gpus = await grant.job.gpus()
        status = await grant.job.status()
        left = status.seconds if status else None
        until = None if left is None else time.time() + left
        slots = self._slots(placed_tasks(grant.tasks, len(names)), len(names), tasks)
        return [
            Host(
                name,
                nodes[name].address if name in nodes else name,
                self._command(grant.job, name, gpus),
                slots=most,
                env=self._commands.env,
                stderr=Stderr(*_NOISE),
                job=grant.job.number,
                until=until,
            )
            for name, most in zip(names, slots, strict=True)
        ]

    def _slots(self, placed: list[int], nodes: int, tasks: int) -> list[int]:
        """Return how many tasks fit on each node; equal shares where Slurm placed too few."""
        used = self.options.nodes or nodes
        return placed if sum(placed[:used]) >= tasks else [-(-tasks // used)] * nodes

    def _command(self, job: Job, name: str, gpus: Mapping[str, str]) -> tuple[str, ...]:
        """Return the command that runs the agent on a node.

        By default a step gets what the job was asked for: of a job's GPUs that is one
        with --gpus-per-task, none with --exclusive, and an error with --gpus.
        """
        where = [f"--jobid={job.number}", f"--nodelist={name}"]
        devices = [f"--gres={gpus[name]}"] if name in gpus else []
        python = self.options.python or sys.executable
        return ("srun", *where, *devices, *_STEP, *agent_command(python))

    async def _granted(self, grant: Grant, hosts: Sequence[Host], tasks: Sequence[Task]) -> str:
        """Return in words what was allocated."""
        counts = {len(share) for share in spread(tasks, [host.slots for host in hosts])}
        [count, *others] = counts
        each = counted(len(tasks), "task") if others else f"{counted(count, 'task')} each"
        status = await grant.job.status()
        left = f", {status.remaining} left" if status and status.remaining else ""
        return f"Slurm job {grant.job.number} on {grant.nodes} ({each}){left}"

    # Ending.

    async def why(self, host: Host) -> str | None:
        """Return what Slurm says about the job, the node or the step, such as "TIMEOUT"."""
        if self._job is None:
            return None
        said = await self._job.why(host.name, lambda: host.stderr.last)
        return said or self._job.step_words(host.stderr.last)

    async def release(self) -> None:
        """Give back the allocation; a job around this process continues."""
        self._job = None
        self._hosts = []
        if self._salloc is not None:
            await self._salloc.close()
        self._salloc = None
