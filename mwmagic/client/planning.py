"""Plans sweeps as they are typed: new ones, those that continue, and those that are given more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mwmagic.errors import BadArguments, ClusterError, NoSweep
from mwmagic.experiments.filters import Filter
from mwmagic.experiments.space import as_json, from_json, space_of
from mwmagic.experiments.sweep import (
    Plan,
    Sweep,
    combinations,
    every,
    listed_trials,
    planned_sweep,
    seed_of,
    stored,
)
from mwmagic.model.option import read_count
from mwmagic.model.values import counted

from .arguments import reader
from .run import program_text
from .study import check_continued, check_new, extend_study

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from mwmagic.experiments.space import Space

__all__ = [
    "AUTO",
    "add_sweep",
    "check_given",
    "check_parallel",
    "continued",
    "extend_sweep",
    "find",
    "find_sweep",
    "new_sweep",
    "shown",
]

_S = TypeVar("_S", bound=Sweep)

AUTO = "auto"
"""In place of a number of clusters: as many as the CPUs, or the named hosts, have room for."""


def new_sweep(
    root: Path,
    script: str,
    given: Mapping[str, Any] | Iterable[Mapping[str, Any]],
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
    study: Any = None,  # noqa: ANN401 - Optuna's
) -> Sweep:
    """Plan a sweep and write it down; what is given are values to try, or a trial after another."""
    text = program_text(cwd / script)
    variables = dict(env or {})
    listed: list[dict[str, Any]] = []
    if not isinstance(given, Mapping):
        if random is not None or study is not None:
            raise BadArguments(
                f"a list of trials is run as it is: leave out {'random' if random else 'study'}, "
                "or give values to choose from, as {'units': [32, 64]}"
            )
        listed = listed_trials(given, text, args, variables)
        given = {}
    elif not given and repeat < 2:  # noqa: PLR2004 - once
        raise BadArguments(
            "a sweep needs parameters with values to try, as units=32,64 lr=log(1e-4,1e-1)"
        )
    space = space_of(given, text, args, variables)
    if stop_when:
        Filter(stop_when)
    seeds = seed_of(text, args, variables)
    varied = {*space, *(name for one in listed for name in one)}
    if repeat > 1 and seeds is not None and seeds[0] in varied:
        raise BadArguments(
            f"{seeds[0]} is varied, and --repeat also changes it: leave out one of them"
        )
    draws = 0
    if study is not None:
        check_new(study, space, metric, random=random, seed=seed, repeat=repeat)
        trials: list[dict[str, Any]] = [{}] * (random or 0)
    elif random is None:
        trials = listed or every(space)
    elif space:
        trials, draws = combinations(space, random, seed, 0)
    else:
        raise BadArguments(
            "--random draws values, and no parameter has any: add some, as lr=log(1e-4,1e-1)"
        )
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
        study="" if study is None else study.study_name,
    )
    return planned_sweep(root, plan, text, trials)


def extend_sweep(
    sweep: Sweep,
    given: Mapping[str, Any],
    *,
    random: int | str | None = None,
    repeat: int | None = None,
) -> int:
    """Plan further trials of a sweep: more values, more draws or more repetitions of each."""
    plan = sweep.plan
    if plan.study:
        new = None if random is None else _more(sweep, random, len(sweep.trials()))
        return extend_study(sweep, None if given or repeat else new)
    space = _widened(sweep, space_of(given, sweep.source, plan.args, plan.env))
    known = [one.params for one in sweep.trials()]
    changes: dict[str, Any] = {"space": as_json(space), "repeat": repeat or plan.repeat}
    if repeat is not None and repeat < plan.repeat:
        raise BadArguments(
            f"sweep {sweep.number} repeats each trial {plan.repeat} times already: give a larger "
            "number, or leave out --repeat"
        )
    if random is not None and not space:
        raise BadArguments(
            f"sweep {sweep.number} has no values to draw from: begin another sweep with some"
        )
    if random is not None:
        there = _distinct(known)
        wanted = _more(sweep, random, len(there))
        added, changes["draws"] = combinations(space, wanted, plan.seed, plan.draws, known)
        trials = [*there, *added]
    elif not given:
        trials = _distinct(known)
    elif plan.draws:
        raise BadArguments(
            f"sweep {sweep.number} draws its trials: add --random +N to draw N more with these"
        )
    else:
        trials = every(space)
    return sweep.extend(trials, **changes)


def _more(sweep: Sweep, random: int | str, there: int) -> int:
    """Return how many combinations are added: N in all, or N more with a plus."""
    wanted = int(random) if isinstance(random, str) else random - there
    if wanted < 1:
        raise BadArguments(
            f"sweep {sweep.number} has {counted(there, 'combination')} already: say how many there "
            f"shall be in all, or --random +{random} to draw {random} more"
        )
    return wanted


def _widened(sweep: Sweep, new: Space) -> Space:
    """Return what a sweep varies, with more values of some parameters."""
    space = from_json(sweep.plan.space)
    for name, more in new.items():
        before = space.get(name)
        if before is None:
            varied = ", ".join(space) or "no listed values"
            raise BadArguments(
                f"sweep {sweep.number} varies {varied}, not {name}: begin another sweep"
            )
        if isinstance(before, tuple) and isinstance(more, tuple):
            more = (*before, *(one for one in more if one not in before))  # noqa: PLW2901
        space[name] = more
    return space


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


def check_parallel(
    parallel: int | str,
    engine: str = "local",
    hosts: Sequence[str] = (),
    **_options: Any,  # noqa: ANN401 - a cluster's others
) -> int | str:
    """Return how many trials run at once; refuse `auto` if that is a scheduler's to say."""
    found = _read_parallel(str(parallel))
    if found == AUTO and engine != "local" and not hosts:
        raise BadArguments(
            "--parallel auto counts CPUs or hosts that are yours, and here a scheduler gives them: "
            "say how many clusters there shall be, as --parallel 4"
        )
    return found


def _read_parallel(text: str) -> int | str:
    if text == AUTO:
        return text
    number = read_count(text)
    if not number:
        raise ClusterError("0 clusters run nothing: give a number from 1, or auto")
    return number


def _read_random(text: str) -> int | str:
    """Read how many combinations there shall be, or, after a plus, how many more."""
    number = read_count(text.removeprefix("+"))
    if not number:
        raise ClusterError(f"--random {text} would try nothing: give a number from 1")
    return f"+{number}" if text.startswith("+") else number


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """Declare what a sweep takes beside its program and its parameters."""
    add, number = parser.add_argument, reader(read_count)
    what = (
        "Draw N combinations instead of trying all; with --extend, N in all, or N more with a plus."
    )
    add("--random", type=reader(_read_random), metavar="N|+N", help=what)
    what = "A number that determines which combinations are drawn (default: 0)."
    add("--seed", type=number, metavar="S", help=what)
    what = "Try each combination N times, each time with another seed if the program has a `seed`."
    add("--repeat", type=number, metavar="N", help=what)
    what = (
        "How many trials run at once, each on its own cluster (default: 1); auto fills the CPUs, "
        "or the hosts that are named."
    )
    add("--parallel", type=reader(_read_parallel), default=1, metavar="N|auto", help=what)
    what = "The metric that says which trial is best (default: the first loss that there is)."
    add("--metric", metavar="NAME", help=what)
    what = "End a trial early as soon as this is true, such as 'val_loss>2 and epoch>=3'."
    add("--stop-when", metavar="FILTER", help=what)
    what = "Continue a sweep (default: the latest): run the trials that have not ended."
    add("--resume", nargs="?", const=0, type=number, metavar="SWEEP", help=what)
    what = "With --resume: run the trials that failed again too, with today's code."
    add("--retry", choices=["failed"], help=what)
    what = "Add values, draws (--random +N) or repetitions (--repeat N) to a sweep, and run them."
    add("--extend", type=number, metavar="SWEEP", help=what)
    what = "Continue with the code that the sweep began with, or with the file as it is today."
    add("--code", choices=["recorded", "today"], help=what)
    what = "Show a sweep as it is now (default: the latest), and run nothing."
    add("--show", nargs="?", const=0, type=number, metavar="SWEEP", help=what)
    what = "Print the trials of the latest sweep, or of the one that --show names, as CSV."
    add("--export", choices=["csv"], help=what)


_NEW = ("random", "seed", "repeat", "metric", "stop_when")
"""What only a new sweep takes, unless `--extend` takes it too."""


def check_given(given: argparse.Namespace, values: Sequence[str]) -> None:
    """Refuse what would have no effect."""
    resume, extend = given.resume is not None, given.extend is not None
    if resume and extend:
        raise BadArguments("--extend also runs the trials that are not over: leave out --resume")
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
        raise BadArguments("--extend needs more values, as lr=0.003, or --random +N, or --repeat N")
    if given.retry and not resume:
        raise BadArguments("--retry is for a sweep that continues: add --resume")
    if given.code and not (resume or extend):
        raise BadArguments("--code is for a sweep that continues: add --resume or --extend SWEEP")
    if given.repeat == 0:
        raise BadArguments("--repeat 0 would try nothing: give a number from 1")
    if isinstance(given.random, str) and not extend:
        raise BadArguments(
            f"--random {given.random} draws more for a sweep that there is: add --extend SWEEP, or "
            "leave out the plus"
        )


def shown(root: Path, given: argparse.Namespace, values: Sequence[str]) -> Sweep | None:
    """Return the sweep that is only shown, or None; refuse what is for one that runs."""
    if given.show is None and given.export is None:
        return None
    flags = [*_NEW, "retry", "extend", "code", "args", "env", "file", "study"]
    names = [f"--{one.replace('_', '-')}" for one in flags if getattr(given, one, None)]
    names += ["--resume"] if given.resume is not None else []
    names += ["--parallel"] if given.parallel != 1 else []
    if values or names:
        raise BadArguments(f"--show and --export run nothing: leave out {[*values, *names][0]}")
    return find_sweep(root, given.show or None)


def continued(
    root: Path,
    given: argparse.Namespace,
    space: Mapping[str, Any],
    study: Any = None,  # noqa: ANN401 - Optuna's
) -> tuple[Sweep, str]:
    """Return the sweep that continues, with what was added to it, and the code that it runs."""
    sweep = find_sweep(root, (given.resume if given.extend is None else given.extend) or None)
    sweep.check_writer()
    check_continued(sweep, study, retry=bool(given.retry))
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
    changed = f"{plan.script} has changed since sweep {sweep.number} began"
    if today != recorded and not given.code and not given.retry:
        raise BadArguments(
            f"{changed}: add --code recorded to run the other trials with the code of the first, "
            "or --code today with the file as it is now"
        )
    if today != recorded and not given.code and (others := sweep.left()):
        raise BadArguments(
            f"{changed}, and {counted(len(others), 'other trial')} would run with it too: add "
            "--code today for that, or run the rest with --resume --code recorded first"
        )
    return today
