"""Runs the trials of a sweep on clusters, as any client would, and stops what is not worth it."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter, deque
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from mwmagic.errors import MwmagicError, RunActive, SupervisorError, SupervisorLost
from mwmagic.experiments.filters import Filter
from mwmagic.experiments.runs import facts_of
from mwmagic.experiments.sweep import OPEN, TrialState, TrialStatus, seed_of
from mwmagic.frameworks.environment import thread_environment
from mwmagic.model.status import RunState
from mwmagic.model.values import counted
from mwmagic.record import runs
from mwmagic.words.failure import stalled
from mwmagic.words.run import setback_words
from mwmagic.words.sweep import (
    begun_words,
    ended_words,
    findings,
    interrupted_words,
    memory_words,
    resume_words,
    sweep_words,
)

from .planning import AUTO, check_parallel, new_sweep
from .run import launch
from .study import StudyTrials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mwmagic.experiments.sweep import Sweep, Trial
    from mwmagic.model.status import RunStatus
    from mwmagic.record import Record

    from .cluster import Cluster
    from .run import Run

__all__ = [
    "SweepDriver",
    "check_idle",
    "companions",
    "conduct",
    "sweep_on",
]

_LOGGER = logging.getLogger("mwmagic")

TRIALS_LOOK_SECONDS = 0.25
"""The pause between two looks at the trials that are going."""

ON_LOOK_SECONDS = 0.5
"""How often `on_look` is called while no trial begins or ends."""

EARLIER_COUNT = 20
"""Among how many runs, the latest, one of the same program is looked for."""


def check_idle(cluster: Cluster) -> None:
    """Refuse a cluster that is busy, before a sweep of it is planned."""
    run = cluster.latest
    if run is not None and not run.status().settled:
        raise RunActive(
            f"the cluster is busy with run {run.number} ({run.words}): stop it first, or wait for "
            "its end"
        )


@contextmanager
def companions(
    cluster: Cluster, count: int, on_message: Callable[[str], None]
) -> Iterator[list[Cluster]]:
    """Return a cluster with `count` - 1 others that are declared as it is, and end those.

    All trials of a cluster are forked from its own warm process, 335 MiB with TensorFlow. Clusters
    of one machine do not share one: a worker is adopted by the agent that holds the warm process,
    which reads its end, divides its CPUs and ends with it, so another cluster's agent could neither
    watch it nor end it, and the loss of one supervisor would end the trials of all.
    """
    with ExitStack() as stack:
        found, given = [cluster], cluster.options
        used = min(given.nodes or len(cluster.tasks), len(given.hosts))
        for number in range(2, count + 1):
            first = (number - 1) * used % max(len(given.hosts), 1)
            own = {
                "name": f"{given.name}-trials-{number}",
                "directory": str(given.root),
                "hosts": [*given.hosts[first:], *given.hosts[:first]],
                "detach": False,
                "hold": 0.0,
            }
            options = {**given.as_json(), **own}
            found.append(stack.enter_context(type(cluster).declare(on_message, **options)))
        yield found


def conduct(
    sweep: Sweep,
    cluster: Cluster,
    *,
    left: int | None = None,
    parallel: int | str = 1,
    retry: bool = False,
    source: str | None = None,
    study: Any = None,  # noqa: ANN401 - Optuna's
    command: str = "mwmagic sweep",
    on_message: Callable[[str], None],
    on_change: Callable[[str], None],
    on_look: Callable[[list[Run]], None] | None = None,
) -> list[TrialStatus]:
    """Run what is not over of a sweep, on this cluster and others like it; return all trials.

    `left` is how many trials that are, if it is known: there are no more clusters than trials.
    If it cannot continue, `on_message` gets how it continues with `command`.
    `on_change` is called with a sentence when a trial begins or ends, and `on_look` then and in
    between, with the runs that are going.
    """
    left = len(sweep.left(retry=retry)) if left is None else left
    at_once = max(1, min(_room(cluster) if parallel == AUTO else int(parallel), left))
    if cluster.options.engine == "local":
        _warn(sweep, cluster, at_once, on_message)
    try:
        with companions(cluster, at_once, on_message) as clusters:
            driver = SweepDriver(
                sweep, clusters, study, on_message=on_message, on_change=on_change, on_look=on_look
            )
            return driver.run(sweep.source if source is None else source, retry=retry)
    except MwmagicError:
        on_message(resume_words(sweep, command))
        raise


def sweep_on(
    cluster: Cluster,
    script: str,
    given: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    *,
    parallel: int | str,
    progress: Callable[[str], None] | None,
    study: Any,  # noqa: ANN401 - Optuna's
    **how: Any,  # noqa: ANN401 - see new_sweep
) -> Sweep:
    """Plan a sweep of a script in the current directory, and run all of its trials.

    `progress` gets what the command line would print of it.
    """
    check_idle(cluster)
    parallel = check_parallel(parallel, **vars(cluster.options))
    sweep = new_sweep(cluster.options.root, script, given, cwd=Path.cwd(), study=study, **how)

    def report(text: str) -> None:
        if progress is not None:
            progress(text)

    outcomes = conduct(
        sweep,
        cluster,
        parallel=parallel,
        study=study,
        on_message=_LOGGER.warning,
        on_change=report,
    )
    found = findings(outcomes, sweep.metric(outcomes))
    for line in [sweep_words(sweep.number, outcomes), *found]:
        report(line)
    return sweep


def _room(cluster: Cluster) -> int:
    """Return how many clusters like this one its machines have room for."""
    if cluster.options.engine == "local":
        room = len(os.sched_getaffinity(0))
    else:
        room = len(cluster.options.hosts)
    return max(1, room // len(cluster.tasks))


def _warn(sweep: Sweep, cluster: Cluster, count: int, on_message: Callable[[str], None]) -> None:
    """Say if so many clusters have too few CPUs, or maybe too little memory."""
    tasks, cpus = count * len(cluster.tasks), len(os.sched_getaffinity(0))
    if count > 1 and tasks > cpus:
        on_message(
            f"{count} clusters of {counted(len(cluster.tasks), 'task')} share "
            f"{counted(cpus, 'CPU')}, so each trial takes longer than it would alone"
        )
    script = Path(sweep.plan.cwd, sweep.plan.script)
    same = (one for one in reversed(runs(sweep.root)[-EARLIER_COUNT:]) if one.script == script)
    used = ((one.number, [each.memory or 0 for each in one.status.tasks.values()]) for one in same)
    number, most = next(((number, max(each)) for number, each in used if any(each)), (0, 0.0))
    limits = [one.machine.memory for one in cluster.machines if one.machine]
    free = min([psutil.virtual_memory().available, *limits])
    if most * tasks > free:
        on_message(memory_words(tasks, most, number, free))


@dataclass
class _Going:
    """A trial that is going, its run, and what has been said of it."""

    trial: Trial
    run: Run
    said: set[str] = field(default_factory=set)


class SweepDriver:
    """Runs the trials of a sweep that are not over."""

    def __init__(
        self,
        sweep: Sweep,
        clusters: Sequence[Cluster],
        study: Any = None,  # noqa: ANN401 - Optuna's
        *,
        on_message: Callable[[str], None],
        on_change: Callable[[str], None],
        on_look: Callable[[list[Run]], None] | None = None,
    ) -> None:
        self.sweep = sweep
        self._plan = sweep.plan
        self._study = None if study is None else StudyTrials(study, sweep)
        self._clusters = list(clusters)
        self._say, self._on_change, self._on_look = on_message, on_change, on_look
        self._looked = time.monotonic()
        self._going: dict[Cluster, _Going] = {}
        self._left: list[Trial] = []
        check = self._plan.stop_when
        self._stop_when = Filter(check) if check else None
        self._met: set[str] = set()
        self._total = 0
        self._source = ""
        self._seed: tuple[str, int] | None = None

    def run(self, source: str, *, retry: bool = False) -> list[TrialStatus]:
        """Run what is not over, and with `retry` what has failed; return all trials.

        Trials that failed do not end it. A KeyboardInterrupt stops those that are going first.
        """
        self._source = source
        self._seed = seed_of(source, self._plan.args, self._plan.env)
        if self._plan.repeat > 1 and self._seed is None:
            self._say(
                "the program has no parameter `seed`, so its repetitions differ only if the "
                "program is not deterministic"
            )
        with self.sweep.writing():
            outcomes = self.sweep.outcomes()
            if self._study is not None:
                self._study.settle(outcomes)
            self._total = len(outcomes)
            again = (*OPEN, TrialState.FAILED) if retry else OPEN
            waiting = deque(one for one in outcomes if one.state in again)
            self._adopt([one for one in outcomes if one.state is TrialState.RUNNING])
            try:
                self._drive(waiting)
            except BaseException:
                self._stop()
                raise
            if self._stop_when is not None:
                self._check_names()
            return self.sweep.outcomes()

    def _adopt(self, going: Sequence[TrialStatus]) -> None:
        """Follow the runs that outlived the process which launched them."""
        for one in going:
            number = one.record.number if one.record else 0
            for cluster in self._clusters:
                run = cluster.latest
                if run is not None and run.number == number:
                    self._going[cluster] = _Going(one.trial, run)
                    break
            else:
                self._left.append(one.trial)
            self._say(f"trial {one.trial.number} is still going as run {number}")

    def _drive(self, waiting: deque[TrialStatus]) -> None:
        while waiting or self._going or self._left:
            for cluster in self._clusters:
                if waiting and cluster not in self._going:
                    one = waiting.popleft()
                    try:
                        self._launch(cluster, one)
                    except SupervisorLost:  # perhaps after it had begun the run
                        waiting.extend(self._now([one.trial]))
            waiting.extend(self._settle())
            if time.monotonic() > self._looked + ON_LOOK_SECONDS:
                self._look()
            self._clusters = [one for one in self._clusters if not one.closed]
            if not self._clusters and waiting:
                raise SupervisorError(
                    f"the clusters of sweep {self.sweep.number} are gone, and "
                    f"{counted(len(waiting), 'trial')} did not run: --resume {self.sweep.number} "
                    "runs them"
                )

    def _now(self, trials: Sequence[Trial]) -> list[TrialStatus]:
        """Return what the record says of trials."""
        numbers = {one.number for one in trials}
        return [one for one in self.sweep.outcomes() if one.trial.number in numbers]

    def _settle(self) -> list[TrialStatus]:
        """Wait a moment, and report the trials that are over; return those that begin again.

        A run that an earlier process launched may be ending with that process.
        """
        lost: list[Trial] = []
        for cluster, one in list(self._going.items()):
            if self._over(one):
                del self._going[cluster]
                self._met.update(_known(one.run.status(), one.trial.params))
                self._end(one.trial, one.run.record)
                if one.run.status().state is RunState.LOST:
                    lost.append(one.trial)
        again = self._now(lost) if lost else []
        if self._left:
            now = self._now(self._left)
            ended = [each for each in now if each.state is not TrialState.RUNNING]
            again += [each for each in ended if not each.state.over]
            for status in ended:
                self._left.remove(status.trial)
                if status.state.over and status.record is not None:
                    self._end(status.trial, status.record)
            if not self._going and self._left:
                time.sleep(TRIALS_LOOK_SECONDS)
        return again

    def _launch(self, cluster: Cluster, one: TrialStatus) -> None:
        trial = one.trial if self._study is None else self._study.suggested(one.trial)
        params = trial.typed
        if trial.repeat and self._seed is not None:
            name, seed = self._seed
            params[name] = seed + trial.repeat
        own = cluster.options.threads is not None
        threads = None if own else self._threads(cluster)
        shares = thread_environment(threads) if threads else {}
        what = self._plan.launch(self.sweep.label(trial), shares)
        run = launch(cluster, what, self._source, params=params, replace=False)
        self._going[cluster] = _Going(trial, run)
        if one.state is TrialState.INTERRUPTED:
            self._say(interrupted_words(one))
        self._change(begun_words(trial, self._total, run.number))

    def _threads(self, cluster: Cluster) -> int | None:
        """Return how many threads each task gets, if the cluster shares a machine with others."""
        if cluster.options.engine != "local" and not cluster.options.hosts:
            return None  # a scheduler has divided its machines
        machines = [one for each in self._clusters for one in each.machines if not one.lost]
        total = Counter[str]()
        for one in machines:
            total[one.name] += len(one.tasks)
        shares = [
            max(1, one.machine.processors // total[one.name])
            for one in cluster.machines
            if one.machine and total[one.name] > len(one.tasks)
        ]
        return min(shares, default=None)

    def _over(self, one: _Going) -> bool:
        """Wait a moment; return whether a trial's run is over. Prune it if it is to be."""
        run = one.run
        with suppress(SupervisorError):  # the record says that it was lost
            if run.ended_within(TRIALS_LOOK_SECONDS / max(len(self._going), 1)):
                return True
        if run.over:
            return True
        self._report(one)
        why = "" if self._study is None else self._study.prunes(one.trial, run.record)
        if self._stop_when is not None:
            known = _known(run.status(), one.trial.params)
            self._met.update(known)
            if self._stop_when(known):
                why = self._plan.stop_when
        if why:
            self.sweep.prune(run.record, why)
            run.stop()
        return bool(why)

    def _report(self, one: _Going) -> None:
        """Say once why a run was restarted, and that it makes no progress."""
        status = one.run.status()
        stalls = [stalled(status.stall)] if status.stall else []
        for line in [*(setback_words(status, each) for each in status.setbacks), *stalls]:
            if line not in one.said:
                one.said.add(line)
                self._say(f"trial {one.trial.number}: {line}")

    def _end(self, trial: Trial, record: Record) -> None:
        """Report the end of a trial."""
        facts = facts_of(record, curves=False)
        if self._study is not None:
            self._study.settle(self.sweep.outcomes())
        self._met.update(facts.last)
        pruned = self.sweep.pruned().get(record.path.name, "")
        self._change(ended_words(trial, facts, self._plan.metric, pruned=pruned))

    def _change(self, text: str) -> None:
        self._on_change(text)
        self._look()

    def _look(self) -> None:
        self._looked = time.monotonic()
        if self._on_look is not None:
            self._on_look([one.run for one in self._going.values()])

    def _stop(self) -> None:
        """Stop the trials that are going, at once after a second Ctrl-C."""
        runs = [one.run for one in self._going.values() if not one.run.over]
        for run in runs:
            with suppress(MwmagicError):
                try:
                    run.stop()
                except KeyboardInterrupt:
                    run.stop(grace=0.0)
                    raise

    def _check_names(self) -> None:
        """Say which names of --stop-when no trial had, so that it could never be true."""
        missing = sorted((self._stop_when.names if self._stop_when else set()) - self._met)
        if missing and self._met:
            self._say(f"--stop-when names {', '.join(missing)}, which no trial had")


def _known(status: RunStatus, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of a run that is going, by the names that --stop-when has."""
    found: dict[str, Any] = {"took": time.time() - status.started}
    for name, value in params.items():
        found |= {name.rpartition(".")[2]: value, name: value}
    for name, value in status.reached.items():
        found.setdefault(name, value)
    for task in status.tasks.values():
        for name, number in task.progress.metrics.items() if task.progress is not None else ():
            found.setdefault(name, number)
    return found
