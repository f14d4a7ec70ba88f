"""``mwmagic ps`` and ``mwmagic stop``: the running clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.client.cluster import clusters, end
from mwmagic.errors import NoCluster
from mwmagic.words.run import headline

from .output import show

if TYPE_CHECKING:
    import argparse

__all__ = ["add_ps", "add_stop"]


def add_ps(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command that lists clusters."""
    command.set_defaults(action=_ps)


def add_stop(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command that ends clusters."""
    command.add_argument("name", nargs="?", help="Only clusters with this name (default: all).")
    command.set_defaults(action=_stop)


def _ps(_given: argparse.Namespace) -> int:
    found = list(clusters())
    for cluster in found:
        run, options = cluster.latest, cluster.options
        what = headline(run.status()) if run else "no run yet"
        kept = "detached" if options.detach else "owned"
        show(f"{options.name}  {len(cluster.tasks)} tasks  {kept}  {what}")
        show(f"  {options.directory}")
    if not found:
        print("no cluster is running")
    return 0


def _stop(given: argparse.Namespace) -> int:
    wanted = [one for one in clusters() if given.name in (None, one.options.name)]
    if given.name is not None and not wanted:
        raise NoCluster(
            f"no cluster {given.name!r} is running; `mwmagic ps` lists the running ones"
        )
    end(wanted)
    for cluster in wanted:
        show(f"ended {cluster.options.name} of {cluster.options.directory}")
    if not wanted:
        print("no cluster is running")
    return 0
