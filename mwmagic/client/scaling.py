"""Runs a program with other numbers of workers, each on a cluster of its own, and stops it then."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic.errors import BadArguments, MwmagicError
from mwmagic.experiments.parameters import named, parameters, settings, values
from mwmagic.experiments.scaling import STEPS_COUNT, STRONG, WEAK, Scaling, ScalingPlan, measured
from mwmagic.experiments.sweep import written
from mwmagic.model.option import read_count, read_setting
from mwmagic.model.options import ClusterOptions
from mwmagic.words.sweep import scaling_lines, speed_words

from .arguments import add_params, reader
from .cluster import Cluster
from .run import launch, program_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from mwmagic.experiments.trials import Trial

    from .run import Run

__all__ = ["add_scale", "check_given", "conduct", "new_scaling", "planned", "scale"]

_LOGGER = logging.getLogger("mwmagic")

SPEED_LOOK_SECONDS = 0.5
"""The pause between two looks at how far a run is."""

MEASURED_SECONDS = 3.0
"""How long a program trains at least, however fast its steps are."""

SILENT_LOOKS_COUNT = 120
"""After how many looks without a step a line says that none is reported: a minute."""

ENOUGH = "enough steps"


def scale(
    script: Path | str,
    workers: Sequence[int] = (1, 2, 4),
    *,
    mode: str = "",
    steps: int = STEPS_COUNT,
    repeat: int = 1,
    args: Sequence[str] = (),
    params: Mapping[str, Any] | None = None,
    batch: str = "",
    worker_batch: str = "",
    alone: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] | None = print,
    **options: Any,  # noqa: ANN401 - see ClusterOptions
) -> Scaling:
    """Run a file with each of several numbers of workers in turn, and measure how fast they train.

    Parameters
    ----------
    script : path
        The file, as ``python script`` would name it.
    workers : sequence of int
        The numbers of workers, each of which gets a cluster of its own.
    mode : str
        ``strong`` if a step has the same samples whatever the number of workers, ``weak`` if each
        worker adds its own. It also follows from `batch`, or from what Keras counts.
    steps : int
        How many steps to measure after the warm-up, and for at least 3 seconds.
    repeat : int
        How many times to run each size.
    args : sequence of str
        The file's arguments.
    params : mapping of str to object, optional
        Values of the program's parameters by name.
    batch, worker_batch : str
        The parameter that holds the global batch, or the batch of one worker.
    alone : mapping of str to object, optional
        Parameters with which the program trains in one process without a strategy, which is
        measured too.
    progress : callable, optional
        Called with a line when a size begins, and with the table and what it says at the end.
    **options
        Those of the clusters, as `Cluster` has them.

    Returns
    -------
    Scaling
        It is in the record; ``study()`` has the numbers. Sizes that failed do not end it.

    Raises
    ------
    BadArguments
        Fewer than two sizes are given, or the program has no such parameter.
    """
    found = new_scaling(
        Path(options.get("directory") or ".").resolve(),
        str(script),
        workers,
        cwd=Path.cwd(),
        args=args,
        params=params,
        mode=mode,
        batch=batch,
        worker_batch=worker_batch,
        alone=alone,
        steps=steps,
        repeat=repeat,
        options=options,
    )

    def report(text: str) -> None:
        if progress is not None:
            progress(text)

    conduct(found, on_message=_LOGGER.warning, on_change=report)
    for line in scaling_lines(found.study()):
        report(line)
    return found


def new_scaling(
    root: Path,
    script: str,
    workers: Sequence[int],
    *,
    cwd: Path,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    params: Mapping[str, Any] | None = None,
    mode: str = "",
    batch: str = "",
    worker_batch: str = "",
    alone: Mapping[str, Any] | None = None,
    steps: int = STEPS_COUNT,
    repeat: int = 1,
    options: Mapping[str, Any] | None = None,
) -> Scaling:
    """Plan a scaling study and write it down."""
    text, env, words = program_text(cwd / script), dict(env or {}), tuple(map(str, args))
    chosen, given = dict(params or {}), dict(alone or {})
    mode = mode or (STRONG if batch or worker_batch else "")
    _check(workers, given, options or {})
    if mode not in ("", STRONG, WEAK):
        raise BadArguments(f"the mode is strong or weak, not {mode!r}")
    if batch and worker_batch:
        raise BadArguments("--batch and --worker-batch are two ways to say the same: leave one out")
    for one in (chosen, {**chosen, **given}):
        settings(text, one, words, env)
    varied = ("workers", "directory")
    typed = {name: one for name, one in (options or {}).items() if name not in varied}
    declared = ClusterOptions.declare(**typed).as_json()
    batches = _Batches(text, words, env, chosen)
    trials = [{"workers": 1, "params": {**chosen, **given}, "alone": True}] if given else []
    for count in workers:
        own, samples = batches.of(count, mode, batch, worker_batch)
        known = {} if samples is None else {"batch": samples}
        trials.append({"workers": count, "params": {**chosen, **own}, **known})
    if given and trials[1].get("batch") and trials[1]["workers"] == 1:
        trials[0]["batch"] = trials[1]["batch"]
    plan = ScalingPlan(
        script=script,
        cwd=str(cwd),
        args=words,
        env=env,
        repeat=repeat,
        options={name: declared[name] for name in typed},
        steps=steps,
        mode=mode,
        cpus=len(os.sched_getaffinity(0)),
        alone=given,
    )
    return written(Scaling, root, plan, text, trials)


def _check(workers: Sequence[int], alone: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Refuse a study that could not compare anything."""
    for count in workers:
        if count < 1:
            raise BadArguments(f"the size {count} trains nothing: give numbers from 1, as 1 2 4")
        if list(workers).count(count) > 1:
            raise BadArguments(
                f"the size {count} is given twice: leave one out, or add --repeat 2 to measure "
                "each size twice"
            )
    if len(workers) + bool(alone) < 2:  # noqa: PLR2004 - nothing to compare
        raise BadArguments("a scaling study compares sizes: give two or more, as 1 2 4")
    if options.get("coordinator"):
        raise BadArguments(
            "this process coordinates the cluster, so the program is not in its tasks: declare one "
            "without --coordinator"
        )


class _Batches:
    """The batch of a program with each number of workers, by the parameter that holds it."""

    def __init__(
        self, text: str, args: Sequence[str], env: Mapping[str, str], params: Mapping[str, Any]
    ) -> None:
        found = settings(text, params, args, env)
        self._known = values(found.source, found.args, {**env, **found.env})
        self._parameters = parameters(text)

    def of(
        self, workers: int, mode: str, batch: str, worker_batch: str
    ) -> tuple[dict[str, int], int | None]:
        """Return what a program with so many workers is given, and the samples of its step."""
        name = batch or worker_batch
        if not name:
            return {}, None
        size = self._size(name)
        if batch:
            whole = size if mode == STRONG else size * workers
            return {name: whole}, whole
        if mode == WEAK:
            return {name: size}, size * workers
        if size % workers:
            raise BadArguments(
                f"{workers} workers cannot share {name} {size} evenly: give a batch that "
                f"{workers} divides, as -p {name}={size + -size % workers}"
            )
        return {name: size // workers}, size

    def _size(self, name: str) -> int:
        value = self._known.get(named(name, self._parameters).name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            there = ", ".join(one.name for one in self._parameters)
            raise BadArguments(
                f"{name} is no parameter that holds a number of samples; the program's parameters "
                f"are: {there}"
            )
        return value


def conduct(
    scaling: Scaling, *, on_message: Callable[[str], None], on_change: Callable[[str], None]
) -> None:
    """Run the sizes that were not measured, one after the other.

    A size that fails or has no room does not end it. A KeyboardInterrupt ends its cluster first.
    """
    with scaling.writing():
        for one in scaling.left():
            try:
                _measure(scaling, one.trial, on_message, on_change)
            except MwmagicError as error:  # noqa: PERF203 - the others are measured
                on_message(f"{speed_words(one.trial, scaling.plan)} could not run: {error}")


def _measure(
    scaling: Scaling,
    trial: Trial,
    on_message: Callable[[str], None],
    on_change: Callable[[str], None],
) -> None:
    """Run a trial until it has measured enough, or the program ends."""
    plan, workers = scaling.plan, int(trial.params["workers"])
    name = f"{plan.options.get('name') or 'cluster'}-scaling-{workers}"
    own = {"workers": workers, "name": name, "detach": False, "directory": str(scaling.root)}
    with Cluster.declare(on_message, **{**plan.declared(), **own}) as cluster:
        what, params = plan.launch(scaling.label(trial)), trial.params["params"]
        run = launch(cluster, what, scaling.source, params=params, replace=False)
        on_change(f"{speed_words(trial, plan)}: run {run.number}")
        _until_enough(scaling, run, plan.steps, on_message)


def _until_enough(
    scaling: Scaling, run: Run, steps: int, on_message: Callable[[str], None]
) -> None:
    """Wait until a run has measured so many steps, and stop it; or until it ends by itself."""
    looks = 0
    while not run.ended_within(SPEED_LOOK_SECONDS):
        speed, looks = measured(run.record, steps), looks + 1
        if speed is None and looks == SILENT_LOOKS_COUNT:
            on_message(
                f"run {run.number} has reported no step so far, so it is not stopped before its "
                "end: programs without `fit` report steps with mwmagic.worker.report(step=...)"
            )
        if speed and speed.steps >= steps and speed.seconds >= MEASURED_SECONDS:
            scaling.prune(run.record, ENOUGH)
            run.stop()
            return


# As magics and commands take it.


def add_scale(parser: argparse.ArgumentParser) -> None:
    """Declare what a scaling study takes beside its program and its sizes."""
    add, number = parser.add_argument, reader(read_count)
    add_params(parser)
    mode = parser.add_mutually_exclusive_group()
    what = "A step has the same samples whatever the number of workers."
    mode.add_argument("--strong", dest="mode", action="store_const", const=STRONG, help=what)
    what = "Each worker adds its own samples to a step."
    mode.add_argument("--weak", dest="mode", action="store_const", const=WEAK, help=what)
    what = (
        f"How many steps to measure after the warm-up, for at least {MEASURED_SECONDS:g} s "
        f"(default: {STEPS_COUNT})."
    )
    add("--steps", type=number, metavar="N", help=what)
    add("--repeat", type=number, metavar="N", help="Run each size N times (default: once).")
    what = "The parameter that holds the batch of all workers: --weak multiplies it."
    add("--batch", metavar="NAME", help=what)
    what = "The parameter that holds the batch of one worker: --strong divides it."
    add("--worker-batch", metavar="NAME", help=what)
    what = "Also measure one process with this parameter, with which it uses no strategy."
    add("--alone", type=reader(read_setting), metavar="NAME=VALUE", help=what)
    what = "Continue a study (default: the latest): run the sizes that were not measured."
    add("--resume", nargs="?", const=0, type=number, metavar="SCALING", help=what)
    what = "Show a study again (default: the latest), and run nothing."
    add("--show", nargs="?", const=0, type=number, metavar="SCALING", help=what)


_NEW = ("steps", "repeat", "batch", "worker_batch", "alone", "params")
"""What only a new study takes."""


def check_given(given: argparse.Namespace, workers: Sequence[object]) -> None:
    """Refuse what would have no effect."""
    resume, shows = given.resume is not None, given.show is not None
    if resume and shows:
        raise BadArguments("--show runs nothing: leave out --resume, or --show")
    own = [f"--{one.replace('_', '-')}" for one in _NEW if getattr(given, one)]
    more = [*map(str, workers), *own, *(["--strong or --weak"] if resume and given.mode else [])]
    if (resume or shows) and more:
        raise BadArguments(
            f"a study that {'continues' if resume else 'is shown'} keeps its sizes and options: "
            f"leave out {more[0].replace('--params', '-p')}"
        )
    for name in ("steps", "repeat"):
        if getattr(given, name) == 0:
            raise BadArguments(f"--{name} 0 measures nothing: give a number from 1")


def planned(given: argparse.Namespace) -> dict[str, Any]:
    """Return what `new_scaling` takes of the options that `add_scale` has read."""
    return {
        "params": given.params,
        "mode": given.mode or "",
        "batch": given.batch or "",
        "worker_batch": given.worker_batch or "",
        "alone": given.alone or {},
        "steps": given.steps or STEPS_COUNT,
        "repeat": given.repeat or 1,
    }
