"""Clusters from their declaration to their end: ``%mw_cluster``, ``%mw_stop`` and ``%mw_kill``."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mwmagic.client.arguments import add_cluster_options, add_option, typed
from mwmagic.client.cluster import Cluster
from mwmagic.client.lookup import serve
from mwmagic.errors import (
    BadArguments,
    ClusterError,
    NoCluster,
    NoRun,
    NoSweep,
    RunActive,
    SupervisorError,
    WaitTimeout,
)
from mwmagic.model.options import OPTIONS, Change, Outcome, Repetition, repeat
from mwmagic.record.paths import sweeps_folder
from mwmagic.words.host import crowded_words, jobs_words

from .magic import Parser, magic

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from mwmagic.client.run import Run

    from .session import Session

__all__ = ["mw_cluster", "mw_kill", "mw_stop"]

_PARSER = Parser(
    "%mw_cluster",
    "Declare a cluster: hold a port for each task, warm up, and show the addresses. Repeated, it "
    "reuses the running cluster, updates it, or replaces it if it cannot be updated. Arguments "
    "after -- go to the engine's scheduler as they are.",
    rest="scheduler",
)
add_cluster_options(_PARSER, notebook=True)


@magic(_PARSER)
def mw_cluster(session: Session, given: Namespace, _cell: str) -> Cluster:
    """Declare a cluster."""
    asked = typed(given)
    if "name" in asked:
        old = session.find(asked["name"])
    else:
        asked["name"], old = session.default()
    if old is None:
        cluster = _declare(session, asked)
    else:
        before = session.before(old.options.name)
        repetition = repeat(old.options, asked, session.defaults(), before)
        cluster = _ACTIONS[repetition.outcome](session, old, repetition, asked)
    session.use(cluster, declared=old is None or "workers" in asked)
    _say_orphaned(session)
    return cluster


def _say_orphaned(session: Session) -> None:
    """Say that a sweep is not over whose kernel was killed."""
    if not sweeps_folder(session.directory).is_dir():
        return
    from mwmagic.experiments.sweep import sweeps
    from mwmagic.words.sweep import resume_words

    for sweep in sweeps(session.directory)[-1:]:
        with suppress(NoSweep):  # its files are gone
            if sweep.orphaned:
                session.say(resume_words(sweep, "%mw_sweep"))


def _declare(session: Session, asked: Mapping[str, Any]) -> Cluster:
    if "workers" not in asked and "chief" not in asked:
        raise BadArguments(
            f"there is no cluster {asked['name']!r} to reuse, so say how many workers "
            "to declare: `%mw_cluster 2`"
        )
    return _new(session, {"workers": 0, **session.defaults(), **asked})


def _new(session: Session, options: Mapping[str, Any]) -> Cluster:
    cluster = Cluster.declare(session.say, session.displays.prepare, **options)
    if crowded := crowded_words(cluster.machines):
        session.say(crowded)
    return cluster


def _reuse(
    session: Session, old: Cluster, repetition: Repetition, _asked: Mapping[str, Any]
) -> Cluster:
    name, jobs = repetition.options.name, jobs_words(old.machines)
    told = f"{name!r} ({jobs})" if jobs else repr(name)
    session.say(f"reusing the cluster {told}; `%mw_stop --cluster` ends it")
    serve(old)
    return old


def _update(
    session: Session, old: Cluster, repetition: Repetition, _asked: Mapping[str, Any]
) -> Cluster:
    old.update(**{change.name: change.new for change in repetition.changes})
    session.say(f"updated the cluster {old.options.name!r}: {_words(repetition)}")
    run = old.latest
    if run is not None and not run.over and any(map(_later, repetition.changes)):
        session.say(f"run {run.number} keeps its options; later launches get the new ones")
    serve(old)
    return old


def _replace(
    session: Session, old: Cluster, repetition: Repetition, asked: Mapping[str, Any]
) -> Cluster:
    name, why = repetition.options.name, _words(repetition)
    run = old.latest
    going = run is not None and not run.over
    if run is not None and going and not asked.get("replace"):
        with session.showing(old):
            raise RunActive(
                f"the cluster {name!r} is busy with run {run.number} ({run.words}), and it must be "
                f"replaced to get {why}; `%mw_stop` the run first, add --replace, which stops it, "
                "or give the new cluster a --name"
            )
    _check_held(session, old, why)
    if run is not None and going:
        run.stop()
        session.say(f"stopped run {run.number}")
    old.shutdown()
    new = _new(session, repetition.options.as_json())
    session.say(f"replaced the cluster {name!r}: {why}")
    return new


def _check_held(session: Session, old: Cluster, why: str) -> None:
    """Refuse to give back machines that an earlier kernel wanted to keep."""
    name = old.options.name
    if old.options.hold and not session.declared(name):
        session.use(old, declared=False)
        jobs = jobs_words(old.machines)
        raise ClusterError(
            f"the machines of the cluster {name!r} were kept with --hold"
            f"{jobs and f' ({jobs})'}, but this declaration needs others to get {why}. Declare "
            "the cluster as it was to use them, give them back with `%mw_stop --cluster`, or give "
            "the new cluster a --name"
        )


_ACTIONS = {Outcome.REUSE: _reuse, Outcome.UPDATE: _update, Outcome.REPLACE: _replace}


def _later(change: Change) -> bool:
    """Return whether a change affects later launches only."""
    return change.name != "detach"


def _words(repetition: Repetition) -> str:
    return ", ".join(_word(change) for change in repetition.changes)


def _word(change: Change) -> str:
    name = change.name.replace("_", " ")
    if isinstance(change.new, bool):
        return name if change.new else f"no {name}"
    if isinstance(change.new, dict):
        differ = [one for one in change.new if change.new[one] != change.old.get(one)]
        return f"{name} {', '.join(differ)}"
    return f"{name} {change.new} (was {change.old})"


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
