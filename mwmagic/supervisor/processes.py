"""The processes of a run, and what is sent to them."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

from mwmagic import gang as g
from mwmagic.errors import BadArguments
from mwmagic.frameworks import framework_for
from mwmagic.model import variables
from mwmagic.model.findings import Finding, Remark, Symptom
from mwmagic.model.live import CELL_BYTES
from mwmagic.model.status import Importing, TaskState
from mwmagic.words.host import apart_words

from .node import StartCommand
from .process import TaskProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from mwmagic.diagnosis import Exit, Observation
    from mwmagic.diagnosis.observation import Stack
    from mwmagic.engines.channel import Channel
    from mwmagic.logs import Guard
    from mwmagic.model.cluster import Task
    from mwmagic.model.messages import Message
    from mwmagic.model.options import ClusterOptions
    from mwmagic.record import RunDirectory

    from .pool import MachinePool
    from .program import TaskProgram

__all__ = ["Processes", "check_fits", "is_live", "kind_of", "packet_of"]

WORTH_SECONDS = 0.5
"""How long imports take, at least, that are worth an option."""

WRITTEN_SECONDS = 0.5
"""How long an end waits, at most, for a process that was asked where it is."""

WRITTEN_LOOK_SECONDS = 0.02
"""Pause between two looks at what it has written."""

CREDIT_BYTES = 2**20
"""Bytes of a worker's output that may be on their way to the supervisor."""

CREDIT_STEP_BYTES = CREDIT_BYTES // 4
"""Bytes of output after which the agent may send as many more: not for each line."""

_HEAD = '{"live": '
"""How packets begin that are about cells."""


class Processes:
    """The processes of a run; of each task the latest one."""

    def __init__(
        self,
        directory: RunDirectory,
        pool: MachinePool,
        options: ClusterOptions,
        roles: Mapping[Task, g.Role],
        guard: Guard,
    ) -> None:
        self._directory = directory
        self._pool = pool
        self._framework = framework_for(options.framework)
        self._grace = options.grace
        self._preload = options.preload
        self._roles = roles
        self._guard = guard
        self._latest: dict[Task, TaskProcess] = {}
        self._keyed: dict[str, TaskProcess] = {}
        self._named: dict[str, TaskProcess] = {}

    def __iter__(self) -> Iterator[TaskProcess]:
        return iter(self._latest.values())

    def of(self, task: Task) -> TaskProcess | None:
        """Return a task's process, whatever its state."""
        return self._latest.get(task)

    def named(self, task: str) -> TaskProcess:
        """Return the process of a task that has one."""
        return self._named[task]

    def keyed(self, key: str) -> TaskProcess | None:
        """Return the process that agents know by a key, if it is one of this run."""
        return self._keyed.get(key)

    def key(self, process: TaskProcess) -> str:
        """Return the key that agents know a process by."""
        return f"{self._directory.number}/{process.attempt}/{process.task}"

    def alive(self) -> list[TaskProcess]:
        """Return the processes that are running."""
        return [one for one in self if one.state is TaskState.RUNNING]

    def peers(self) -> list[str]:
        """Return the tasks that train and have a process."""
        return [str(one.task) for one in self.alive() if self._roles[one.task] is g.Role.PEER]

    def seen(self, found: Mapping[str, Stack | None]) -> list[Observation]:
        """Return the observations of the tasks that train, with the stacks that were found."""
        return [
            process.seen(found.get(str(process.task)))
            for process in self
            if self._roles[process.task] is g.Role.PEER and self._framework.log_level
        ]

    # Starting.

    def new(self, task: Task, attempt: int, program: TaskProgram) -> TaskProcess:
        """Return a task's next process, which is not started yet."""
        process = self._latest[task] = TaskProcess(
            task,
            attempt,
            program,
            self._directory.task(task, attempt),
            self._guard,
            address=self._pool.spec.addresses[task],
            logs_start=self._framework.logs_start(program.launch.env),
            began=time.monotonic(),
        )
        self._named[str(task)] = self._keyed[self.key(process)] = process
        return process

    def start(self, task: Task, attempt: int, program: TaskProgram) -> None:
        """Start a task's next process."""
        process = self.new(task, attempt, program)
        paths = process.paths
        paths.report.unlink(missing_ok=True)
        own = {
            variables.ATTEMPT: str(attempt),
            variables.FAILURE_REPORT: str(paths.report),
            variables.RUN: str(self._directory.path),
            variables.SOURCE: str(program.source),
            variables.STACKS: str(paths.stacks),
        }
        if program.launch.keep:
            own[variables.KEEP] = "1"
        if program.launch.answered:
            own[variables.ANSWERED] = "1"
        command = StartCommand(
            self.key(process),
            program,
            own,
            log=str(paths.log),
            report=str(paths.report),
            credit=CREDIT_BYTES,
            grace=self._grace,
        )
        self._pool.start(task, command)

    def imported(self) -> tuple[Remark, ...]:
        """Return how long the slowest task took to import what `--preload` could name."""
        found = [(_unnamed(one.output.training.imports, self._preload), one.task) for one in self]
        took, task = max(found, key=lambda one: sum(one[0].values()), default=({}, None))
        seconds = sum(took.values())
        if seconds < WORTH_SECONDS:
            return ()
        names = [name for name in took if not any(one.startswith(f"{name}.") for one in took)]
        detail = ",".join([*self._preload, *names])
        finding = Finding(Symptom.IMPORTED_LONG, str(task), seconds=seconds, detail=detail)
        return (Remark(finding=finding),)

    def started(self) -> tuple[Remark, ...]:
        """Return why a process was not forked from a warm one, and what the warm one lacks."""
        found = {one.symptom is Symptom.LEFT_OUT: one for task in self for one in task.notices}
        return tuple(Remark(finding=found[left]) for left in sorted(found))

    def outside(self) -> tuple[Remark, ...]:
        """Return which tasks trained a model that was created outside their strategy's scope."""
        found = tuple(str(one.task) for one in self if one.output.training.outside)
        if not found:
            return ()
        finding = Finding(Symptom.OUTSIDE_SCOPE, found[0])
        return (Remark(finding.symptom.value, found, finding),)

    def full(self) -> tuple[Remark, ...]:
        """Return which logs could not be written on another machine."""
        return tuple(Remark(finding=one.full) for one in self if one.full is not None)

    def cut(self) -> tuple[Remark, ...]:
        """Return which logs, of earlier attempts too, may lack their last lines."""
        return tuple(Remark(finding=one.cut) for one in self._keyed.values() if one.cut is not None)

    def importing(self, process: TaskProcess) -> Importing | None:
        """Return the import that a process's start waits for, if it waits for one."""
        seconds = self._pool.node(process.task).importing(self.key(process))
        return None if seconds is None else Importing(self._framework.title, seconds)

    # Sending.

    def signal(self, process: TaskProcess, number: int) -> None:
        """Send a process a signal."""
        channel = self._pool.node(process.task).channel
        channel.send("signal", process=self.key(process), signal=number)

    def end(self, process: TaskProcess, grace: float) -> Exit | None:
        """End a process; return its exit where it had not been started yet."""
        process.ending(time.monotonic())
        if self._pool.withdraw(self.key(process)):
            return process.withdrawn(time.monotonic())
        self._end_once_written(process, grace, time.monotonic() + WRITTEN_SECONDS)
        return None

    def _end_once_written(self, process: TaskProcess, grace: float, until: float) -> None:
        """End a process once it has written where it is, if it was asked for that.

        If two signals wait for a process, the kernel prepares the handler of the first and
        then, before the handler's first instruction, ends the process by the second.
        """
        dump = process.dump
        written = dump is None or dump.complete() or process.state is TaskState.ENDED
        if written or time.monotonic() >= until:
            self._send_end(process, grace)
        else:
            asyncio.get_running_loop().call_later(
                WRITTEN_LOOK_SECONDS, self._end_once_written, process, grace, until
            )

    def kill(self, process: TaskProcess) -> None:
        """Kill a process for its own fault: unlike with `end`, its exit is a failure."""
        self._send_end(process, 0.0)

    def _send_end(self, process: TaskProcess, grace: float) -> None:
        self._pool.node(process.task).channel.end(self.key(process), grace)

    def credit(self, process: TaskProcess, spent: int) -> None:
        """Let the agent send as many more bytes of output as were read."""
        # All that an agent sends shares one stream: without a limit, the output of a worker that
        # prints without end would fill it, and an exit or the answer to a ping would wait behind
        # megabytes. So each worker may have only some bytes on their way; the rest stays in the
        # log, from which the agent sends it later. A worker itself never waits for a reader.
        output = process.output
        output.spent += spent
        if output.spent >= CREDIT_STEP_BYTES:
            channel = self._pool.node(process.task).channel
            channel.send("credit", process=self.key(process), bytes=output.spent)
            output.spent = 0

    # Live cells.

    def send(self, processes: Sequence[TaskProcess], packet: str, cell: int = 0) -> None:
        """Send processes a packet on their lines; to those of a machine together.

        If part of a ``cell`` waits for it, a process that does not accept it names that cell.
        """
        keys: dict[Channel, list[str]] = {}
        for process in processes:
            keys.setdefault(self._pool.node(process.task).channel, []).append(self.key(process))
        for channel, own in keys.items():
            channel.send("tell", processes=own, data=packet, cell=cell)

    async def carry(self, process: TaskProcess, path: Path) -> None:
        """Bring a file of the record to a process, if it is on another disk."""
        await self._pool.node(process.task).disk.bring([path])

    async def bring(self, process: TaskProcess, path: Path) -> None:
        """Fetch a file of the record that a process wrote, if it is on another disk."""
        await self._pool.node(process.task).pull(str(path))

    # Stacks, and what else explains a stall.

    async def apart(self) -> Remark | None:
        """Return which machines cannot connect to each other now, if there are such."""
        obstacles = await self._pool.apart()
        if not obstacles:
            return None
        first = obstacles[0]
        found = Finding(
            Symptom.HOSTS_APART,
            host=first.source,
            peer=first.target,
            address=first.address,
            detail=apart_words(obstacles),
        )
        return Remark(finding=found)

    async def refresh(self, process: TaskProcess) -> None:
        """Fetch a process's file of stacks, if it is on another disk."""
        await self.bring(process, process.paths.stacks)

    def dump(self, process: TaskProcess) -> None:
        """Have a process write its stack."""
        node = self._pool.node(process.task)
        file = node.disk.there(str(process.paths.stacks))
        number = variables.STACKS_SIGNAL
        node.channel.send("ask", process=self.key(process), signal=number, file=file)


def _unnamed(took: Mapping[str, float], preload: Sequence[str]) -> dict[str, float]:
    """Return the modules that `--preload` does not name, with what imports them, each its time."""
    named = tuple(f"{name}." for name in preload)
    return {
        name: one
        for name, one in took.items()
        if not any(f"{name}.".startswith(each) or each.startswith(f"{name}.") for each in named)
    }


def is_live(packet: str) -> bool:
    """Return whether a packet on a worker's line is about cells."""
    return packet.startswith(_HEAD)


def kind_of(packet: str) -> str:
    """Return what a packet about cells says, even if the rest cannot be read."""
    return packet.removeprefix(_HEAD).lstrip('"').partition('"')[0]


def packet_of(order: Message) -> str:
    """Return an order as a packet, with as few bytes as its text has."""
    text = json.dumps(order, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a half of a pair of surrogates
        return json.dumps(order)
    return text


def check_fits(packet: str, what: str, remedy: str) -> None:
    """Raise BadArguments if a packet, which holds ``what``, is too long for a task's line."""
    size = len(packet.encode())
    if size > CELL_BYTES:
        raise BadArguments(f"{what} has {size:,} bytes, and {CELL_BYTES:,} are the limit; {remedy}")
