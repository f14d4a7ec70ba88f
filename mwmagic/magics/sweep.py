"""``%mw_sweep`` and ``%mw_scale``: a program with other parameters, or numbers of workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.display import display

from mwmagic.client import planning
from mwmagic.client import scaling as work
from mwmagic.client.arguments import add_env, reader
from mwmagic.client.study import named_study
from mwmagic.client.sweep import check_idle, conduct
from mwmagic.dashboard.sweep import NotebookScaling
from mwmagic.errors import NoRun, WaitInterrupted
from mwmagic.experiments.scaling import Scaling
from mwmagic.experiments.space import read_space
from mwmagic.model.option import read_count, read_words
from mwmagic.words.sweep import as_csv, resume_words

from .magic import Parser, magic

if TYPE_CHECKING:
    from argparse import Namespace

    from mwmagic.experiments.sweep import Sweep

    from .session import Session

__all__ = ["mw_scale", "mw_sweep"]


def _add_program(parser: Parser) -> None:
    """Declare which program is run many times, and how; `_program_of` reads it."""
    add = parser.add_argument
    what = "The program (default: that of the latest run)."
    add("--file", metavar="FILE", help=what)
    what = "The program's other arguments, in quotes (default: those of the latest run)."
    add("--args", type=read_words, metavar="'A B'", help=what)
    add_env(parser, "An environment variable for the workers.")


def _sweep() -> Parser:
    parser = Parser(
        "%mw_sweep",
        "Run a program with many combinations of its parameters, such as units=32,64 "
        "lr=log(1e-4,1e-1), and say which is best. An interrupted sweep continues with --resume.",
    )
    add = parser.add_argument
    what = "Parameters with the values to try, or a range to draw them from with --random."
    add("values", nargs="*", metavar="NAME=VALUE,VALUE", help=what)
    _add_program(parser)
    planning.add_sweep(parser)
    what = "The variable with an Optuna study, which suggests the values of --random trials."
    add("--study", metavar="NAME", help=what)
    return parser


_SWEEP = _sweep()


@magic(_SWEEP, shows=True)
def mw_sweep(session: Session, given: Namespace, _cell: str) -> Sweep:
    """Run the trials of a sweep."""
    known = planning.shown(session.directory, given, given.values)
    if known is not None:
        return _show(session, known, csv=given.export is not None)
    planning.check_given(given, given.values)
    cluster, space = session.cluster(), read_space(given.values)
    planning.check_parallel(given.parallel, **vars(cluster.options))
    source: str | None = None
    study = None if given.study is None else named_study(session.variables, given.study)
    if given.resume is None and given.extend is None:
        check_idle(cluster)
        sweep = _planned(session, given, space, study)
    else:
        sweep, source = planning.continued(session.directory, given, space, study)
    left = len(sweep.left(retry=bool(given.retry)))
    if not left:
        return _show(session, sweep)
    board = None if session.quiet else session.displays.show_sweep(sweep)
    try:
        conduct(
            sweep,
            cluster,
            left=left,
            parallel=given.parallel,
            retry=bool(given.retry),
            source=source,
            command="%mw_sweep",
            study=study,
            on_message=session.say,
            on_change=session.say if board is None else _nothing,
            on_look=None if board is None else board.change,
        )
    except KeyboardInterrupt:
        text = resume_words(sweep, "%mw_sweep")
        raise WaitInterrupted(text) from None
    finally:
        if board is not None:
            board.finish()
    if board is None:
        _show(session, sweep)
    return sweep


def _nothing(_text: str) -> None:
    """The board shows it."""


def _show(session: Session, sweep: Sweep, *, csv: bool = False) -> Sweep:
    """Show a sweep as it is now."""
    if csv:
        session.say(as_csv(sweep).rstrip("\n"))
    elif not session.quiet:
        session.displays.keep_sweep(sweep)
    return sweep


def _planned(session: Session, given: Namespace, space: dict[str, str], study: Any) -> Sweep:  # noqa: ANN401 - Optuna's
    """Plan a new sweep of a file, or of the latest run's program."""
    return planning.new_sweep(
        session.directory,
        given=space,
        **_program_of(session, given),
        random=given.random,
        seed=given.seed or 0,
        repeat=given.repeat or 1,
        metric=given.metric or "",
        stop_when=given.stop_when or "",
        study=study,
    )


def _program_of(session: Session, given: Namespace) -> dict[str, Any]:
    """Return the file that was named, or the latest run's program, with where and how it runs."""
    script, cwd, args = given.file, Path.cwd(), given.args or ()
    env = dict(given.env)
    if script is None:
        launch = next(iter(session.record().launches), {})
        script, cwd = str(launch.get("script", "")), Path(str(launch.get("cwd", "")))
        if not script:
            raise NoRun("the latest run has no program: give one with --file main.py")
        if given.args is None:
            args = tuple(map(str, launch.get("args", ())))
        env = {**launch.get("given", {}), **env}
    return {"script": script, "cwd": cwd, "args": args, "env": env}


def _scale() -> Parser:
    parser = Parser(
        "%mw_scale",
        "Run a program with each of these numbers of workers in turn, on clusters declared like "
        "the notebook's, and say whether more workers help. An interrupted study continues with "
        "--resume.",
    )
    add = parser.add_argument
    what = "The numbers of workers, such as 1 2 4."
    add("workers", nargs="*", type=reader(read_count), metavar="N", help=what)
    _add_program(parser)
    work.add_scale(parser)
    return parser


@magic(_scale(), shows=True)
def mw_scale(session: Session, given: Namespace, _cell: str) -> Scaling:
    """Measure sizes, and show what was found."""
    work.check_given(given, given.workers)
    if given.show is not None:
        found = planning.find(Scaling, session.directory, given.show or None)
        return _shown(session, found, given.mode or "")
    cluster = session.cluster()
    check_idle(cluster)
    if given.resume is None:
        program = _program_of(session, given)
        options = cluster.options.as_json()
        found = work.new_scaling(
            session.directory,
            workers=given.workers,
            options=options,
            **program,
            **work.planned(given),
        )
    else:
        found = planning.find(Scaling, session.directory, given.resume or None)
    try:
        work.conduct(found, on_message=session.say, on_change=session.say)
    except KeyboardInterrupt:
        _shown(session, found)
        text = resume_words(found, "%mw_scale")
        raise WaitInterrupted(text) from None
    return _shown(session, found)


def _shown(session: Session, found: Scaling, mode: str = "") -> Scaling:
    """Show a study as the notebook keeps it."""
    shown = NotebookScaling(found.study(mode))
    if getattr(session.shell, "kernel", None) is None:
        session.say(repr(shown))
    elif not session.quiet:
        display(shown)
    return found
