"""``%mw_cluster``: declare a cluster, or reuse or change the running one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mwmagic.client.arguments import add_cluster_options, typed
from mwmagic.client.cluster import Cluster
from mwmagic.client.lookup import serve
from mwmagic.errors import BadArguments, ClusterError, RunActive
from mwmagic.model.options import Change, Outcome, Repetition, repeat
from mwmagic.words.host import crowded_words, jobs_words

from .magic import Parser, magic

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from .session import Session

__all__ = ["mw_cluster"]

_PARSER = Parser(
    "%mw_cluster",
    "Declare a cluster: hold a port for each task, warm up, and show the addresses. Repeated, it "
    "reuses the running cluster, updates it, or replaces it if it cannot be updated. What follows "
    "-- goes to the engine's scheduler as it is.",
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
        cluster = _ACTIONS[repetition.outcome](session, old, repetition)
    session.use(cluster, declared=old is None or "workers" in asked)
    return cluster


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


def _reuse(session: Session, old: Cluster, repetition: Repetition) -> Cluster:
    name, jobs = repetition.options.name, jobs_words(old.machines)
    told = f"{name!r} ({jobs})" if jobs else repr(name)
    session.say(f"reusing the cluster {told}; `%mw_stop --cluster` ends it")
    serve(old)
    return old


def _update(session: Session, old: Cluster, repetition: Repetition) -> Cluster:
    old.update(**{change.name: change.new for change in repetition.changes})
    session.say(f"updated the cluster {old.options.name!r}: {_words(repetition)}")
    run = old.latest
    if run is not None and not run.over and any(map(_later, repetition.changes)):
        session.say(f"run {run.number} keeps its options; later launches get the new ones")
    serve(old)
    return old


def _replace(session: Session, old: Cluster, repetition: Repetition) -> Cluster:
    name, why = repetition.options.name, _words(repetition)
    run = old.latest
    if run is not None and not run.over:
        with session.showing(old):
            raise RunActive(
                f"the cluster {name!r} is busy with run {run.number} ({run.words}), and it must be "
                f"replaced to get {why}; `%mw_stop` the run first, or give the new cluster a --name"
            )
    _check_held(session, old, why)
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
