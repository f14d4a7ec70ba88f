"""``mwmagic scale``: a script with other numbers of workers, to say whether more of them help."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.client import scaling as work
from mwmagic.client.arguments import add_cluster_options, reader, typed
from mwmagic.client.planning import find
from mwmagic.errors import BadArguments
from mwmagic.experiments.scaling import Scaling
from mwmagic.model.option import read_count, read_words
from mwmagic.model.values import finite
from mwmagic.words.sweep import resume_words, scaling_lines, scaling_notes, scaling_words

from .clusters import INTERRUPTED_CODE, Terminated, listening
from .output import add_json, say, show

if TYPE_CHECKING:
    import argparse

__all__ = ["add_scale"]


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
        raise BadArguments("the sizes follow the script, as `mwmagic scale main.py 1 2 4`: no -n")
    words = [one for one in (given.script, *given.sizes) if one is not None]
    work.check_given(given, words)
    if given.show is not None:
        return _report(find(Scaling, Path.cwd(), given.show or None), given)
    if given.resume is not None:
        found = find(Scaling, Path.cwd(), given.resume or None)
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
