"""Runs the trials of a sweep on clusters, as any client would, and stops what is not worth it."""

from __future__ import annotations

import os
import time
from collections import deque
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mwmagic.errors import (
    BadArguments,
    ClusterError,
    MwmagicError,
    NoSweep,
    RunActive,
    SupervisorError,
)
from mwmagic.experiments.filters import Filter
from mwmagic.experiments.runs import facts_of
from mwmagic.experiments.space import as_json, from_json, space_of
from mwmagic.experiments.sweep import (
    OPEN,
    Plan,
    Sweep,
    TrialState,
    TrialStatus,
    combinations,
    every,
    planned_sweep,
    seed_of,
    stored,
)
from mwmagic.frameworks.environment import thread_environment
from mwmagic.model.messages import Launch
from mwmagic.model.option import read_count
from mwmagic.model.values import counted
from mwmagic.words.sweep import begun_words, ended_words, interrupted_words

from .arguments import reader
from .run import program_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mwmagic.experiments.sweep import Trial
    from mwmagic.model.status import RunStatus
    from mwmagic.record import Record

    from .cluster import Cluster
    from .run import Run

__all__ = [
    "SweepDriver",
    "add_sweep",
    "check_given",
    "check_idle",
    "companions",
    "conduct",
    "continued",
    "extend_sweep",
    "find",
    "find_sweep",
    "new_sweep",
]

_S = TypeVar("_S", bound=Sweep)

AUTO = "auto"
"""In place of a number of clusters: as many as this machine's CPUs have room for."""

TRIALS_LOOK_SECONDS = 0.25
"""The pause between two looks at the trials that are going."""

CHANGE_SECONDS = 2.0
"""How often it is reported how far the trials are that are going."""


def new_sweep(
    root: Path,
    script: str,
    space: Mapping[str, Any],
    *,
    cwd: Path,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    random: int | None = None,
    seed: int = 0,
    repeat: int = 1,
    metric: str = "",
    stop_when: str = "",
    options: Mapping[str, Any] | None = None,
) -> Sweep:
    """Plan a sweep and write it down."""
    text = program_text(cwd / script)
    variables = dict(env or {})
    if not space and repeat < 2:  # noqa: PLR2004 - once
        raise BadArguments(
            "a sweep needs parameters with values to try, as units=32,64 lr=log(1e-4,1e-1)"
        )
    space = space_of(space, text, args, variables)
    if stop_when:
        Filter(stop_when)
    seeds = seed_of(text, args, variables)
    if repeat > 1 and seeds is not None and seeds[0] in space:
        raise BadArguments(
            f"{seeds[0]} is varied already, which --repeat would change: leave one of them out"
        )
    draws = 0
    if random is None:
        trials = every(space)
    elif space:
        trials, draws = combinations(space, random, seed, 0)
    else:
        raise BadArguments("--random draws values of parameters, and none is given")
    plan = Plan(
        script=script,
        cwd=str(cwd),
        args=tuple(args),
        env=variables,
        metric=metric,
        stop_when=stop_when,
        seed=seed,
        draws=draws,
        repeat=repeat,
        options=dict(options or {}),
        space=as_json(space),
    )
    return planned_sweep(root, plan, text, trials)


def extend_sweep(
    sweep: Sweep,
    given: Mapping[str, Any],
    *,
    random: int | None = None,
    repeat: int | None = None,
) -> int:
    """Plan further trials of a sweep: more values, more draws or more repetitions of each."""
    plan, source = sweep.plan, sweep.source
    new = space_of(given, source, plan.args, plan.env)
    space = from_json(plan.space)
    for name, more in new.items():
        before = space.get(name)
        if before is None:
            raise BadArguments(
                f"sweep {sweep.number} varies {', '.join(space)}, not {name}: begin another sweep"
            )
        if isinstance(before, tuple) and isinstance(more, tuple):
            more = (*before, *(one for one in more if one not in before))  # noqa: PLW2901
        space[name] = more
    known = [one.params for one in sweep.trials()]
    changes: dict[str, Any] = {"space": as_json(space), "repeat": repeat or plan.repeat}
    if repeat is not None and repeat < plan.repeat:
        raise BadArguments(f"sweep {sweep.number} repeats each trial {plan.repeat} times already")
    if random is not None:
        added, changes["draws"] = combinations(space, random, plan.seed, plan.draws, known)
        trials = [*_distinct(known), *added]
    elif plan.draws and not given:
        trials = _distinct(known)
    elif plan.draws:
        raise BadArguments(
            f"sweep {sweep.number} draws its trials: add --random N to draw N more with these"
        )
    else:
        trials = every(space)
    return sweep.extend(trials, **changes)


def check_idle(cluster: Cluster) -> None:
    """Refuse a cluster that is busy, before a sweep of it is planned."""
    run = cluster.latest
    if run is not None and not run.status().settled:
        raise RunActive(
            f"the cluster is busy with run {run.number} ({run.words}): stop it first, or wait for "
            "its end"
        )


def _distinct(params: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return combinations once each, in their order."""
    found: list[dict[str, Any]] = []
    for one in params:
        if one not in found:
            found.append(one)
    return found


def find_sweep(root: Path, number: int | None) -> Sweep:
    """Return a sweep by its number, or the latest; raise NoSweep if there is none."""
    return find(Sweep, root, number)


def find(kind: type[_S], root: Path, number: int | None) -> _S:
    """Return a sweep of some kind by its number, or the latest; NoSweep if there is none."""
    known = {one.number: one for one in stored(root, kind)}
    if not known:
        raise NoSweep(f"there are no {kind.word}s in {root.absolute()}")
    if number is not None and number not in known:
        there = ", ".join(map(str, known))
        raise NoSweep(f"there is no {kind.word} {number}; there are {there}")
    return known[max(known) if number is None else number]


@contextmanager
def companions(
    cluster: Cluster, count: int, on_message: Callable[[str], None]
) -> Iterator[list[Cluster]]:
    """Return a cluster with `count` - 1 others that are declared as it is, and end those."""
    with ExitStack() as stack:
        found = [cluster]
        for number in range(2, count + 1):
            own = {"name": f"{cluster.options.name}-trials-{number}", "detach": False}
            options = {**cluster.options.as_json(), "directory": str(cluster.options.root), **own}
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
    on_message: Callable[[str], None],
    on_change: Callable[[str], None],
) -> list[TrialStatus]:
    """Run what is not over of a sweep, on this cluster and others like it; return all trials.

    `left` is how many trials that are, if it is known: there are no more clusters than trials.
    `on_change` is called with a sentence when a trial begins or ends, and with an empty one every
    `CHANGE_SECONDS` between.
    """
    local = cluster.options.engine == "local"
    tasks, cpus = len(cluster.tasks), len(os.sched_getaffinity(0))
    if parallel == AUTO and not local:
        raise BadArguments(
            "--parallel auto counts this machine's CPUs, and these workers run elsewhere: say how "
            "many clusters there shall be, as --parallel 4"
        )
    at_once = max(1, cpus // tasks) if parallel == AUTO else int(parallel)
    if local and at_once > 1 and at_once * tasks > cpus:
        on_message(
            f"{at_once} clusters of {counted(tasks, 'task')} share {counted(cpus, 'CPU')}, so "
            "each trial takes longer than it would alone"
        )
    left = len(sweep.left(retry=retry)) if left is None else left
    with companions(cluster, max(1, min(at_once, left)), on_message) as clusters:
        driver = SweepDriver(sweep, clusters, on_message=on_message, on_change=on_change)
        return driver.run(sweep.source if source is None else source, retry=retry)


@dataclass
class _Going:
    """A trial that is going, and its run."""

    trial: Trial
    run: Run


class SweepDriver:
    """Runs the trials of a sweep that are not over."""

    def __init__(
        self,
        sweep: Sweep,
        clusters: Sequence[Cluster],
        *,
        on_message: Callable[[str], None],
        on_change: Callable[[str], None],
    ) -> None:
        self.sweep = sweep
        self._plan = sweep.plan
        self._clusters = list(clusters)
        self._say, self._on_change = on_message, on_change
        self._reported = time.monotonic()
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
            self._total = len(outcomes)
            again = (*OPEN, TrialState.FAILED) if retry else OPEN
            waiting = deque(one for one in outcomes if one.state in again)
            self._adopt([one for one in outcomes if one.state is TrialState.RUNNING])
            for one in waiting:
                if one.state is TrialState.INTERRUPTED:
                    self._say(interrupted_words(one))
            try:
                self._drive(deque(one.trial for one in waiting))
            except BaseException:
                self._stop()
                raise
            if self._stop_when is not None:
                self._check_names()
            return self.sweep.outcomes()

    def _adopt(self, going: Sequence[TrialStatus]) -> None:
        """Go on with the runs that outlived the process which launched them."""
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

    def _drive(self, waiting: deque[Trial]) -> None:
        while waiting or self._going or self._left:
            for cluster in self._clusters:
                if waiting and cluster not in self._going:
                    self._launch(cluster, waiting.popleft())
            waiting.extend(self._settle())
            if time.monotonic() > self._reported + CHANGE_SECONDS:
                self._change("")
            self._clusters = [one for one in self._clusters if not one.closed]
            if not self._clusters and waiting:
                raise SupervisorError(
                    f"the clusters of sweep {self.sweep.number} are gone, and "
                    f"{counted(len(waiting), 'trial')} did not run: declare a cluster again, and "
                    "continue with --resume"
                )

    def _settle(self) -> list[Trial]:
        """Wait a moment, and report the trials that are over; return those that begin again.

        A run that an earlier process launched may be ending with that process.
        """
        again = []
        for cluster, one in list(self._going.items()):
            if self._over(one):
                del self._going[cluster]
                self._met.update(_now(one.run.status(), one.trial.params))
                self._end(one.trial, one.run.record)
        if self._left:
            now = {one.trial.number: one for one in self.sweep.outcomes()}
            ended = [one for one in self._left if now[one.number].state is not TrialState.RUNNING]
            self._left = [one for one in self._left if one not in ended]
            again = [one for one in ended if not now[one.number].state.over]
            for trial in ended:
                status = now[trial.number]
                if trial in again:
                    self._say(interrupted_words(status))
                elif status.record is not None:
                    self._end(trial, status.record)
            if not self._going and self._left:
                time.sleep(TRIALS_LOOK_SECONDS)
        return again

    def _launch(self, cluster: Cluster, trial: Trial) -> None:
        plan = self._plan
        params = dict(trial.params)
        if trial.repeat and self._seed is not None:
            name, seed = self._seed
            params[name] = seed + trial.repeat
        given = dict(plan.env)
        shared = len(self._clusters) > 1 and cluster.options.engine == "local"
        if shared and cluster.options.threads is None:
            share = len(os.sched_getaffinity(0)) // (len(self._clusters) * len(cluster.tasks))
            given = {**thread_environment(max(1, share)), **given}
        what = Launch(
            plan.script, args=plan.args, given=given, cwd=plan.cwd, trial=self.sweep.label(trial)
        )
        run = cluster._launch(what, self._source, params=params, replace=False)  # noqa: SLF001 - of this package
        self._going[cluster] = _Going(trial, run)
        self._change(begun_words(trial, self._total, run.number))

    def _over(self, one: _Going) -> bool:
        """Wait a moment; return whether a trial's run is over. Prune it if it is to be."""
        run = one.run
        with suppress(SupervisorError):  # the record says that it was lost
            if run.ended_within(TRIALS_LOOK_SECONDS / max(len(self._going), 1)):
                return True
        if run.over:
            return True
        if self._stop_when is not None:
            known = _now(run.status(), one.trial.params)
            self._met.update(known)
            if self._stop_when(known):
                self.sweep.prune(run.record, self._plan.stop_when)
                run.stop()
                return True
        return False

    def _end(self, trial: Trial, record: Record) -> None:
        """Report the end of a trial."""
        facts = facts_of(record, curves=False)
        self._met.update(facts.last)
        pruned = self.sweep.pruned().get(record.path.name, "")
        self._change(ended_words(trial, facts, self._plan.metric, pruned=pruned))

    def _change(self, text: str) -> None:
        self._reported = time.monotonic()
        self._on_change(text)

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


def _now(status: RunStatus, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of a run that is going, by the names that --stop-when has."""
    found: dict[str, Any] = {}
    for name, value in params.items():
        found |= {name.rpartition(".")[2]: value, name: value}
    for task in status.tasks.values():
        reached = task.progress
        if reached is None:
            continue
        for name, value in (("epoch", reached.epoch), ("step", reached.step)):
            if value is not None:
                found.setdefault(name, value)
        for name, value in reached.metrics.items():
            found.setdefault(name, value)
    return found


# As magics and commands take it.


def _read_parallel(text: str) -> int | str:
    if text == AUTO:
        return text
    number = read_count(text)
    if not number:
        raise ClusterError("0 clusters run nothing: give a number from 1, or auto")
    return number


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """Declare what a sweep takes beside its program and its parameters."""
    add, number = parser.add_argument, reader(read_count)
    add("--random", type=number, metavar="N", help="Draw N combinations instead of trying all.")
    what = "A number that determines which combinations are drawn (default: 0)."
    add("--seed", type=number, metavar="S", help=what)
    what = "Try each combination N times, with other seeds if the program has a parameter `seed`."
    add("--repeat", type=number, metavar="N", help=what)
    what = (
        "How many trials at once, each on a cluster of its own (default: 1); auto fills the CPUs."
    )
    add("--parallel", type=reader(_read_parallel), default=1, metavar="N|auto", help=what)
    what = "The metric that says which trial is best (default: the first loss that there is)."
    add("--metric", metavar="NAME", help=what)
    what = "End a trial early as soon as this is true of it, as 'val_loss>2 and epoch>=3'."
    add("--stop-when", metavar="FILTER", help=what)
    what = "Continue a sweep (default: the latest): run what is not over, and nothing twice."
    add("--resume", nargs="?", const=0, type=number, metavar="SWEEP", help=what)
    what = "With --resume: run the trials that failed again too, with today's code."
    add("--retry", choices=["failed"], help=what)
    what = "Add values, draws (--random N) or repetitions (--repeat N) to a sweep, and run them."
    add("--extend", type=number, metavar="SWEEP", help=what)
    what = "Continue with the code that the sweep began with, or with the file as it is today."
    add("--code", choices=["recorded", "today"], help=what)


_NEW = ("random", "seed", "repeat", "metric", "stop_when")
"""What only a new sweep takes, unless `--extend` takes it too."""


def check_given(given: argparse.Namespace, values: Sequence[str]) -> None:
    """Refuse what would have no effect."""
    resume, extend = given.resume is not None, given.extend is not None
    if resume and extend:
        raise BadArguments("--extend runs what is not over too: leave out --resume")
    allowed = {"random", "repeat"} if extend else set(_NEW) if not resume else set[str]()
    for name in _NEW:
        if name not in allowed and getattr(given, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise BadArguments(f"a sweep that continues keeps its {flag}: leave it out")
    if resume and values:
        raise BadArguments(
            f"--resume runs the trials that are planned: add {values[0]} with --extend SWEEP"
        )
    if extend and not values and given.random is None and given.repeat is None:
        raise BadArguments("--extend needs more values, as lr=0.003, or --random N, or --repeat N")
    if given.retry and not resume:
        raise BadArguments("--retry is for a sweep that continues: add --resume")
    if given.code and not (resume or extend):
        raise BadArguments("--code is for a sweep that continues: add --resume or --extend SWEEP")
    for name in ("random", "repeat"):
        if getattr(given, name) == 0:
            raise BadArguments(f"--{name} 0 would try nothing: give a number from 1")


def continued(root: Path, given: argparse.Namespace, space: Mapping[str, Any]) -> tuple[Sweep, str]:
    """Return the sweep that continues, with what was added to it, and the code that it runs."""
    sweep = find_sweep(root, (given.resume if given.extend is None else given.extend) or None)
    source = _code(sweep, given)
    if given.extend is not None:
        with sweep.writing():
            extend_sweep(sweep, space, random=given.random, repeat=given.repeat)
    return sweep, source


def _code(sweep: Sweep, given: argparse.Namespace) -> str:
    """Return the code that a sweep continues with."""
    plan, recorded = sweep.plan, sweep.source
    nothing = given.extend is None and not sweep.left(retry=bool(given.retry))
    if given.code == "recorded" or nothing:
        return recorded
    try:
        today = program_text(Path(plan.cwd, plan.script))
    except FileNotFoundError:
        if given.code == "today" or given.retry:
            raise
        return recorded
    if today != recorded and not given.code and not given.retry:
        raise BadArguments(
            f"{plan.script} has changed since sweep {sweep.number} began: add --code recorded to "
            "run the other trials with the code of the first, or --code today with the file as it "
            "is now"
        )
    return today
