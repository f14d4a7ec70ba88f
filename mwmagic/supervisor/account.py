"""What a run's record holds besides its status: its provenance, measurements and exits."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil

from mwmagic import gang as g
from mwmagic.diagnosis import diagnose, kind
from mwmagic.frameworks import framework_for
from mwmagic.logs.progress import Update
from mwmagic.model.status import Setback
from mwmagic.record.metrics import HISTORY, LOGGED, REPORTED, Durations, Extremes
from mwmagic.record.provenance import commit, versions

from .training import History

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mwmagic.diagnosis import Exit
    from mwmagic.logs.guard import Guard
    from mwmagic.model.cluster import Task
    from mwmagic.model.findings import Cause
    from mwmagic.model.options import ClusterOptions
    from mwmagic.record import RunDirectory

    from .process import TaskProcess
    from .program import TaskProgram
    from .training import Report

__all__ = ["Account", "Exits", "Measurements"]

UNDISTURBED_SECONDS = 0.1
"""How long the processes of a run have the processors to themselves before git is asked."""

_STEP = (REPORTED, "train", False)
"""The source, kind and finality of what Keras reports of a step."""

_REMEDIAL = ("keras", "restarts")
"""The options that remedies recommend."""


class Account:
    """Collects the facts of a run: what was launched, from which versions, with what result.

    Attributes
    ----------
    durations : Durations
        The seconds in each state; `enter` each new state here.
    extremes : Extremes
        The last and the best metrics; pass each entry to `take`.
    """

    def __init__(self, options: ClusterOptions, state: str, changed: Callable[[], None]) -> None:
        self.durations = Durations(state, time.monotonic())
        self.extremes = Extremes()
        self._options = options
        self._changed = changed
        self._provenance: dict[str, Any] = {}
        own = psutil.Process()
        self._supervisor = {"pid": own.pid, "started": own.create_time()}
        loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = loop.call_later(UNDISTURBED_SECONDS, self.learn)

    def learn(self) -> None:
        """Find out what the run came from, unless that has begun."""
        if self._later is None:
            return
        self._later.cancel()
        self._later = None
        arguments = (asyncio.get_running_loop(),)
        thread = threading.Thread(target=self._learn, args=arguments, name="mwmagic-provenance")
        thread.daemon = True
        thread.start()

    def _learn(self, loop: asyncio.AbstractEventLoop) -> None:
        framework = framework_for(self._options.framework).module
        keras = "tf_keras" if self._options.keras == "legacy" else "keras"
        found = {"versions": versions((framework, keras)), "git": commit(self._options.root)}
        with suppress(RuntimeError):  # the loop is closed, and with it the record
            loop.call_soon_threadsafe(self._learned, found)

    def _learned(self, found: dict[str, Any]) -> None:
        self._provenance = found
        self._changed()

    def as_json(self, programs: Mapping[Task, TaskProgram], *, over: bool) -> dict[str, Any]:
        """Return the facts as JSON values."""
        options = self._options.as_json()
        del options["env"]  # `launches` holds the values that were given
        return {
            "supervisor": self._supervisor,
            "options": options,
            "launches": {str(task): self._launch(one) for task, one in programs.items()},
            "env": sorted({name for one in programs.values() for name in one.launch.env}),
            "durations": self.durations.as_json(None if over else time.monotonic()),
            "metrics": self.extremes.as_json(),
            **self._provenance,
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
        }


class Measurements:
    """Records metrics, printed ones and reported ones."""

    def __init__(self, directory: RunDirectory, extremes: Extremes) -> None:
        self._directory = directory
        self._extremes = extremes
        self._noted: set[tuple[str, int]] = set()

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
        elif isinstance(report, Update) and report.metrics:
            self._record(process, REPORTED, vars(report))

    def _note_unreadable(self, process: TaskProcess) -> None:
        key = (str(process.task), process.attempt)
        if process.unreadable is None or key in self._noted:
            return
        self._noted.add(key)
        task, attempt = key
        self._directory.event("unreadable", task=task, attempt=attempt, error=process.unreadable)

    def _record(self, process: TaskProcess, source: str, entry: dict[str, Any]) -> None:
        entry = {"source": source, "attempt": process.attempt, **entry}
        self._directory.metric(task=str(process.task), **entry)
        # Of what Keras reports the best is that of an epoch, not of one step.
        if entry["kind"] != HISTORY and (source, entry["kind"], entry["final"]) != _STEP:
            self._extremes.take(str(process.task), entry)


class Exits:
    """The exits of a run's processes.

    Attributes
    ----------
    setbacks : list of Setback
        The attempts that failed and were followed by another, each with its cause.
    """

    def __init__(
        self,
        directory: RunDirectory,
        roles: Mapping[Task, g.Role],
        options: ClusterOptions,
        guard: Guard,
    ) -> None:
        self._directory = directory
        self._auxiliary = {str(task) for task, role in roles.items() if role is g.Role.EVALUATOR}
        self._options = {name: str(getattr(options, name)) for name in _REMEDIAL}
        self._guard = guard
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
        return self._guard.call("diagnosis", None, diagnose, decisive, self._options)

    def set_back(self, attempt: int) -> None:
        """Record why an attempt failed that another one follows."""
        cause = self.cause(attempt)
        if cause is not None:
            self.setbacks.append(Setback(attempt, cause))
            self._directory.event("setback", **self.setbacks[-1].as_json())
