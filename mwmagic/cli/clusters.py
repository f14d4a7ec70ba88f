"""``mwmagic ps`` and ``stop``: the running clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.client.cluster import end
from mwmagic.client.lookup import running, unreachable
from mwmagic.errors import NoCluster
from mwmagic.model.values import counted
from mwmagic.words.host import idle_words, jobs_words, left_words
from mwmagic.words.run import headline, longest

from .output import say, show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from mwmagic.client.cluster import Cluster
    from mwmagic.errors import SupervisorError

__all__ = ["add_ps", "add_stop"]


def add_ps(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command that lists clusters."""
    command.set_defaults(action=_ps)


def add_stop(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command that ends clusters."""
    command.add_argument("name", nargs="?", help="Only clusters with this name (default: all).")
    command.set_defaults(action=_stop)


def _ps(_given: argparse.Namespace) -> int:
    refusals: list[SupervisorError] = []
    found = list(running(refusals))
    for cluster in found:
        run, options = cluster.latest, cluster.options
        what = headline(run.status()) if run else "no run yet"
        hosts = len(cluster.machines)
        tasks = counted(len(cluster.tasks), "task")
        tasks += f" on {counted(hosts, 'host')}" if hosts > 1 else ""
        busy = longest(run.status()) if run else ""
        facts = [options.name, tasks, _owner(cluster), jobs_words(cluster.machines), what, busy]
        show("  ".join(filter(None, facts)))
        show(f"  {options.directory}")
    if not found and not refusals:
        print("no cluster is running")
    return _told(refusals)


def _owner(cluster: Cluster) -> str:
    """Say what keeps a cluster running."""
    how = "detached" if cluster.options.detach else "kept for a new owner"
    if cluster.idle is not None and cluster.reserved is not None:
        return f"{how}, {idle_words(cluster.idle)}, {left_words(cluster.reserved)}"
    return "detached" if cluster.options.detach else "owned"


def _stop(given: argparse.Namespace) -> int:
    refusals: list[SupervisorError] = []
    wanted = list(running(refusals, name=given.name, wake=True))
    code = _told(refusals)
    if given.name is not None and not wanted and not refusals:
        raise NoCluster(
            f"no cluster {given.name!r} is running; `mwmagic ps` lists the running ones"
        )
    end(wanted)
    for cluster in wanted:
        show(f"ended {cluster.options.name} of {cluster.options.directory}")
    if not wanted and not refusals:
        print("no cluster is running")
    return code


def _told(refusals: Sequence[SupervisorError]) -> int:
    """Say which clusters are running and cannot be reached; return the exit code."""
    for refusal in refusals:
        say(unreachable(refusal))
    return 2 if refusals else 0
