"""What is reported of a run: its status and its record, which outlives it."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mwmagic import gang as g
from mwmagic.diagnosis import diagnose, kind
from mwmagic.frameworks import framework_for
from mwmagic.logs import Guard
from mwmagic.logs.progress import Update
from mwmagic.model.findings import Finding, Remark, Symptom, Window
from mwmagic.model.machine import several
from mwmagic.model.status import Delay, RunState, RunStatus, Setback
from mwmagic.record.metrics import (
    GIVEN,
    HISTORY,
    LOGGED,
    REPORTED,
    STEPS,
    USAGE,
    Durations,
    Extremes,
)
from mwmagic.record.provenance import commit, versions
from mwmagic.record.reader import this_process

from .training import FitVariables, History

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mwmagic.diagnosis import Exit
    from mwmagic.experiments.trackers import LiveEvents
    from mwmagic.model.cluster import Task
    from mwmagic.model.findings import Cause
    from mwmagic.model.machine import HostStatus, MachineStatus
    from mwmagic.model.options import ClusterOptions
    from mwmagic.model.status import GivenUp, ParserFault, Reached
    from mwmagic.record import RunDirectory

    from .pool import MachinePool
    from .process import TaskProcess
    from .program import TaskProgram
    from .training import Report

__all__ = ["Exits", "RunReport"]

UNDISTURBED_SECONDS = 0.1
"""How long the processes of a run have the CPUs to themselves before git is asked."""

WARNING_SECONDS = 300.0
"""How long before a job's limit a remark says so."""

_STEP = (REPORTED, "train", False)
"""The source, kind and finality of what Keras reports of a step."""

USAGE_SECONDS = 2.0, 60.0
"""The least time between two entries of what a task uses, at first and in a long run."""

USAGE_RATIO = 200
"""How many times as long a run has lasted as this time is, between the two."""

_REMEDIAL = ("keras", "restarts")
"""The options that remedies recommend."""


class RunReport:
    """Collects what is known of a run besides its tasks, and writes its record.

    `guard` calls the parsers of what its tasks print, and reports their first faults here; `cause`
    is why the run failed, `unplaced` why no machines were found for its latest restart.
    """

    def __init__(
        self,
        directory: RunDirectory,
        pool: MachinePool,
        gang: g.Gang,
        options: ClusterOptions,
        changed: Callable[[], None],
    ) -> None:
        self.guard = Guard(self._misread)
        self.cause: Cause | None = None
        self.unplaced: str | None = None
        self._directory = directory
        self._pool = pool
        self._gang = gang
        self._changed = changed
        self._provenance = Provenance(options, changed)
        self._durations = Durations(gang.state.value, time.monotonic())
        self._extremes = Extremes()
        self._measurements = Measurements(directory, self._extremes)
        self._faults: list[ParserFault] = []
        self._delay: Delay | None = None
        self._given_up: GivenUp | None = None
        self._started = time.time()
        self._ended: float | None = None
        self._remarks: tuple[Remark, ...] = ()
        self._refusals: tuple[Remark, ...] = ()
        self._warned: list[Remark] = []
        self._hosts: tuple[HostStatus, ...] = ()
        self._events: LiveEvents | None = None
        if options.tracker == "tensorboard":
            from mwmagic.experiments.trackers import LiveEvents  # which few runs need

            self._events = LiveEvents(directory, options.root / "tensorboard")
        self.note("created", tasks=list(map(str, options.members)))

    @property
    def over(self) -> bool:
        """Whether the run reached its final state, and all that explains its end is known."""
        return self._ended is not None

    def note(self, event: str, **fields: Any) -> None:  # noqa: ANN401 - JSON values
        """Record an event."""
        self._directory.event(event, **fields)

    def _misread(self, fault: ParserFault) -> None:
        """Record the first fault of a parser, whose results may be incomplete."""
        self._faults.append(fault)
        self.note("fault", **fault.as_json())
        self._changed()

    def launched(self, task: Task, program: TaskProgram) -> None:
        """Record the launch of a task."""
        launch = program.launch
        what = {"script": launch.script, "args": list(launch.args), "env": dict(launch.given)}
        self.note("launch", task=str(task), **what)

    def entered(self, state: RunState) -> None:
        """Record the run's new state."""
        self.note("state", state=state.value, attempt=self._gang.attempt)
        self._durations.enter(state.value, time.monotonic())

    def waits(self, seconds: float) -> None:
        """Record for how long the next attempt waits, and by what measure."""
        by: Literal["step", "time"] = "step" if self._gang.progress.stepwise else "time"
        self._delay = Delay(seconds, by) if seconds else None
        if self._delay is not None:
            self.note("delay", **self._delay.as_json())

    def printed(self, process: TaskProcess, updates: Iterable[Update]) -> None:
        """Record the metrics that a process printed."""
        self._measurements.printed(process, updates)

    def reported(self, process: TaskProcess, report: Report | None) -> None:
        """Record the metrics that a process reported beside its log."""
        self._measurements.reported(process, report)

    def used(self, process: TaskProcess, machine: Mapping[str, Any], now: float) -> None:
        """Record what a process, and its machine's network, used until now."""
        self._measurements.used(process, machine, now)

    def ended(self, action: g.Ended, cause: Cause | None, remarks: tuple[Remark, ...]) -> None:
        """Record how the run ended."""
        self._provenance.find()
        self._remarks, self._given_up, self.cause = remarks, action.given_up, cause
        self._look_at_hosts()
        given_up = action.given_up and action.given_up.value
        self._directory.end()
        why = cause and cause.as_json()
        self.note("ended", state=action.state.value, cause=why, given_up=given_up)
        self._ended = time.time()

    def status(self, *, placing: bool, notices: Sequence[Remark], **parts: Any) -> RunStatus:  # noqa: ANN401 - fields of `RunStatus`
        """Return the run's status, with the parts of it that others know.

        `placing` says whether it waits for machines, and `notices` what its processes noticed.
        """
        self._look_at_hosts()
        gang, now = self._gang, self._pool.placing
        return RunStatus(
            number=self._directory.number,
            directory=str(self._directory.path),
            state=gang.state,
            attempt=gang.attempt,
            restarts=gang.restarts,
            limit=gang.policy.restarts,
            delay=self._delay if gang.state is RunState.BACKOFF else None,
            placing=now.message if placing and now.state == "waiting" else None,
            given_up=self._given_up,
            unplaced=self.unplaced,
            started=self._started,
            ended=self._ended,
            hosts=self._hosts,
            cause=self.cause,
            trouble=self._directory.trouble,
            remarks=(*notices, *self._remarks, *self._limits(), *self._unused()),
            faults=tuple(self._faults),
            outcome=gang.outcome,
            **parts,
        )

    def _limits(self) -> tuple[Remark, ...]:
        """Return a warning for each job that ends soon; each is noted once."""
        near = () if self.over else _job_limits(self._pool.machines, time.time())
        for remark in near:
            if remark not in self._warned:
                self._warned.append(remark)
                self.note("limit", **remark.as_json())
        return near

    def _unused(self) -> tuple[Remark, ...]:
        """Return which machines restarts of this run could not use."""
        if not self.over and self._gang.restarts:
            self._refusals = self._pool.unused
        return self._refusals

    def _look_at_hosts(self) -> None:
        """Note the hosts as they are now, unless the run is over or they are being replaced."""
        machines = self._pool.machines
        placed = sum(len(machine.tasks) for machine in machines)
        if self._ended is None and placed == len(self._gang.tasks):
            self._hosts = several(machines)

    def write(self, status: Mapping[str, Any], programs: Mapping[Task, TaskProgram]) -> None:
        """Write the run's state to its record; a final state is on disk on return."""
        facts = {
            **self._provenance.as_json(programs),
            "durations": self._durations.as_json(None if self.over else time.monotonic()),
            "metrics": self._extremes.as_json(),
            "shares": self._pool.shares,  # for a script that repeats the run
        }
        self._directory.write({**status, **facts})
        if self.over:
            self._directory.flush()
            if self._events is not None:
                self._events.end()

    def flush(self) -> None:
        """Wait until all is written."""
        self._directory.flush()
        if self._events is not None:
            self._events.flush()


def _job_limits(machines: Sequence[MachineStatus], now: float) -> tuple[Remark, ...]:
    """Return a warning for each job that ends soon, with the tasks that end with it."""
    near = [one for one in machines if one.until is not None and one.until - now < WARNING_SECONDS]
    jobs = dict.fromkeys((one.job, one.until) for one in near)
    return tuple(
        Remark(
            tasks=tuple(task for one in near if one.job == job for task in one.tasks),
            finding=Finding(Symptom.JOB_ENDS, job=job or None, until=until),
        )
        for job, until in jobs
    )


class Provenance:
    """Finds out what a run came from: what was launched, by whom, from which versions."""

    def __init__(self, options: ClusterOptions, changed: Callable[[], None]) -> None:
        self._options = options
        self._changed = changed
        self._found: dict[str, Any] = {}
        self._supervisor = this_process()
        loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = loop.call_later(UNDISTURBED_SECONDS, self.find)

    def find(self) -> None:
        """Find out the versions, unless that has begun."""
        if self._later is None:
            return
        self._later.cancel()
        self._later = None
        arguments = (asyncio.get_running_loop(),)
        thread = threading.Thread(target=self._find, args=arguments, name="mwmagic-provenance")
        thread.daemon = True
        thread.start()

    def _find(self, loop: asyncio.AbstractEventLoop) -> None:
        framework = framework_for(self._options.framework).module
        keras = "tf_keras" if self._options.keras == "legacy" else "keras"
        found = {"versions": versions((framework, keras)), "git": commit(self._options.root)}
        with suppress(RuntimeError):  # the loop is closed, and with it the record
            loop.call_soon_threadsafe(self._set, found)

    def _set(self, found: dict[str, Any]) -> None:
        self._found = found
        self._changed()

    def as_json(self, programs: Mapping[Task, TaskProgram]) -> dict[str, Any]:
        """Return the facts as JSON values."""
        options = self._options.as_json()
        del options["env"]  # `launches` holds the values that were given
        return {
            "supervisor": self._supervisor,
            "options": options,
            "launches": {str(task): self._launch(one) for task, one in programs.items()},
            "env": sorted({name for one in programs.values() for name in one.launch.env}),
            **self._found,
        }

    def _launch(self, program: TaskProgram) -> dict[str, Any]:
        """Return what was launched, with the values of the variables that the user gave."""
        launch = program.launch
        return {
            "script": launch.script,
            "source": program.source.name,
            "cell": launch.cell,
            "args": list(launch.args),
            "cwd": launch.cwd,
            "given": {**self._options.env, **launch.given},
            "trial": launch.trial,
        }


class Measurements:
    """Records metrics, printed ones and reported ones."""

    def __init__(self, directory: RunDirectory, extremes: Extremes) -> None:
        self._directory = directory
        self._extremes = extremes
        self._noted: set[tuple[str, int]] = set()
        self._began: float | None = None
        self._used: dict[str, _Used] = {}

    def printed(self, process: TaskProcess, updates: Iterable[Update]) -> None:
        """Record what a process printed."""
        for update in updates:
            if update.metrics:
                self._record(process, LOGGED, vars(update))

    def reported(self, process: TaskProcess, report: Report | None) -> None:
        """Record what a process reported beside its log; note once what cannot be read."""
        if report is None:
            self._note_unreadable(process)
        elif isinstance(report, History):
            self._record(process, REPORTED, {"kind": HISTORY, **vars(report)})
        elif isinstance(report, FitVariables):
            self._record(process, REPORTED, {"kind": GIVEN, **vars(report)})
        elif isinstance(report, Window):
            found = {"task": str(process.task), "attempt": process.attempt}
            self._directory.metric(source=REPORTED, kind=STEPS, **found, steps=report.as_json())
        elif isinstance(report, Update) and (report.metrics or report.step is not None):
            self._record(process, REPORTED, vars(report))

    def used(self, process: TaskProcess, machine: Mapping[str, Any], now: float) -> None:
        """Record what a process used since the last entry, if that is long enough ago."""
        if self._began is None:
            self._began = now
        task, age = str(process.task), now - self._began
        before = self._used.get(task)
        new = _Used(process.attempt, now, {**machine, **process.usage})
        if before is None or before.attempt != new.attempt:
            self._used[task] = new
        elif process.usage.get("memory") == 0:
            return  # it has just ended
        elif now - before.time >= sorted((*USAGE_SECONDS, age / USAGE_RATIO))[1]:
            self._used[task] = new
            found = {"task": task, "attempt": process.attempt, "seconds": round(age, 1)}
            self._directory.metric(kind=USAGE, **found, usage=new.since(before))

    def _note_unreadable(self, process: TaskProcess) -> None:
        key = (str(process.task), process.attempt)
        unreadable = process.output.training.unreadable
        if unreadable is None or key in self._noted:
            return
        self._noted.add(key)
        task, attempt = key
        self._directory.event("unreadable", task=task, attempt=attempt, error=unreadable)

    def _record(self, process: TaskProcess, source: str, entry: dict[str, Any]) -> None:
        entry = {"source": source, "attempt": process.attempt, **entry}
        self._directory.metric(task=str(process.task), **entry)
        # If Keras reports it, the best value is that of an epoch, not of one step.
        if (
            entry["kind"] not in (HISTORY, GIVEN)
            and (source, entry["kind"], entry["final"]) != _STEP
        ):
            self._extremes.add(str(process.task), entry)


class _Used(NamedTuple):
    """What a process, and its machine's network, have used until a moment."""

    attempt: int
    time: float
    totals: Mapping[str, Any]

    def since(self, before: _Used) -> dict[str, float]:
        """Return what it used per second since an earlier moment, and uses now."""
        seconds = self.time - before.time
        found: dict[str, float] = {}
        for name in _TOTALS:
            if name in self.totals and name in before.totals:  # less, if one of several has ended
                used = max(self.totals[name] - before.totals[name], 0) / seconds
                found["cpus" if name == "cpu" else name] = round(used, 3)
        found["memory"] = self.totals.get("memory", 0)
        gpus = self.totals.get("gpus")
        if gpus:
            found["gpu"] = round(sum(percent for percent, _ in gpus) / len(gpus) / 100, 3)
            found["gpu_memory"] = sum(size for _, size in gpus)
        return found


_TOTALS = ("cpu", "read", "written", "received", "sent")
"""What an agent reports the total of."""


class Exits:
    """The exits of a run's processes, and the attempts that failed and were followed by another."""

    def __init__(
        self,
        directory: RunDirectory,
        roles: Mapping[Task, g.Role],
        options: ClusterOptions,
        guard: Guard,
        linked: Callable[[Exit], Exit],
    ) -> None:
        self._directory = directory
        self._auxiliary = {str(task) for task, role in roles.items() if role is g.Role.EVALUATOR}
        self._options = {name: str(getattr(options, name)) for name in _REMEDIAL}
        self._guard = guard
        self._linked = linked
        self.setbacks: list[Setback] = []
        self._exits: list[Exit] = []

    def add(self, end: Exit, *, gone: bool = True) -> g.FailureKind:
        """Record an exit and return what kind of failure it is.

        If the process is not gone yet, it is its program's end, whose place its exit takes.
        """
        self._drop(end.task, end.attempt)
        self._exits.append(end)
        self._directory.event(
            "exited" if gone else "over",
            task=end.task,
            attempt=end.attempt,
            moment=end.moment,
            code=end.code,
            signal=end.signal,
            ended=end.ended,
            finding=end.finding.as_json(),
            report=end.report,
        )
        return self._guard.call("failure", g.FailureKind.PRIMARY, kind, end)

    def forgive(self, task: Task, attempt: int) -> None:
        """Forget a failure that the gang survives: it explains no later one."""
        self._drop(str(task), attempt)

    def _drop(self, task: str, attempt: int) -> None:
        dropped = (task, attempt)
        self._exits = [end for end in self._exits if (end.task, end.attempt) != dropped]

    def forget(self, attempt: int) -> None:
        """Forget the ends of an attempt's programs: they explain no later end of a process."""
        self._exits = [end for end in self._exits if end.attempt != attempt]

    def cause(self, attempt: int) -> Cause | None:
        """Return why an attempt failed; an evaluator is never the cause."""
        ended = [end for end in self._exits if end.attempt == attempt]
        decisive = [end for end in ended if end.task not in self._auxiliary]
        # A machine may have fallen silent since its task finished.
        decisive = [self._linked(end) if end.code == 0 else end for end in decisive]
        return self._guard.call("diagnosis", None, diagnose, decisive, self._options)

    def resumed(self, attempt: int, began: Reached | None) -> tuple[Setback, ...]:
        """Return the attempts that failed; the latest one with where the attempt after it began."""
        if began is None or not self.setbacks or self.setbacks[-1].attempt + 1 != attempt:
            return tuple(self.setbacks)
        return (*self.setbacks[:-1], replace(self.setbacks[-1], resumed=began))

    def set_back(self, attempt: int, began: Reached | None, reached: Reached | None) -> None:
        """Record why an attempt failed that another one follows, and where it was."""
        cause = self.cause(attempt)
        if cause is not None:
            self.setbacks = [*self.resumed(attempt, began), Setback(attempt, cause, reached)]
            self._directory.event("setback", **self.setbacks[-1].as_json())
