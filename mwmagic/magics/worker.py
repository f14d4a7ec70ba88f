"""``%%mw_worker``, ``%mw_wait``, ``%mw_restart``, ``%mw_rerun``: launch code and wait for it."""

from __future__ import annotations

import shlex
import time
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING

from IPython.core.error import StdinNotImplementedError

from mwmagic.client.arguments import add_env, add_option, add_params, reader
from mwmagic.client.cluster import Cluster
from mwmagic.client.live.cell import InputPrompts
from mwmagic.client.lookup import check_end
from mwmagic.client.reading import Following
from mwmagic.client.records import Rerun, add_rerun
from mwmagic.client.run import launch
from mwmagic.errors import BadArguments, WaitInterrupted, WaitTimeout
from mwmagic.model.cluster import TYPES, Task
from mwmagic.model.messages import Launch
from mwmagic.model.option import read_count, read_seconds
from mwmagic.model.options import OPTIONS
from mwmagic.words.comparison import changed_line
from mwmagic.words.run import changed_words

from .magic import Parser, magic
from .source import OutputFile, add_overwrite, borrowed, check_plain

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from mwmagic.client.run import Run

    from .session import Session

__all__ = ["cell_name", "mw_rerun", "mw_restart", "mw_wait", "mw_worker"]

_SECONDS = reader(read_seconds)

TURN_SECONDS = 0.05
"""The pause before it is looked again whose turn it is to ask."""

DEBUGGER_LINES = 3
"""How much of what a task printed is shown again when it first is in the debugger."""

_NEXT = "`%mw_wait` waits again, `%mw_stop` stops it"
"""The next step while a run is still going."""


def _worker() -> Parser:
    parser = Parser(
        "%%mw_worker",
        "Write the cell to a file and launch it in the background: on every task, or on one task "
        "of a run whose other tasks are launched by other cells.",
    )
    add = parser.add_argument
    add(
        "--index",
        type=reader(read_count),
        metavar="I",
        help="Launch only the task with this index.",
    )
    add("--type", choices=list(TYPES), help="The type of that task (default: worker).")
    add("--file", default="main.py", metavar="FILE", help="The file to write (default: main.py).")
    add_overwrite(parser)
    add("--args", default="", metavar="'A B'", help="The script's arguments, in quotes.")
    add_env(parser, "An environment variable for this run's workers.")
    add_params(parser)
    add_option(parser, OPTIONS["restarts"], default=None)
    what = "If a run is going, stop it politely first (default: the cluster's)."
    add_option(parser, OPTIONS["replace"], default=None, help=what)
    what = "Keep the processes with their variables when the cell has run, for %%%%mw_live."
    add("--keep", action="store_true", help=what)
    add("--wait", action="store_true", help="Wait for the run to end, like %%mw_wait.")
    add("--timeout", type=_SECONDS, metavar="S", help="With --wait: time limit in seconds.")
    add("--no-run", action="store_true", help="Write the file without launching it.")
    parser.omitted = ("--index", "--file")
    return parser


_WORKER = _worker()


@magic(_WORKER, shows=True)
def mw_worker(session: Session, given: Namespace, cell: str) -> Run | None:
    """Write the cell to a file and launch it."""
    _check(given)
    if given.no_run:
        file = OutputFile(given.file, overwrite=given.overwrite)
        file.write(cell)
        session.say(f"wrote {file.name}")
        return None
    cluster = session.cluster()
    with session.showing(cluster):
        run = _launched(session, cluster, given, cell)
    _show(session, run)
    if given.wait:
        _wait(session, run, given.timeout, quiet=True)
    return run


def _launched(session: Session, cluster: Cluster, given: Namespace, cell: str) -> Run:
    """Write the cell to its file, and launch it."""
    task = _task(given)
    if task is not None:
        cluster.spec.find(task)
    check_plain(cell)
    file = OutputFile(given.file, overwrite=given.overwrite)
    before = cluster.latest
    kept = given.keep and before is not None and before.kept
    going = before is not None and not before.status().settled
    with file.draft(cell) as draft:
        what = Launch(
            file.name,
            args=tuple(shlex.split(given.args)),
            given=given.env,
            cwd=".",
            cell=cell_name(session),
            notebook=tuple(borrowed(cell, session.names)),
            keep=given.keep,
            answered=session.answers,
        )
        how = {"restarts": given.restarts, "replace": given.replace, "params": given.params}
        run = launch(cluster, what, cell, task, draft=draft, **how)
    if before is not None and going and run.number != before.number:
        session.say(f"stopped run {before.number} ({before.words})")
    if kept and before is not None:
        session.say(f"let go of the processes of run {before.number}, and of their variables")
    return run


_LAUNCHING = (
    "index",
    "type",
    "args",
    "env",
    "params",
    "restarts",
    "replace",
    "keep",
    "wait",
    "timeout",
)
"""The options that only a launch uses."""


def _check(given: Namespace) -> None:
    """Refuse options that would have no effect."""
    if given.no_run:
        for name in _LAUNCHING:
            if getattr(given, name) != _WORKER.get_default(name):
                option = "-p" if name == "params" else f"--{name}"
                raise BadArguments(f"--no-run launches nothing, so leave out {option}")
    if given.timeout is not None and not given.wait:
        raise BadArguments("--timeout limits how long --wait waits: add --wait, or leave it out")


def _task(given: Namespace) -> Task | None:
    if given.index is None and given.type is None:
        return None
    return Task(given.type or "worker", given.index or 0)


def cell_name(session: Session) -> str:
    """Return the name of the cell that is being executed: the latest input in the history.

    ``execution_count`` is its number only up to IPython 8; in IPython 9 it is the next one's.
    """
    if session.shell is None or session.shell.history_manager is None:
        return ""
    return f"In [{len(session.shell.history_manager.input_hist_parsed) - 1}]"


def _show(session: Session, run: Run) -> None:
    session.exit_notices.expect(run)
    if not session.quiet:
        session.displays.show(run)


_WAIT = Parser(
    "%mw_wait", "Wait for the run to end; raise WorkerFailed, with the cause, if it fails."
)
_WAIT.add_argument("--timeout", type=_SECONDS, metavar="S", help="Time limit in seconds.")
_WAIT.omitted = ("--timeout",)


@magic(_WAIT, shows=True)
def mw_wait(session: Session, given: Namespace, _cell: str) -> Run:
    """Wait for the run."""
    return _wait(session, session.latest(), given.timeout, quiet=given.quiet)


def _wait(session: Session, run: Run, timeout: float | None, *, quiet: bool) -> Run:
    check_end(run, timeout)
    try:
        if quiet:
            _answer_all(session, run, timeout)
        else:
            session.displays.wait(run, timeout, _answering(session, run))
        waited = run.wait(None if timeout is None else 0.0)
    except WaitTimeout:
        text = f"run {run.number} is still going after {timeout:g} s ({run.words})"
        raise WaitTimeout(f"{text}. {_NEXT}") from None
    except KeyboardInterrupt:
        text = f"stopped waiting; run {run.number} is still going ({run.words})"
        raise WaitInterrupted(f"{text}. {_NEXT}") from None
    finally:
        session.displays.finish(run)
    if run.over and (changed := changed_line(run.record)):
        session.say(changed)
    return waited


def _answering(session: Session, run: Run) -> Callable[[], None]:
    """Return what asks in the notebook what tasks ask."""
    logs: dict[str, Following] = {}

    def printed(task: str) -> list[str]:
        log = logs.setdefault(task, Following(run, task, tail=DEBUGGER_LINES))
        return [line for _, line in log.new()]

    prompts = InputPrompts(session.say, run.reply, printed)

    def ask() -> None:
        asks = run.status().asks
        try:
            if prompts.ask(asks) is None:
                run.ended_within(TURN_SECONDS)
        except StdinNotImplementedError:
            prompts.refuse(asks)

    return ask


def _answer_all(session: Session, run: Run, timeout: float | None) -> None:
    """Wait until a run is over or kept, or the time is up; only show what tasks ask."""
    ask = _answering(session, run)
    end = time.monotonic() + (TIMEOUT_MAX if timeout is None else timeout)
    while not run.status().settled and time.monotonic() < end:
        session.displays.stirred_within(run, max(0.0, end - time.monotonic()))
        if run.status().asks:
            ask()


@magic(Parser("%mw_restart", "Restart all tasks with the same code."), shows=True)
def mw_restart(session: Session, _given: Namespace, _cell: str) -> Run:
    """Restart all tasks with the same code."""
    cluster = session.cluster()
    before = cluster.latest
    changed = [] if before is None else before.record.changed_modules()
    with session.showing(cluster):
        run = cluster.restart()
    if before is not None and changed:
        session.say(changed_words(before.number, changed))
    _show(session, run)
    return run


_RERUN = Parser(
    "%mw_rerun",
    "Run a recorded run again: its code, arguments, variables and cluster; it says what cannot be "
    "as it was.",
)
add_rerun(_RERUN)
_RERUN.add_argument("--wait", action="store_true", help="Wait for the run to end, like %%mw_wait.")


@magic(_RERUN, shows=True)
def mw_rerun(session: Session, given: Namespace, _cell: str) -> Run:
    """Run a recorded run again."""
    again = Rerun(session.record(given.run), given.workers, given.params)
    if session.gone:
        name, found = session.default()
        if found is None:
            options = {**again.declaration(), "name": name}
            found = Cluster.declare(session.say, session.displays.prepare, **options)
        session.use(found, declared=True)
    cluster = session.cluster()
    again.check(cluster)
    for line in again.unlike():
        session.say(line)
    with session.showing(cluster):
        run = again.launch(cluster, answered=session.answers)
    _show(session, run)
    if given.wait:
        _wait(session, run, None, quiet=True)
    return run
