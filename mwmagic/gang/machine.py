"""The gang's state machine: an event in, a list of actions out.

It does no I/O and reads no clock, so it can be simulated with thousands of
tasks. The cost of an event does not depend on the size of the gang, except for
events that start or end all tasks.

The life of a run::

    forming ──all launched──▶ running ──all peers done──▶ ending ──▶ finished
       │                         │                           ▲
       └──── a peer failed ──────┴──▶ ending ─┬─ cannot be retried ──▶ failed
                                              ├─ no new step again and again ──▶ failed
                                              ├─ port taken ──▶ running, on new ports
                                              └─ otherwise ──▶ backoff ──▶ running
    stop, from anywhere ──▶ ending ──▶ stopped

Where processes stay when their programs are over::

    running ──all programs over──▶ kept ──stop──▶ ending ──▶ finished, or failed

A run is done when its peers are, even if a task that only serves or evaluates
was never launched. An evaluator may then finish its evaluation. Actions can be
lost with the machine they are sent to, so an action that ends a process is
repeated until the process is gone.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from mwmagic.model.status import STUCK_TRIES, GivenUp, RunState

from .events import (
    Action,
    Backoff,
    CancelTimer,
    Deadline,
    Due,
    EndAll,
    Ended,
    EndTask,
    Event,
    Exited,
    Failing,
    FailureKind,
    KillAgain,
    Launched,
    ProgramsOver,
    Rebind,
    Restart,
    RestartTask,
    SetTimer,
    StartTask,
    Stop,
    Timer,
)
from .policy import (
    PORT_TRIES,
    REPLACEMENT_TRIES,
    AttemptProgress,
    Policy,
    Role,
    TrainingPoint,
    roles,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mwmagic.model.cluster import Task

__all__ = ["Gang"]

_END_AGAIN_SECONDS = 2.0
"""How long a process may take to go away before the request to end it is repeated."""

_WEIGHT = {
    FailureKind.CONSEQUENCE: 0,
    FailureKind.PRIMARY: 1,
    FailureKind.PORT: 2,
    FailureKind.PERMANENT: 3,
}
"""Which failure decides about a retry: the one that a retry is least likely to fix."""


class _Aim(Enum):
    """Why the gang is ending."""

    FINISH = "finish"
    STOP = "stop"
    RELEASE = "release"
    RETRY = "retry"
    RESTART = "restart"


@dataclass
class Gang:
    """The tasks of one run, which start, fail and restart together."""

    tasks: Sequence[Task]
    policy: Policy = field(default_factory=Policy)
    time: float = 0.0
    """The current monotonic time, in seconds; each event carries a later one."""

    state: RunState = field(default=RunState.FORMING, init=False)
    attempt: int = field(default=1, init=False)
    restarts: int = field(default=0, init=False)
    progress: AttemptProgress = field(default_factory=AttemptProgress, init=False)

    def __post_init__(self) -> None:
        self._roles = roles(self.tasks)
        self._peers = Counter(self._roles.values())[Role.PEER]
        self._evaluators = [task for task in self.tasks if self._roles[task] is Role.EVALUATOR]
        self._launched: set[Task] = set()
        self._alive: dict[Task, float] = {}  # task -> start time
        self._done: set[Task] = set()  # peers that succeeded
        self._retired: set[Task] = set()  # stopped individually
        self._again: set[Task] = set()  # launched again while alive
        self._awaited: set[Task] = set()  # to be replaced after a backoff
        self._replaced: Counter[Task] = Counter()  # consecutive replacements
        self._moved = 0  # consecutive moves to new ports
        self._task_progress: defaultdict[Task, AttemptProgress] = defaultdict(
            AttemptProgress
        )  # of those replaced
        self._aim = _Aim.FINISH
        self._stopping = False
        self._failure: Exited | None = None  # the one that decides about a retry
        self._deadline = math.inf  # when the tasks that were asked to end are killed
        self._since = self.time  # when the attempt began
        self._reached: TrainingPoint | None = None  # the furthest that a task came in it
        self._outcome: RunState | None = None  # of programs whose processes are kept

    # Queries.

    @property
    def missing(self) -> tuple[Task, ...]:
        """The tasks that have not been launched yet."""
        return tuple(task for task in self.tasks if task not in self._launched)

    @property
    def alive(self) -> frozenset[Task]:
        """The tasks that have a process."""
        return frozenset(self._alive)

    @property
    def stopping(self) -> bool:
        """Whether the run was stopped on request, so that it is not started again."""
        return self._stopping

    @property
    def outcome(self) -> RunState | None:
        """How the programs ended, once their processes are kept."""
        return self._outcome

    @property
    def evaluating(self) -> bool:
        """Whether training is done and only evaluators keep the run going."""
        done = self.state is RunState.ENDING and self._aim is _Aim.FINISH
        return done and self._deadline == math.inf

    def launched(self, task: Task) -> bool:
        """Return whether `task` was launched."""
        return task in self._launched

    def handle(self, event: Event) -> list[Action]:
        """Process one event and return the actions to take.

        Events that arrive too late, for an attempt or a run that is over, are
        ignored.
        """
        if self.state.final:
            return []
        self.time = max(self.time, event.time)
        if isinstance(event, Launched):
            return self._launch(event.task)
        if isinstance(event, Failing):
            return self._failing(event)
        if isinstance(event, Exited):
            return self._exited(event)
        if isinstance(event, Timer):
            return self._timer(event.due)
        return self._requested(event)

    def _requested(self, event: Stop | Restart | ProgramsOver) -> list[Action]:
        if isinstance(event, Stop):
            return self._stop(event)
        return self._keep(event) if isinstance(event, ProgramsOver) else self._restart()

    # Starting.

    def _launch(self, task: Task) -> list[Action]:
        if self.state is RunState.FORMING:
            return self._join(task)
        if self.state is RunState.BACKOFF or self._aim in (_Aim.RETRY, _Aim.RESTART):
            self._launched.add(task)  # it will start with the others
            self._retired.discard(task)
        return []

    def _join(self, task: Task) -> list[Action]:
        self._launched.add(task)
        self._retired.discard(task)
        self._done.discard(task)
        if task in self._alive:
            self._again.add(task)
            return self._end(task, 0.0)
        actions = self._start(task)
        if self._complete:
            self.state, self._since = RunState.RUNNING, self.time
        return actions

    @property
    def _complete(self) -> bool:
        return len(self._launched) == len(self.tasks)

    def _start(self, task: Task) -> list[Action]:
        self._awaited.discard(task)
        self._alive[task] = self.time
        return [StartTask(task, self.attempt)]

    def _start_all(self) -> list[Action]:
        self.attempt += 1
        self.state = RunState.RUNNING if self._complete else RunState.FORMING
        self._since, self._deadline = self.time, math.inf
        self._aim, self._failure = _Aim.FINISH, None
        self._reached = self._outcome = None
        self._done.clear()
        self._replaced.clear()
        self._task_progress.clear()
        started = self._launched - self._retired
        return [action for task in self.tasks if task in started for action in self._start(task)]

    # Exits.

    def _exited(self, event: Exited) -> list[Action]:
        task = event.task
        if event.attempt != self.attempt or task not in self._alive:
            return []
        lived = event.time - self._alive.pop(task)
        self._measure(event)
        if self.state is RunState.ENDING:
            return self._ending(event)
        if task in self._again:
            self._again.discard(task)
            return self._start(task)
        return self._judge(event, lived)

    def _failing(self, event: Failing) -> list[Action]:
        """End the others of a task whose own end will fail them; `_exited` judges all else."""
        task = event.task
        if event.attempt != self.attempt or task not in self._alive or task in self._again:
            return []
        if self.state is RunState.ENDING:
            return self._settle() if self._note(event) else []
        alone = self._roles[task] in (Role.EVALUATOR, Role.REPLACEABLE) or task in self._retired
        if alone or self.policy.stays:
            return []
        self._measure(event)
        return self._fail(event)

    def _measure(self, event: Exited) -> None:
        """Note how far the attempt came; an evaluator does not train."""
        if event.reached is not None and self._roles[event.task] is not Role.EVALUATOR:
            self._reached = max(event.reached, self._reached or event.reached)

    def _judge(self, event: Exited, lived: float) -> list[Action]:
        role = self._roles[event.task]
        if role is Role.EVALUATOR or event.task in self._retired:
            return []
        if role is Role.REPLACEABLE:
            return [] if event.succeeded else self._replace(event, lived)
        if role is Role.PEER and event.succeeded and not self.policy.stays:
            return self._finish(event.task)
        return self._fail(event)

    def _replace(self, event: Exited, lived: float) -> list[Action]:
        """Restart a task without the others: at once, or later if it failed as soon as before."""
        task, limit = event.task, max(self.policy.restarts, REPLACEMENT_TRIES)
        if lived >= self.policy.healthy:
            del self._replaced[task]
        if event.failure is FailureKind.PERMANENT or self._replaced[task] >= limit:
            return self._fail(event)
        self._replaced[task] += 1
        self._awaited.add(task)
        progress = self._task_progress[task]
        progress.failed(None, lived)
        return [SetTimer(RestartTask(task), self.policy.delay(progress.short))]

    def _finish(self, task: Task) -> list[Action]:
        """Record a peer's success; the last one ends the run."""
        self._done.add(task)
        if len(self._done) < self._peers:
            return []
        if not self._evaluates:
            return self._end_all(_Aim.FINISH, self.policy.grace)
        self._aim, self.state = _Aim.FINISH, RunState.ENDING
        return [SetTimer(Deadline(), self.policy.evaluation)]

    @property
    def _evaluates(self) -> bool:
        """Whether an evaluator is alive and was not stopped."""
        return any(task in self._alive and task not in self._retired for task in self._evaluators)

    def _fail(self, event: Exited) -> list[Action]:
        self._failure, self._aim, self.state = event, _Aim.RETRY, RunState.ENDING
        return self._settle() if self._alive else self._all_gone()

    # Ending.

    def _end(self, task: Task, grace: float) -> list[Action]:
        return [
            EndTask(task, self.attempt, grace),
            SetTimer(KillAgain(task), grace + _END_AGAIN_SECONDS),
        ]

    def _end_all(self, aim: _Aim, grace: float) -> list[Action]:
        self._aim, self.state = aim, RunState.ENDING
        return self._end_attempt(grace) if self._alive else self._all_gone()

    def _end_attempt(self, grace: float) -> list[Action]:
        """End all tasks, unless an earlier deadline is already set."""
        deadline = self.time + grace
        if deadline >= self._deadline:
            return []
        self._deadline = deadline
        return [EndAll(self.attempt, grace), SetTimer(Deadline(), grace + _END_AGAIN_SECONDS)]

    def _settle(self) -> list[Action]:
        """End all tasks now, or wait while they save or the true cause may still arrive."""
        failure = self._failure
        if self._deadline < math.inf or failure is None:
            return []
        if _weight(failure) == _WEIGHT[FailureKind.CONSEQUENCE]:
            return [SetTimer(Deadline(), self.policy.settle)]
        if failure.saved and _weight(failure) == _WEIGHT[FailureKind.PRIMARY]:
            return [SetTimer(Deadline(), self.policy.saving)]
        return self._end_attempt(0.0)

    def _ending(self, event: Exited) -> list[Action]:
        noted = self._note(event)
        if not self._alive:
            return [CancelTimer(Deadline()), *self._all_gone()]
        if self.evaluating and not self._evaluates:
            return self._end_attempt(self.policy.grace)
        return self._settle() if noted else []

    def _note(self, event: Exited) -> bool:
        """Keep the failure that decides about a retry: the weightiest, or the first of equals."""
        kept = self._failure
        if self._aim is not _Aim.RETRY or event.succeeded or kept is None:
            return False
        innocent = self._roles[event.task] is Role.EVALUATOR or event.task in self._retired
        if innocent or _weight(event) <= _weight(kept):
            return False
        self._failure = event
        return True

    def _all_gone(self) -> list[Action]:
        self._again.clear()
        self._awaited.clear()
        if self._aim is _Aim.FINISH:
            return self._final(RunState.FINISHED)
        if self._aim is _Aim.RELEASE and self._outcome is not None:
            return self._final(self._outcome)
        if self._aim is _Aim.STOP:
            return self._final(RunState.STOPPED)
        if self._aim is _Aim.RESTART or self._failure is None:
            return self._start_all()
        return self._retry(self._failure)

    # Retries.

    def _retry(self, failure: Exited) -> list[Action]:
        lasted = failure.time - self._since
        if lasted >= self.policy.healthy:
            self.restarts = self._moved = 0
        kept = self._outcome is not None  # another attempt would run the programs again
        if failure.failure is FailureKind.PERMANENT or kept:
            return self._final(RunState.FAILED)
        if failure.failure is FailureKind.PORT and self._moved < PORT_TRIES:
            return self._move()
        if failure.saved and lasted >= self.policy.resume and not self.policy.stays:
            self.progress.saved(self._reached, lasted)
            return self._final(RunState.STOPPED) if self._stopping else self._back_off(0.0)
        self.progress.failed(self._reached, lasted)
        return self._try_again()

    def _move(self) -> list[Action]:
        if self._stopping:
            return self._final(RunState.STOPPED)
        self._moved += 1
        return [Rebind(), *self._start_all()]

    def _try_again(self) -> list[Action]:
        """Restart after a failure, unless that was done too often or leads nowhere."""
        if self.restarts >= self.policy.restarts or self.progress.stuck >= STUCK_TRIES:
            return self._final(RunState.FAILED, self._given_up)
        if self._stopping:
            return self._final(RunState.STOPPED)
        self._moved = 0
        self.restarts += 1
        return self._back_off(self.policy.delay(self.progress.short))

    @property
    def _given_up(self) -> GivenUp | None:
        """Why a run is not restarted any more, if it is one that restarts."""
        if not self.policy.restarts:
            return None
        return GivenUp.PROGRESS if self.progress.stuck >= STUCK_TRIES else GivenUp.RESTARTS

    def _back_off(self, seconds: float) -> list[Action]:
        self.state = RunState.BACKOFF
        return [SetTimer(Backoff(), seconds)]

    def _final(self, state: RunState, given_up: GivenUp | None = None) -> list[Action]:
        self.state = state
        return [Ended(state, given_up)]

    # Requests and timers.

    def _stop(self, event: Stop) -> list[Action]:
        grace = self.policy.grace if event.grace is None else event.grace
        alone = (Role.EVALUATOR, Role.REPLACEABLE)
        if event.task is not None and self._roles[event.task] in alone:
            return self._retire(event.task, grace)
        self._stopping = True
        decided = self.state is RunState.ENDING and self._aim is not _Aim.RESTART
        aim = _Aim.RELEASE if self.state is RunState.KEPT else _Aim.STOP
        cancel = self._cancel_backoff()
        return cancel + self._end_all(self._aim if decided else aim, grace)

    def _keep(self, event: ProgramsOver) -> list[Action]:
        """Note how the programs ended; what happens later is no longer theirs."""
        if self.state is RunState.RUNNING:
            self.state = RunState.KEPT
            self._outcome = RunState.FAILED if event.failed else RunState.FINISHED
        return []

    def _retire(self, task: Task, grace: float) -> list[Action]:
        self._retired.add(task)
        self._again.discard(task)
        self._awaited.discard(task)
        if self.evaluating and not self._evaluates:
            return self._end_attempt(grace)
        return self._end(task, grace) if self._open and task in self._alive else []

    @property
    def _open(self) -> bool:
        """Whether a single task may be ended: the whole attempt is not ending already."""
        return self.state is not RunState.ENDING or self.evaluating

    def _restart(self) -> list[Action]:
        if self._stopping:
            return []
        self.restarts = self._moved = 0
        self.progress = AttemptProgress()
        self._failure = None
        self._retired.clear()
        return self._cancel_backoff() + self._end_all(_Aim.RESTART, 0.0)

    def _cancel_backoff(self) -> list[Action]:
        return [CancelTimer(Backoff())] if self.state is RunState.BACKOFF else []

    def _timer(self, due: Due) -> list[Action]:
        if isinstance(due, Backoff):
            return self._start_all() if self.state is RunState.BACKOFF else []
        if isinstance(due, Deadline):
            return self._hurry() if self.state is RunState.ENDING else []
        if isinstance(due, RestartTask):
            return self._start_alone(due.task)
        return self._end_again(due.task)

    def _hurry(self) -> list[Action]:
        """End what is left at once, and repeatedly: a message may be lost with its machine."""
        self._deadline = self.time
        return [EndAll(self.attempt, 0.0), SetTimer(Deadline(), _END_AGAIN_SECONDS)]

    def _start_alone(self, task: Task) -> list[Action]:
        starts = self.state is not RunState.ENDING and task in self._awaited
        return self._start(task) if starts else []

    def _end_again(self, task: Task) -> list[Action]:
        leaves = task in self._again or task in self._retired
        return self._end(task, 0.0) if self._open and leaves and task in self._alive else []


def _weight(event: Exited) -> int:
    """Return the weight of an exit; one that saved its state ended for a reason of its own."""
    weight = _WEIGHT[event.failure]
    return max(weight, _WEIGHT[FailureKind.PRIMARY]) if event.saved else weight
