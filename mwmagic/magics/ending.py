"""``%mw_stop`` and ``%mw_kill``: end a run, a task, or the cluster."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from mwmagic.client.arguments import add_option
from mwmagic.errors import BadArguments, NoCluster, NoRun, SupervisorError, WaitTimeout
from mwmagic.model.options import OPTIONS

from .magic import Parser, magic

if TYPE_CHECKING:
    from argparse import Namespace

    from mwmagic.client.cluster import Cluster
    from mwmagic.client.run import Run

    from .session import Session

__all__ = ["mw_kill", "mw_stop"]


def _stop() -> Parser:
    parser = Parser("%mw_stop", "Stop the run. The cluster stays; --cluster ends it too.")
    add = parser.add_argument
    add("task", nargs="?", help="Stop only an evaluator, or a worker beside parameter servers.")
    what = "Seconds between SIGTERM and SIGKILL (default: the cluster's)."
    add_option(parser, OPTIONS["grace"], default=None, help=what)
    add("--cluster", action="store_true", help="End the cluster too, and free its ports.")
    return parser


@magic(_stop(), shows=True)
def mw_stop(session: Session, given: Namespace, _cell: str) -> Cluster | None:
    """Stop the run; end the cluster only on request."""
    if given.cluster and given.task is not None:
        raise BadArguments(
            f"--cluster ends every task, not only {given.task}; leave one of them out"
        )
    if session.gone:
        _say_why(session, given)
        return None
    cluster = session.cluster()
    if not given.cluster:
        _stop_run(session, cluster, given)
    else:
        with suppress(SupervisorError, WaitTimeout):  # its cluster then ends it
            _stop_run(session, cluster, given)
        cluster.shutdown()
        ended = f"ended the cluster {cluster.options.name!r}"
        others = session.others(selectable=True)
        session.say("\n".join([ended, *others]) if others else f"{ended}; nothing is left running")
    if cluster.latest is not None:
        session.displays.finish(cluster.latest)
    return cluster


def _say_why(session: Session, given: Namespace) -> None:
    """Say why nothing is stopped, where magics act on no cluster."""
    others = session.others()
    if others and (given.task is not None or given.grace is not None):
        raise NoCluster("\n".join(others))
    _require_no_run(given)
    lost = [] if session.loss is None else [str(session.loss)]
    session.say("\n".join([*lost, *others]) or "nothing is running")


def _stop_run(session: Session, cluster: Cluster, given: Namespace) -> None:
    """Stop the run or one of its tasks; say so if nothing is running."""
    run = cluster.latest
    if run is not None and not run.over:
        kept = run.kept
        run.stop(given.task, given.grace)
        if kept and run.over:
            session.say(f"let go of the processes of run {run.number}, and of their variables")
            return
        what = f"run {run.number}" if run.over else f"{given.task} of run {run.number}"
        session.say(f"stopped {what}")
        return
    _require_no_run(given)
    if not given.cluster:
        name = cluster.options.name
        session.say(f"nothing is running; `%mw_stop --cluster` ends the cluster {name!r}")


def _require_no_run(given: Namespace) -> None:
    """Refuse arguments that need a run, where there is none."""
    if given.task is not None:
        raise NoRun(f"nothing is running, so there is no {given.task} to stop")
    if given.grace is not None and not given.cluster:
        raise NoRun("nothing is running that --grace could give time; leave it out")


def _kill() -> Parser:
    parser = Parser("%mw_kill", "Send a task's process a signal, to inject a fault.")
    parser.add_argument("task", help="The task: 1, worker:1 or chief.")
    what = "The signal's name or number (default: KILL)."
    parser.add_argument("--signal", default="KILL", help=what)
    return parser


@magic(_kill(), shows=True)
def mw_kill(session: Session, given: Namespace, _cell: str) -> Run:
    """Send a task's process a signal."""
    number = _signal(given.signal)
    run = session.latest()
    run.kill(given.task, number)
    session.say(f"sent {number.name} to {run.cluster.spec.find(given.task)}")
    return run


def _signal(text: str) -> signal.Signals:
    """Read a signal's name or number."""
    try:
        if text.isdecimal():
            return signal.Signals(int(text))
        return signal.Signals[f"SIG{text.upper().removeprefix('SIG')}"]
    except (KeyError, ValueError):
        known = "KILL, TERM, INT, STOP, CONT, USR1 and the others of signal(7)"
        raise BadArguments(f"there is no signal {text!r}; there are {known}") from None
