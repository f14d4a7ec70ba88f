"""``%mw_sweep``: a program with many combinations of its parameters."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.display import display

from mwmagic.client import sweep as work
from mwmagic.client.arguments import add_env
from mwmagic.dashboard.runs import NotebookTable
from mwmagic.errors import NoRun, WaitInterrupted
from mwmagic.experiments.space import read_space
from mwmagic.experiments.sweep import OPEN
from mwmagic.model.option import read_words
from mwmagic.words.sweep import going_words, resume_words, summary, table

from .magic import Parser, magic

if TYPE_CHECKING:
    from argparse import Namespace

    from IPython.display import DisplayHandle

    from mwmagic.experiments.sweep import Sweep, TrialStatus

    from .session import Session

__all__ = ["mw_sweep", "program_of"]


def _sweep() -> Parser:
    parser = Parser(
        "%mw_sweep",
        "Run a program with many combinations of its parameters, such as units=32,64 "
        "lr=log(1e-4,1e-1), and say which is best. An interrupted sweep continues with --resume.",
    )
    add = parser.add_argument
    what = "Parameters with the values to try, or a range to draw them from with --random."
    add("values", nargs="*", metavar="NAME=VALUE,VALUE", help=what)
    what = "The program (default: that of the latest run)."
    add("--file", metavar="FILE", help=what)
    what = "The program's other arguments, in quotes (default: those of the latest run)."
    add("--args", type=read_words, metavar="'A B'", help=what)
    add_env(parser, "An environment variable for the workers of the sweep.")
    work.add_sweep(parser)
    return parser


_SWEEP = _sweep()


@magic(_SWEEP, shows=True)
def mw_sweep(session: Session, given: Namespace, _cell: str) -> Sweep:
    """Run the trials of a sweep."""
    work.check_given(given, given.values)
    cluster, space = session.cluster(), read_space(given.values)
    source: str | None = None
    if given.resume is None and given.extend is None:
        work.check_idle(cluster)
        sweep = _planned(session, given, space)
    else:
        sweep, source = work.continued(session.directory, given, space)
    board = _Board(session, sweep)
    left = len(sweep.left(retry=bool(given.retry)))
    if not left:
        board.finish(sweep.outcomes())
        return sweep
    try:
        outcomes = work.conduct(
            sweep,
            cluster,
            left=left,
            parallel=given.parallel,
            retry=bool(given.retry),
            source=source,
            on_message=session.say,
            on_change=board.change,
        )
    except KeyboardInterrupt:
        outcomes = sweep.outcomes()
        board.finish(outcomes)
        text = resume_words(sweep.number, outcomes, "%mw_sweep")
        raise WaitInterrupted(text) from None
    board.finish(outcomes)
    if any(one.state in OPEN for one in outcomes):
        session.say(resume_words(sweep.number, outcomes, "%mw_sweep"))
    return sweep


def _planned(session: Session, given: Namespace, space: dict[str, str]) -> Sweep:
    """Plan a new sweep of a file, or of the latest run's program."""
    return work.new_sweep(
        session.directory,
        space=space,
        **program_of(session, given),
        random=given.random,
        seed=given.seed or 0,
        repeat=given.repeat or 1,
        metric=given.metric or "",
        stop_when=given.stop_when or "",
    )


def program_of(session: Session, given: Namespace) -> dict[str, Any]:
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


class _Board:
    """What the cell shows: how far the sweep is, and the table of its runs, the best first."""

    def __init__(self, session: Session, sweep: Sweep) -> None:
        self._sweep = sweep
        self._quiet = session.quiet
        self._page = getattr(session.shell, "kernel", None) is not None
        self._say = session.say
        self._handle: DisplayHandle | None = None
        self._last = ""

    def change(self, text: str) -> None:
        """Show how far the trials are, after one began or ended as `text` says."""
        if not self._page:
            if text:
                self._say(text)
            return
        self._last = text or self._last
        outcomes = self._sweep.outcomes()
        shown = table(outcomes, self._sweep.metric(outcomes), NotebookTable)
        lines = [going_words(self._sweep.number, outcomes), self._last]
        self._show("\n".join([*lines, repr(shown)]), _paragraphs(lines) + shown.plain())

    def finish(self, outcomes: list[TrialStatus]) -> None:
        """Show what became of the trials, as the notebook keeps it."""
        metric = self._sweep.metric(outcomes)
        shown = table(outcomes, metric, NotebookTable)
        lines = summary(outcomes, metric)
        text = "\n".join([repr(shown), *lines])
        if self._page:
            self._show(text, shown.as_html() + _paragraphs(lines))
        else:
            self._say(text)

    def _show(self, text: str, page: str) -> None:
        if self._quiet:
            return
        data = {"text/plain": text, "text/html": page}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def _paragraphs(lines: list[str]) -> str:
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines if line)
