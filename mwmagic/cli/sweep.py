"""``mwmagic sweep`` and ``mwmagic scale``: a script with other parameters, or other sizes."""

from __future__ import annotations

import ast
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.client import planning
from mwmagic.client import scaling as work
from mwmagic.client.arguments import add_cluster_options, reader, typed
from mwmagic.client.cluster import Cluster
from mwmagic.client.sweep import conduct
from mwmagic.dashboard.runs import printed
from mwmagic.errors import BadArguments
from mwmagic.experiments.scaling import Scaling
from mwmagic.experiments.space import read_space
from mwmagic.model.option import read_count, read_words
from mwmagic.model.ownership import package_of
from mwmagic.model.values import counted, finite
from mwmagic.words.sweep import (
    as_csv,
    resume_words,
    scaling_lines,
    scaling_notes,
    scaling_words,
    sweep_now,
)

from .clusters import INTERRUPTED_CODE, Terminated, listening
from .output import add_json, say, show

if TYPE_CHECKING:
    import argparse

    from mwmagic.experiments.sweep import Sweep

__all__ = ["add_scale", "add_sweep"]


def add_sweep(command: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_cluster_options(command, notebook=False)
    planning.add_sweep(command)
    what = "The script's other arguments, in quotes."
    command.add_argument("--args", type=read_words, default=(), metavar="'A B'", help=what)
    what = (
        "The script, and values of its parameters, such as units=32,64 and lr=0.1. A sweep that "
        "continues needs no script."
    )
    command.add_argument("words", nargs="*", metavar="SCRIPT NAME=VALUE,VALUE", help=what)
    what = "Let the sweep outlive the terminal; its messages go to a file in its folder."
    command.add_argument("--detach", dest="apart", action="store_true", help=what)
    command.set_defaults(action=_sweep)


def _sweep(given: argparse.Namespace) -> int:
    flags = [f"--{name.replace('_', '-')}" for name in typed(given)]
    known = planning.shown(Path(), given, [*given.words, *flags])
    if known is not None:
        show(as_csv(known).rstrip("\n")) if given.export else _show(known)
        return 0
    script, words = _parted(given)
    planning.check_given(given, words)
    space, options = read_space(words), typed(given)
    source: str | None = None
    if script is None:
        sweep, source = planning.continued(Path(), given, space)
        options = {**sweep.plan.declared(), **options}
        planning.check_parallel(given.parallel, **options)
    else:
        planning.check_parallel(given.parallel, **options)
        sweep = planning.new_sweep(
            Path.cwd(),
            script,
            space,
            cwd=Path.cwd(),
            args=given.args,
            random=given.random,
            seed=given.seed or 0,
            repeat=given.repeat or 1,
            metric=given.metric or "",
            stop_when=given.stop_when or "",
            options=options,
        )
    left = len(sweep.left(retry=bool(given.retry)))
    if not left:
        return _finish(sweep)
    say(f"sweep {sweep.number} has {counted(left, 'trial')} to run")
    if given.apart and _detached(sweep):
        return 0
    try:
        warm = imports_packages(sweep.source if source is None else source)
        with listening(), Cluster.declare(say, **{"warm": warm, **options}) as cluster:
            conduct(
                sweep,
                cluster,
                left=left,
                parallel=given.parallel,
                retry=bool(given.retry),
                source=source,
                on_message=say,
                on_change=say,
            )
    except KeyboardInterrupt as request:
        say(resume_words(sweep, "mwmagic sweep"))
        if isinstance(request, Terminated):
            raise
        return INTERRUPTED_CODE
    return _finish(sweep)


def imports_packages(source: str) -> bool:
    """Return whether a program imports more than Python's own modules and mwmagic.

    Only then does it gain by processes that have imported its framework, which the first trial
    would wait for. A module beside it may import anything.
    """
    try:
        nodes = [*ast.walk(ast.parse(source))]
    except (SyntaxError, ValueError):
        return False
    names = [each.name for one in nodes if isinstance(one, ast.Import) for each in one.names]
    names += [one.module or "." for one in nodes if isinstance(one, ast.ImportFrom)]
    return any(package_of(one) not in {"mwmagic", *sys.stdlib_module_names} for one in names)


def _detached(sweep: Sweep) -> bool:
    """Continue in a process without the terminal; return whether this is still the first one."""
    sys.stdout.flush()
    file = os.open(sweep.messages, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    pid = os.fork()
    if pid:
        os.close(file)
        say(
            f"it continues as process {pid}, and its messages are in {sweep.messages}; "
            f"`kill {pid}` stops it as Ctrl-C would"
        )
        return True
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, one in enumerate((nothing, file, file)):
        os.dup2(one, number)
    os.close(nothing)
    os.close(file)
    return False


def _parted(given: argparse.Namespace) -> tuple[str | None, list[str]]:
    """Return the script, if one is given, and the parameters."""
    words = list(given.words)
    continues = given.resume is not None or given.extend is not None
    named = bool(words) and "=" not in words[0]
    if continues and (named or given.args):
        what = words[0] if named else "--args"
        raise BadArguments(
            f"a sweep that continues keeps its script and arguments: leave out {what}"
        )
    if not continues and not named:
        raise BadArguments("there is no script to run: mwmagic sweep -n 2 main.py units=32,64")
    return (words.pop(0) if named else None), words


def _finish(sweep: Sweep) -> int:
    """Print what became of the trials; return 0 if all are over, and none has failed."""
    _show(sweep)
    return 0 if all(one.state.good for one in sweep.outcomes()) else 1


def _show(sweep: Sweep) -> None:
    """Print the trials of a sweep as they are now."""
    table, lines = sweep_now(sweep, "mwmagic sweep")
    print(printed(table))
    for line in lines:
        show(line)


def add_scale(command: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_cluster_options(command, notebook=False)
    work.add_scale(command)
    what = "The script's other arguments, in quotes."
    command.add_argument("--args", type=read_words, default=(), metavar="'A B'", help=what)
    add_json(command)
    what = "The script, unless a study continues or is shown."
    command.add_argument("script", nargs="?", metavar="SCRIPT", help=what)
    what = "The numbers of workers, such as 1 2 4."
    command.add_argument("sizes", nargs="*", type=reader(read_count), metavar="N", help=what)
    command.set_defaults(action=_scale)


def _scale(given: argparse.Namespace) -> int:
    options = typed(given)
    if "workers" in options:
        raise BadArguments(
            "the sizes follow the script, as in `mwmagic scale main.py 1 2 4`: leave out -n"
        )
    words = [one for one in (given.script, *given.sizes) if one is not None]
    work.check_given(given, words)
    if given.show is not None:
        return _report(planning.find(Scaling, Path.cwd(), given.show or None), given)
    if given.resume is not None:
        found = planning.find(Scaling, Path.cwd(), given.resume or None)
    elif given.script is None:
        raise BadArguments("there is no script to run: mwmagic scale main.py 1 2 4")
    else:
        found = work.new_scaling(
            Path.cwd(),
            given.script,
            given.sizes,
            cwd=Path.cwd(),
            args=given.args,
            options=options,
            **work.planned(given),
        )
    try:
        with listening():
            work.conduct(found, on_message=say, on_change=say)
    except KeyboardInterrupt as request:
        say(resume_words(found, "mwmagic scale"))
        if isinstance(request, Terminated):
            raise
        return INTERRUPTED_CODE
    return _report(found, given)


def _report(found: Scaling, given: argparse.Namespace) -> int:
    """Print what a study found; return 0 if all sizes were measured."""
    study = found.study(given.mode or "")
    if given.json:
        known = {"number": study.number, "mode": study.mode, "sizes": study.rows()}
        print(json.dumps(finite({**known, "text": [scaling_words(study), *scaling_notes(study)]})))
    else:
        for line in scaling_lines(study):
            show(line)
    return 0 if all(one.rate for one in study.sizes) else 1
