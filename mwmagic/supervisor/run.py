"""A run while it lives: the gang's actions carried out, its events taken in."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field, replace
from functools import singledispatchmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic import gang as g
from mwmagic.diagnosis import Exit, Seen, diagnose, kind, notices
from mwmagic.errors import MwmagicError, SupervisorError
from mwmagic.frameworks import framework_for
from mwmagic.logs.guard import Guard
from mwmagic.model import variables
from mwmagic.model.status import (
    RunState,
    RunStatus,
    Setback,
    TaskState,
    TaskStatus,
)
from mwmagic.record.metrics import HISTORY, LOG, REPORT

from .account import Account
from .examine import Examiner
from .place import BOOTSTRAP
from .process import Process
from .reports import History
from .watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mwmagic.diagnosis.stacks import Stack
    from mwmagic.model.cause import Cause, Notice, Stall
    from mwmagic.model.cluster import Task
    from mwmagic.model.fault import Fault
    from mwmagic.model.messages import Message
    from mwmagic.model.position import Examination
    from mwmagic.model.start import Start
    from mwmagic.record import RunDirectory

    from .place import Loss, Place

__all__ = ["Order", "Run"]

EVALUATED_SECONDS = 5.0
"""Seconds without output or work after which an evaluator waits for a checkpoint in vain."""

_STEP = (REPORT, "train", False)
"""The source, kind and finality of what Keras reports of a step."""

CREDIT_BYTES = 2**20
"""Bytes of a worker's output that may be under way to the supervisor."""


@dataclass(frozen=True)
class Order:
    """What is launched on a task.

    Parameters
    ----------
    script : str
        The file as the user names it; ``sys.argv[0]`` and tracebacks show it.
    source : Path
        The copy of its code in the record, which is what runs.
    args : tuple of str
        The script's arguments.
    env : mapping of str to str
        What the process inherits.
    cwd : str
        Where it runs.
    cell : str
        The notebook's cell that the code comes from, if it does.
    given : mapping of str to str
        What of `env` was given with the launch itself.
    """

    script: str
    source: Path
    args: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    cell: str = ""
    given: Mapping[str, str] = field(default_factory=dict)


class Run:
    """One execution of code on a cluster.

    Parameters
    ----------
    directory : RunDirectory
        Where it is recorded.
    place : Place
        Where its tasks are.
    start : Start
        The cluster, with the options that hold for this run.
    changed : callable
        Called whenever the status would differ.
    """

    def __init__(
        self,
        directory: RunDirectory,
        place: Place,
        start: Start,
        changed: Callable[[], None],
    ) -> None:
        self.directory = directory
        self.orders: dict[Task, Order] = {}
        self.cause: Cause | None = None
        self.options = options = start.options
        policy = g.Policy(restarts=options.restarts, grace=options.grace)
        self.gang = g.Gang(options.members, policy, time.monotonic())
        self._place = place
        self._cluster = start
        self._framework = framework_for(options.framework)
        self._changed = changed
        self._processes: dict[Task, Process] = {}
        self._keyed: dict[str, Process] = {}
        self._exits: list[Exit] = []
        self._faults: list[Fault] = []
        self._guard = Guard(self._misread)
        self._timers: dict[g.Due, asyncio.TimerHandle] = {}
        self._waiting: deque[g.Event] = deque()
        self._moving: asyncio.Task[None] | None = None
        self._roles = g.roles(options.members)
        self._examiner = Examiner(self, options.stall_timeout, self._guard)
        self._evaluation = Watchdog(EVALUATED_SECONDS)
        self._started = time.time()
        self._ended: float | None = None
        self._account = Account(options, self.gang.state.value, changed)
        self._notices: tuple[Notice, ...] = ()
        self._setbacks: list[Setback] = []
        self._note("created", tasks=list(map(str, options.members)))

    @property
    def over(self) -> bool:
        """Whether it reached its final state."""
        return self.gang.state.final

    # What people ask for.

    def launch(self, task: Task, order: Order) -> None:
        """Launch a task, or launch it anew while others are missing."""
        self.orders[task] = order
        what = {"script": order.script, "args": list(order.args), "env": dict(order.given)}
        self._note("launch", task=str(task), **what)
        self.handle(g.Launch(task))

    def stop(self, task: Task | None, grace: float | None) -> None:
        """Stop the run, or one task of it."""
        self._note("stop", task=None if task is None else str(task), grace=grace)
        self.handle(g.Stop(task, grace, time.monotonic()))

    def restart(self) -> None:
        """Start the gang again."""
        self._note("restart")
        self.handle(g.Restart(time.monotonic()))

    def signal(self, task: Task, number: int) -> None:
        """Send a task's process a signal.

        Raises
        ------
        SupervisorError
            It has no process.
        """
        process = self._processes.get(task)
        if process is None or process.state is not TaskState.RUNNING:
            raise SupervisorError(f"{task} has no process to send a signal to")
        self._note("signal", task=str(task), signal=number)
        process.requested()
        self._signal(process, number)

    # The gang.

    def handle(self, event: g.Event) -> None:
        """Give the gang an event, in turn, and do what it says."""
        if self._moving is not None:
            self._waiting.append(event)
            return
        before = self.gang.state
        actions = self.gang.handle(event)
        if isinstance(event, g.Exited):
            self._forgive(event)
        if self.gang.state is not before:
            self._note("state", state=self.gang.state.value, attempt=self.gang.attempt)
            self._account.durations.enter(self.gang.state.value, time.monotonic())
            self._set_back()
        starts = any(isinstance(action, g.Start) for action in actions)
        if g.Rebind() in actions or (starts and self._place.broken):
            self._moving = asyncio.create_task(self._move(actions))
        else:
            self._perform(actions)

    def _perform(self, actions: list[g.Action]) -> None:
        for action in actions:
            self._do(action)
        self._changed()

    async def _move(self, actions: list[g.Action]) -> None:
        """Hold new ports, then go on where the gang stood."""
        try:
            await self._place.rebind()
        except (MwmagicError, OSError) as error:
            self._moving = None
            self._unplaced(actions, str(error))
        else:
            self._note("moved", addresses=list(self._place.spec.addresses.values()))
            self._moving = None
            self._perform(actions)
        while self._waiting and self._moving is None:
            self.handle(self._waiting.popleft())

    def _unplaced(self, actions: list[g.Action], error: str) -> None:
        """Do all but start processes, which have no place."""
        self._perform([action for action in actions if not isinstance(action, g.Start)])
        for action in actions:
            if isinstance(action, g.Start):
                process = self._new(action.task, action.attempt)
                self._exited(process, process.failed(error, time.monotonic()))

    @singledispatchmethod
    def _do(self, action: g.Action) -> None:
        """Carry out an action; `Rebind` is done before the others."""

    @_do.register
    def _(self, action: g.Start) -> None:
        self._start(action.task, action.attempt)

    @_do.register
    def _(self, action: g.End) -> None:
        self._end(self._processes[action.task], action.grace)

    @_do.register
    def _(self, action: g.EndAll) -> None:
        for process in self._processes.values():
            if process.state is not TaskState.ENDED and process.attempt == action.attempt:
                self._end(process, action.grace)

    @_do.register
    def _(self, action: g.SetTimer) -> None:
        self._cancel(action.due)
        loop = asyncio.get_running_loop()
        self._timers[action.due] = loop.call_later(action.seconds, self._timer, action.due)

    @_do.register
    def _(self, action: g.CancelTimer) -> None:
        self._cancel(action.due)

    @_do.register
    def _(self, action: g.Ended) -> None:
        for due in list(self._timers):
            self._cancel(due)
        self._ended = time.time()
        self._notices = self._guard.call("notice", (), notices, self.seen({}))
        self.cause = self._diagnosed() if action.state is g.State.FAILED else None
        self._note("ended", state=action.state.value, cause=self.cause and self.cause.as_json())

    def _set_back(self) -> None:
        """Keep why an attempt failed that another one follows."""
        cause = self._diagnosed() if self.gang.state is g.State.BACKOFF else None
        if cause is not None:
            self._setbacks.append(Setback(self.gang.attempt, cause))
            self._note("setback", **self._setbacks[-1].as_json())

    def _diagnosed(self) -> Cause | None:
        return self._guard.call("diagnosis", None, diagnose, self._decisive())

    def _forgive(self, event: g.Exited) -> None:
        """Forget a failure that the gang goes on without: it explains no later one."""
        goes_on = self.gang.state in (g.State.FORMING, g.State.RUNNING)
        if goes_on and self.gang.attempt == event.attempt and not event.succeeded:
            of = (str(event.task), event.attempt)
            self._exits = [end for end in self._exits if (end.task, end.attempt) != of]

    def _decisive(self) -> list[Exit]:
        """Return the exits among which the cause of the last attempt's failure is."""
        auxiliary = {str(task) for task, role in self._roles.items() if role is g.Role.AUXILIARY}
        last = [end for end in self._exits if end.attempt == self.gang.attempt]
        return [end for end in last if end.task not in auxiliary]

    def _cancel(self, due: g.Due) -> None:
        timer = self._timers.pop(due, None)
        if timer is not None:
            timer.cancel()

    def _timer(self, due: g.Due) -> None:
        self._timers.pop(due, None)
        self.handle(g.Timer(due, time.monotonic()))

    # Processes.

    def _key(self, process: Process) -> str:
        return f"{self.directory.number}/{process.attempt}/{process.task}"

    def _start(self, task: Task, attempt: int) -> None:
        order = self.orders[task]
        process = self._new(task, attempt)
        paths = process.paths
        paths.report.unlink(missing_ok=True)
        own = {
            variables.ATTEMPT: str(attempt),
            variables.REPORT: str(paths.report),
            variables.RUN: str(self.directory.path),
            variables.SOURCE: str(order.source),
            variables.STACKS: str(paths.stacks),
        }
        self._place.start(
            task,
            process=self._key(process),
            argv=[sys.executable, str(BOOTSTRAP), order.script, *order.args],
            env=order.env,
            own=own,
            cwd=order.cwd,
            log=str(paths.log),
            report=str(paths.report),
            credit=CREDIT_BYTES,
        )

    def _new(self, task: Task, attempt: int) -> Process:
        order = self.orders[task]
        process = self._processes[task] = Process(
            task,
            attempt,
            self.directory.task(task, attempt),
            self._guard,
            script=str(Path(order.cwd, order.script)),
            cell=order.cell,
            address=self._place.spec.addresses[task],
            told=self._framework.logs_start(order.env),
        )
        self._keyed[self._key(process)] = process
        return process

    def _end(self, process: Process, grace: float) -> None:
        process.told_to_end(time.monotonic())
        if self._place.withdraw(self._key(process)):
            gone = process.withdrawn(time.monotonic())
            asyncio.get_running_loop().call_soon(self._exited, process, gone)
            return
        channel = self._place.channel(process.task)
        channel.send("end", process=self._key(process), grace=grace)

    # What agents say.

    def take(self, event: Message) -> None:
        """Take an agent's event in, if it is about a process of this run."""
        process = self._keyed.get(event["process"])
        if process is None:
            return
        if event["type"] == "output":
            self._output(process, event)
        elif event["type"] == "said":
            self._said(process, event)
        elif event["type"] == "started":
            process.started(event)
            self._note("started", task=str(process.task), pid=process.pid, warm=process.warm)
            self._changed()
        elif event["type"] == "exited":
            bare = {**event, "report": None}
            end = self._guard.call("report", None, process.exited, event)
            self._exited(process, end or process.exited(bare))
        elif event["type"] == "refused" and event["command"] == "start":
            failed = process.failed(event["error"], time.monotonic(), event["reason"])
            self._exited(process, failed)

    def usage(self, event: Message) -> None:
        """Note the CPU and memory that the processes use."""
        for key, usage in event["processes"].items():
            process = self._keyed.get(key)
            if process is not None:
                process.usage = usage
                self._watch(process, event["time"])
        self._examiner.judge(event["time"], running=self.gang.state is g.State.RUNNING)
        self._judge_evaluation(event["time"])
        self._changed()

    def seen(self, found: Mapping[str, Stack | None]) -> list[Seen]:
        """Return what is seen of the tasks that train, with the stacks that were found."""
        return [
            process.seen(found.get(str(process.task)))
            for task, process in self._processes.items()
            if self._roles[task] is g.Role.PEER and self._framework.log_level
        ]

    # Stalls.

    def _watch(self, process: Process, now: float) -> None:
        """Watch the progress of a task that trains, and of an evaluator when training is done."""
        role = self._roles[process.task]
        watched = {g.Role.PEER: self._examiner.watchdog}
        if self.gang.evaluating:
            watched[g.Role.AUXILIARY] = self._evaluation
        if role in watched:
            cpu = float(process.usage["cpu"])
            watched[role].seen(self._key(process), time=now, size=process.size, cpu=cpu)

    def _judge_evaluation(self, now: float) -> None:
        """Stop the evaluator once nothing is left to do: by itself it may wait for ever."""
        if self.gang.evaluating and self._evaluation.stalled(now):
            for task, role in self._roles.items():
                if role is g.Role.AUXILIARY:
                    self.handle(g.Stop(task, time=now))

    def examine(self) -> None:
        """Find out where each task is; the record then says.

        Raises
        ------
        SupervisorError
            No task has a process.
        """
        if not self.alive():
            raise SupervisorError("no task has a process whose stack could be shown")
        self._examiner.examine()

    # What the examiner needs.

    def alive(self) -> list[Process]:
        """Return the processes that are running."""
        return [one for one in self._processes.values() if one.state is TaskState.RUNNING]

    def peers(self) -> list[str]:
        """Return the tasks that train and have a process."""
        return [str(one.task) for one in self.alive() if self._roles[one.task] is g.Role.PEER]

    async def refresh(self, process: Process) -> None:
        """Fetch what a process has written to its file of stacks, where the disk is another."""
        await self._place.pull(process.task, str(process.paths.stacks))

    def dump(self, process: Process) -> None:
        """Have a process write its stack."""
        self._signal(process, signal.SIGUSR1)

    def located(self, found: Examination) -> None:
        """Keep where each task is."""
        self.directory.save_stacks(found)
        self._changed()

    def unexamined(self, error: Exception) -> None:
        """Note why it could not be found out where the tasks are."""
        self._note("unexamined", error=f"{type(error).__name__}: {error}")

    def stalled(self, stall: Stall) -> None:
        """Take in that no task makes progress, and end the task that holds up the others."""
        self._note("stalled", **stall.as_json())
        guilty = [one for one in self.alive() if str(one.task) == stall.guilty]
        if self.options.on_stall == "restart":
            for process in guilty:
                process.stalled = stall.seconds
                channel = self._place.channel(process.task)
                channel.send("end", process=self._key(process), grace=0.0)
        self._changed()

    def _signal(self, process: Process, number: int) -> None:
        channel = self._place.channel(process.task)
        channel.send("signal", process=self._key(process), signal=number)

    def _output(self, process: Process, event: Message) -> None:
        for update in process.output(event):
            if update.metrics:
                self._measured(process, LOG, asdict(update))
        channel = self._place.channel(process.task)
        spent = process.size - event["offset"]
        channel.send("credit", process=event["process"], bytes=spent)
        self._changed()

    def _said(self, process: Process, event: Message) -> None:
        report = process.said(event)
        if isinstance(report, History):
            self._measured(process, REPORT, {"kind": HISTORY, **asdict(report)})
        elif report is not None and report.metrics:
            self._measured(process, REPORT, asdict(report))
        self._changed()

    def _measured(self, process: Process, source: str, entry: dict[str, Any]) -> None:
        """Record what a task measured."""
        entry = {"source": source, "attempt": process.attempt, **entry}
        self.directory.metric(task=str(process.task), **entry)
        # Of what Keras reports the best is that of an epoch, not of one step.
        if entry["kind"] != HISTORY and (source, entry["kind"], entry["final"]) != _STEP:
            self._account.extremes.take(str(process.task), entry)

    def _exited(self, process: Process, end: Exit) -> None:
        self._exits.append(end)
        self._examiner.watchdog.gone(self._key(process))
        self._evaluation.gone(self._key(process))
        self._note(
            "exited",
            task=end.task,
            attempt=end.attempt,
            moment=end.moment,
            code=end.code,
            signal=end.signal,
            ended=end.ended,
            finding=end.finding.as_json(),
            report=end.report,
        )
        why = self._guard.call("failure", g.Failure.PRIMARY, kind, end)
        self.handle(g.Exited(process.task, end.attempt, end.code, why, end.moment))

    def lost(self, loss: Loss) -> None:
        """Take in that an agent is gone, and its workers with it."""
        self._note("lost", host=loss.host, tasks=list(map(str, loss.tasks)), why=loss.why)
        for task in loss.tasks:
            process = self._processes.get(task)
            if process is not None and process.state is not TaskState.ENDED:
                self._exited(process, process.lost(loss.host, loss.time, loss.why))

    # The record.

    def status(self) -> RunStatus:
        """Return how the run is."""
        return RunStatus(
            number=self.directory.number,
            directory=str(self.directory.path),
            script=next((order.script for order in self.orders.values()), ""),
            state=RunState(self.gang.state.value),
            attempt=self.gang.attempt,
            restarts=self.gang.restarts,
            limit=self.gang.policy.restarts,
            started=self._started,
            ended=self._ended,
            tasks={str(task): self._task_status(task) for task in self.gang.tasks},
            cause=self.cause,
            trouble=self.directory.trouble,
            stall=self._examiner.stall,
            setbacks=tuple(self._setbacks),
            notices=self._notices,
            examined=self._examiner.times,
            faults=tuple(self._faults),
        )

    def _task_status(self, task: Task) -> TaskStatus:
        """Return how a task is; its address may be newer than its process."""
        process = self._processes.get(task)
        status = TaskStatus() if process is None else process.status()
        return replace(status, address=self._place.spec.addresses[task])

    def write(self) -> None:
        """Write the run's state to its record; the last one is there on return."""
        account = self._account.as_json(self.orders, over=self.over)
        self.directory.write({**self.status().as_json(), **account})
        if self.over:
            self.directory.flush()

    def _misread(self, fault: Fault) -> None:
        """Note, once for each parser, that it failed: what it says may lack something."""
        self._faults.append(fault)
        self._note("fault", **fault.as_json())
        self._changed()

    def _note(self, event: str, **fields: Any) -> None:  # noqa: ANN401 - JSON values
        self.directory.event(event, **fields)
