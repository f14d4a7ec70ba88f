"""A run that is going: carries out the gang's actions, and feeds it with events."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from mwmagic import gang as g
from mwmagic.agent.wire import parsed
from mwmagic.diagnosis import involves_others, remarks
from mwmagic.errors import MwmagicError, NoRun, SupervisorError
from mwmagic.model.findings import Whereabouts, Window
from mwmagic.model.status import (
    RunState,
    RunStatus,
    TaskState,
    TaskStatus,
)

from .process import is_over
from .processes import Processes, is_live
from .program import Unknown
from .report import Exits, RunReport
from .session import LiveSession
from .stalls import Stalls
from .training import Comparison, SlowSteps, TooLate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mwmagic.diagnosis import Exit
    from mwmagic.gang import Due
    from mwmagic.model.cluster import Task
    from mwmagic.model.findings import Cause, Position
    from mwmagic.model.messages import Message, Start
    from mwmagic.model.status import Reached
    from mwmagic.record import RunDirectory

    from .pool import Loss, MachinePool
    from .process import TaskProcess
    from .program import TaskProgram

__all__ = ["ActiveRun"]

UNHEARD = "no answer when it was to end"
"""Why nothing is known of a task's end if its agent could not be reached."""

LINK_SECONDS = 30.0
"""For how long an interruption of a connection may have been over when tasks fail by it."""


class ActiveRun:
    """One execution of code on a cluster."""

    def __init__(
        self,
        directory: RunDirectory,
        pool: MachinePool,
        start: Start,
        changed: Callable[[], None],
        first: TaskProgram,
    ) -> None:
        self.directory = directory
        self.keep = keep = first.launch.keep
        self.live = first.launch.live
        self._first = first
        self.programs: dict[Task, TaskProgram] = {}
        self.options = options = start.options
        policy = g.Policy(restarts=options.restarts, grace=options.grace, stays=first.launch.stays)
        self.gang = g.Gang(options.members, policy, time.monotonic())
        self._pool = pool
        self._changed = changed
        self._report = RunReport(directory, pool, self.gang, options, changed)
        self._guard = self._report.guard
        self._note = self._report.note
        self._roles = roles = g.roles(options.members)
        self._comparison = Comparison()
        self._exits = Exits(directory, roles, options, self._guard, self._linked)
        self._processes = Processes(directory, pool, options, roles, self._guard)
        self._stalls = Stalls(
            self._processes, roles, options, directory, changed, guard=self._guard
        )
        peers = [task for task, role in roles.items() if role is g.Role.PEER]
        self._slow = SlowSteps(peers, self._note, self._guard)
        self._timers = _Timers(self._due)
        self._waiting: deque[g.Event] = deque()
        self._moving: asyncio.Task[None] | None = None
        self._failed = 0.0  # when a process last ended without success
        self._explanations: set[asyncio.Task[None]] = set()
        members = list(map(str, options.members))
        ending = [str(task) for task, role in roles.items() if role is g.Role.PEER] if keep else []
        self._session = LiveSession(
            directory,
            members,
            self._processes,
            self._examine,
            guard=self._guard,
            programs=self,
            program=ending,
        )

    @property
    def over(self) -> bool:
        """Whether it reached its final state, and all that explains its end is known."""
        return self._report.over

    # Requests.

    def launch(self, programs: Mapping[Task, TaskProgram]) -> None:
        """Launch tasks, or replace their launch while others are missing."""
        for task, program in programs.items():
            self.programs[task] = program
            self._report.launched(task, program)
            self.handle(g.Launched(task))

    def stop(self, task: Task | None, grace: float | None) -> None:
        """Stop the run, or one task of it."""
        self._note("stop", task=None if task is None else str(task), grace=grace)
        if self._moving is not None:  # which may wait for a scheduler, for hours
            self._moving.cancel()
        self._end_finishing(task, self.options.grace if grace is None else grace)
        self.handle(g.Stop(task, grace, time.monotonic()))

    def _end_finishing(self, task: Task | None, grace: float) -> None:
        """End the processes whose programs are over, which the gang may have left alone."""
        for process in self._processes:
            if task in (None, process.task) and process.finishing(time.monotonic()):
                process.hurried = True
                self._processes.end(process, grace)

    def restart(self) -> None:
        """Start the gang again."""
        self._note("restart")
        self._session.end(reset=True)
        self._end_finishing(None, 0.0)
        self.handle(g.Restart(time.monotonic()))

    def signal(self, task: Task, number: int) -> None:
        """Send a task's process a signal."""
        process = self._processes.of(task)
        if process is None or process.state is not TaskState.RUNNING:
            raise SupervisorError(f"{task} has no process to send a signal to")
        self._note("signal", task=str(task), signal=number)
        process.requested()
        self._processes.signal(process, number)

    def examine(self) -> None:
        """Find out where each task is; see `Stalls.examine`."""
        self._stalls.examine()

    @property
    def session(self) -> LiveSession:
        """Its session of cells."""
        if not self.live and not self._conversing:
            raise NoRun(f"run {self.directory.number} is not live: it runs {self._script}")
        return self._session

    @property
    def _conversing(self) -> bool:
        """Whether its tasks take cells, now or later, or may ask for answers."""
        return any(one.launch.stays or one.launch.answered for one in self.programs.values())

    # The gang.

    def handle(self, event: g.Event) -> None:
        """Pass the gang an event, in order, and carry out its actions."""
        if self._moving is not None:
            self._waiting.append(event)
            return
        if isinstance(event, g.Exited) and not event.succeeded:
            self._failed = time.monotonic()
        before = self.gang.state
        actions = self.gang.handle(event)
        if isinstance(event, g.Exited):
            self._forgive(event)
        if self.gang.state is not before:
            self._report.entered(self.gang.state)
            self._stalls.judge(time.monotonic(), running=False)  # the next stall is a new one
            if self.gang.state is RunState.BACKOFF:
                began, reached = self._trained("began"), self._trained("place")
                self._exits.set_back(self.gang.attempt, began, reached)
        starts = any(isinstance(action, g.StartTask) for action in actions)
        if g.Rebind() in actions or (starts and self._pool.doubtful(self._failed)):
            self._moving = asyncio.create_task(self._move(actions))
        else:
            self._perform(actions)

    def _perform(self, actions: list[g.Action]) -> None:
        """Carry out actions; `Rebind` is done before the others."""
        for action in actions:
            match action:
                case g.StartTask(task, attempt):
                    self._processes.start(task, attempt, self.programs[task])
                case g.EndTask(task, grace):
                    self._end(self._processes.of(task), grace)
                case g.EndAll(attempt, grace):
                    self._end_all(attempt, grace)
                case g.SetTimer(due, seconds):
                    if due == g.Backoff():
                        self._report.waits(seconds)
                    self._timers.set(due, seconds)
                case g.CancelTimer(due):
                    self._timers.cancel(due)
                case g.Ended():
                    self._end_run(action)
        self._changed()

    async def _move(self, actions: list[g.Action]) -> None:
        """Carry out actions once the machines have answered, or others or new ports are held."""
        try:
            await self._pool.confirm(self._failed)
            if g.Rebind() in actions or self._pool.broken:
                await self._pool.rebind()
                self._note("moved", addresses=list(self._pool.spec.addresses.values()))
        except (MwmagicError, OSError) as error:
            self._moving = None
            self._unplaced(actions, str(error))
        except asyncio.CancelledError:
            self._moving = None
            self._withdraw(actions)
        else:
            self._moving = None
            self._perform(actions)
        while self._waiting and self._moving is None:
            self.handle(self._waiting.popleft())

    def _unplaced(self, actions: list[g.Action], error: str) -> None:
        """Carry out all actions but starts, which fail for want of a place."""
        self._report.unplaced = error if self._exits.setbacks else None
        self._perform([action for action in actions if not isinstance(action, g.StartTask)])
        for action in actions:
            if isinstance(action, g.StartTask):
                program = self.programs[action.task]
                process = self._processes.new(action.task, action.attempt, program)
                self._exited(process, process.failed(error, time.monotonic()))

    def _withdraw(self, actions: list[g.Action]) -> None:
        """Carry out all actions but starts, which a request to stop forestalls."""
        starts = [action for action in actions if isinstance(action, g.StartTask)]
        processes = [
            self._processes.new(one.task, one.attempt, self.programs[one.task]) for one in starts
        ]
        self._perform([action for action in actions if not isinstance(action, g.StartTask)])
        while self._waiting:
            self.handle(self._waiting.popleft())
        for process in processes:
            self._exited(process, process.withdrawn(time.monotonic()))

    def _end(self, process: TaskProcess | None, grace: float) -> None:
        if process is None or process.finishing(time.monotonic()):
            return  # the gang asks again for one that finishes
        withdrawn = self._processes.end(process, grace)
        if withdrawn is not None:
            asyncio.get_running_loop().call_soon(self._exited, process, withdrawn)

    def _end_all(self, attempt: int, grace: float) -> None:
        for process in self._processes:
            if process.state is not TaskState.ENDED and process.attempt == attempt:
                self._end(process, grace)

    def _end_run(self, action: g.Ended) -> None:
        """Report how the run ended."""
        self._timers.clear()
        self._session.end()
        found = self._guard.call("remarks", (), remarks, self._processes.seen({}))
        failed = action.state is RunState.FAILED
        if not failed and not self._conversing:
            found += self._processes.imported()
        self._report.ended(action, self._first_cause() if failed else None, found)

    def _first_cause(self) -> Cause | None:
        """Return why the run failed; a restart that found no machines only follows that."""
        if self._report.unplaced is not None:
            return self._exits.setbacks[-1].cause
        return self._exits.cause(self.gang.attempt) or self._report.cause

    def _forgive(self, event: g.Exited) -> None:
        """Forget a failure that the gang survives."""
        survives = self.gang.state in (RunState.FORMING, RunState.RUNNING)
        if survives and self.gang.attempt == event.attempt and not event.succeeded:
            self._exits.forgive(event.task, event.attempt)

    def _due(self, due: g.Due) -> None:
        self.handle(g.Timer(due, time.monotonic()))

    async def _examine(self) -> tuple[Position, ...]:
        return await self._stalls.positions()

    # Events of agents.

    def on_event(self, event: Message) -> None:
        """Handle an agent's event, if it is about a process of this run."""
        process = self._processes.keyed(event["process"])
        if process is None:
            return
        if "trouble" in event:
            self.directory.trouble = event["trouble"]
        match event["type"]:
            case "output":
                self._output(process, event)
            case "unwritten":
                process.away = self._pool.node(process.task).away
                process.unwritten(event)
                if process.output.rest is not None:
                    self.directory.trouble = f"{process.paths.log}: {event['error']}"
                self._changed()
            case "packet":
                self._on_packet(process, event)
            case "started":
                process.started(event)
                self._note("started", task=str(process.task), pid=process.pid, warm=process.warm)
                self._changed()
            case "exited":
                bare = {**event, "report": None}
                process.away = self._pool.node(process.task).away
                end = self._guard.call("report", None, process.exited, event)
                self._doubt(process, end or process.exited(bare))
            case "refused":
                self._refused(process, event)

    def _refused(self, process: TaskProcess, event: Message) -> None:
        """Handle an agent's refusal of a command for a process."""
        if event["command"] == "start":
            failed = process.failed(event["error"], time.monotonic(), event["reason"])
            self._exited(process, failed)
        elif event["command"] == "ask":
            process.no_stack = Whereabouts.NO_HANDLER
        elif event["command"] == "tell":
            self._session.refused(process, event["cell"], event["error"])

    def usage(self, event: Message) -> None:
        """Note the CPU and memory that the processes use."""
        for key, usage in event["processes"].items():
            process = self._processes.keyed(key)
            if process is not None:
                process.usage = usage
                self._report.used(process, event["machine"], event["time"])
                self._slow.looked(process, self._pool.machines)
                self._stalls.watch(process, event["time"], evaluating=self.gang.evaluating)
                self._session.used(process, event["time"])
        if self._session.asks:
            self._stalls.hold(event["time"])
        self._stalls.judge(event["time"], running=self._advances)
        self._judge_evaluation(event["time"])
        self._changed()

    @property
    def _advances(self) -> bool:
        """Whether programs run that are not waiting for a person, or for one that has ended."""
        waits = self.live or self._session.asks or any(one.program_exit for one in self._processes)
        return self.gang.state is RunState.RUNNING and not waits

    # Programs whose processes stay.

    def program_over(self, process: TaskProcess, said: Message) -> None:
        """Note how a task's program ended."""
        process.away = self._pool.node(process.task).away
        now = time.monotonic()
        bare = {**said, "report": None}
        end = self._guard.call("report", None, process.over, said, now) or process.over(bare, now)
        if self.gang.state is not RunState.KEPT:  # or it is a late consequence
            self._exits.add(end)

    def programs_over(self) -> None:
        """Keep the processes, and what became of their programs."""
        failed = any(one.program_exit and one.program_exit.failed for one in self._processes)
        self._report.cause = cause = self._exits.cause(self.gang.attempt) if failed else None
        self._exits.forget(self.gang.attempt)
        self._note("kept", failed=failed, cause=cause and cause.as_json())
        self.handle(g.ProgramsOver(failed, time.monotonic()))

    def _judge_evaluation(self, now: float) -> None:
        """Stop the evaluator once it has nothing left to do: it may never end by itself."""
        if self.gang.evaluating:
            for task in self._stalls.evaluated(now):
                self.handle(g.Stop(task, time=now))

    def _output(self, process: TaskProcess, event: Message) -> None:
        self._report.printed(process, process.output.feed(event))
        self._processes.credit(process, process.output.size - event["offset"])
        self._changed()

    def _on_packet(self, process: TaskProcess, event: Message) -> None:
        if self._conversing and is_live(event["data"]):
            self._session.on_packet(process, event)
        elif is_over(event["data"]):
            self._guard.call("end", None, self._finishes, process, event)
        else:
            report = process.output.on_packet(event["data"])
            if isinstance(report, TooLate):
                found = Unknown(report.name, report.at)
                self.programs[process.task].assigned.late.append(found)
            if isinstance(report, Window):
                self._slow.measured(process, report)
            self._report.reported(process, report)
        self._changed()

    def _finishes(self, process: TaskProcess, event: Message) -> None:
        """Let the others know at once of a failure; the process itself may take long to end."""
        process.away = self._pool.node(process.task).away
        end = process.finishes(parsed(event["data"]), time.monotonic())
        if end.failed and process is self._processes.of(process.task):
            if involves_others(end):
                self._stalls.locate()
            why = self._exits.add(self._with_link(process, end), gone=False)
            self.handle(self._ended_event(g.Failing, process, end, why))

    def _doubt(self, process: TaskProcess, end: Exit) -> None:
        """Take an exit; first ask the scheduler whether it imposed it."""
        if end.imposed and self._pool.node(process.task).host.job:
            task = asyncio.create_task(self._ask(process, end))
            self._explanations.add(task)
            task.add_done_callback(self._explanations.discard)
        else:
            self._exited(process, end)

    async def _ask(self, process: TaskProcess, end: Exit) -> None:
        why = await self._pool.why(process.task)
        self._exited(process, (why and process.explained(why)) or end)

    def _exited(self, process: TaskProcess, end: Exit) -> None:
        if self._guard.call("failure", None, involves_others, end):
            self._stalls.locate()
        why = self._exits.add(self._with_link(process, end))
        self._session.exited(process)
        self._stalls.gone(process)
        self.handle(self._ended_event(g.Exited, process, end, why))

    def _linked(self, end: Exit) -> Exit:
        """Return an earlier end with what is known by now of the connection to its machine."""
        return self._with_link(self._processes.named(end.task), end)

    def _with_link(self, process: TaskProcess, end: Exit) -> Exit:
        """Return an end with what is known of the connection to its machine until then."""
        since = max(process.began, end.time - LINK_SECONDS)
        node = self._pool.node(process.task)
        seconds = node.channel.lease.latest(since)
        return replace(end, unanswered=seconds, away=node.away) if seconds and node.away else end

    def _ended_event(
        self, kind: type[g.Exited], process: TaskProcess, end: Exit, why: g.FailureKind
    ) -> g.Exited:
        trains = self._roles[process.task] is not g.Role.EVALUATOR
        reached = self._comparison.of(process.output.training.furthest) if trains else None
        return kind(process.task, end.attempt, end.own[0], why, end.moment, reached)

    def lost(self, loss: Loss) -> None:
        """Handle the loss of an agent, and of its workers with it."""
        self._note("lost", host=loss.host, tasks=list(map(str, loss.tasks)), why=loss.why)
        for task in loss.tasks:
            process = self._processes.of(task)
            if process is None or process.state is TaskState.ENDED:
                continue
            if process.began < loss.time:  # or it is another one, elsewhere
                process.away = None if loss.here else loss.host
                self._exited(process, process.lost(loss.host, loss.time, loss.why))

    def abandoned(self) -> None:
        """End, as no agent is left that could report how the processes end."""
        for process in list(self._processes):
            if process.state is not TaskState.ENDED:
                process.away = self._pool.node(process.task).away
                self._exited(process, process.lost(process.away or "", time.monotonic(), UNHEARD))

    # Its status.

    def status(self) -> RunStatus:
        """Return the run's status."""
        return self._report.status(
            script=self._script,
            live=self.live,
            placing=self._moving is not None,
            tasks={str(task): self._task_status(task) for task in self.gang.tasks},
            stall=self._stalls.current,
            slow=self._slow.verdict,
            forecast=self._slow.forecast,
            setbacks=self._exits.resumed(self.gang.attempt, self._trained("began")),
            notices=(
                *self._processes.started(),
                *self._processes.outside(),
                *self._processes.full(),
                *self._processes.cut(),
            ),
            examined=self._stalls.examined,
        )

    def _trained(self, what: Literal["began", "place"]) -> Reached | None:
        """Return where the first task that reports its training began, or is."""
        tasks = [task for task, role in self._roles.items() if role is not g.Role.EVALUATOR]
        processes = filter(None, map(self._processes.of, tasks))
        found = (getattr(process.output.training, what) for process in processes)
        return next(filter(None, found), None)

    @property
    def _script(self) -> str:
        return next(iter(self.programs.values()), self._first).launch.script

    def _task_status(self, task: Task) -> TaskStatus:
        """Return a task's status; its address may be newer than its process."""
        process = self._processes.of(task)
        address = self._pool.spec.addresses[task]
        if process is None:
            return TaskStatus(address=address)
        status = process.status(address, importing=self._processes.importing(process))
        return replace(status, live=self._session.doing(str(task)))

    def write(self, status: Mapping[str, Any] | None = None) -> None:
        """Write the run's state to its record; a final state is on disk on return.

        `status` is the status as JSON values, where it is known.
        """
        self._report.write(self.status().as_json() if status is None else status, self.programs)

    def flush(self) -> None:
        """Wait until its record, and what else is written of it, is on disk."""
        self._report.flush()


class _Timers:
    """Timers, one for each thing that becomes due."""

    def __init__(self, expired: Callable[[Due], None]) -> None:
        self._expired = expired
        self._handles: dict[Due, asyncio.TimerHandle] = {}

    def set(self, due: Due, seconds: float) -> None:
        """Set a timer, in place of the one that was set for this before."""
        self.cancel(due)
        loop = asyncio.get_running_loop()
        self._handles[due] = loop.call_later(seconds, self._expire, due)

    def cancel(self, due: Due) -> None:
        """Cancel a timer, if it is set."""
        handle = self._handles.pop(due, None)
        if handle is not None:
            handle.cancel()

    def clear(self) -> None:
        """Cancel all timers."""
        for due in list(self._handles):
            self.cancel(due)

    def _expire(self, due: Due) -> None:
        self._handles.pop(due, None)
        self._expired(due)
