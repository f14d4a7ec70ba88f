"""The clusters of this user that are running, and what this package's own displays ask of them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.record.paths import expanded

from . import starting
from .cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mwmagic.errors import SupervisorError
    from mwmagic.model.messages import Message

    from .run import Run

__all__ = [
    "attach",
    "check_end",
    "clusters",
    "judged",
    "listen",
    "running",
    "serve",
    "unreachable",
]


def clusters(directory: Path | str | None = None) -> Iterator[Cluster]:
    """Connect to each cluster of this user that is running, without owning it.

    Parameters
    ----------
    directory : path, optional
        Only those whose record is kept below it.
    """
    refusals: list[SupervisorError] = []
    yield from running(refusals, directory=directory)
    for refusal in refusals:
        warnings.warn(unreachable(refusal), stacklevel=2)


def running(
    refusals: list[SupervisorError],
    *,
    directory: Path | str | None = None,
    name: str | None = None,
    wake: bool = False,
) -> Iterator[Cluster]:
    """Connect to clusters of this user; see `clusters`."""
    root = None if directory is None else expanded(directory).resolve()
    paths = starting.existing_sockets(name, None if name is None else root)
    for connection in starting.connections(paths, refusals, owner=False, wake=wake):
        found = Cluster._of(connection, owner=False)  # noqa: SLF001 - of this package
        if root in (None, found.options.root) and name in (None, found.options.name):
            yield found


def unreachable(refusal: SupervisorError) -> str:
    """Say that there is a cluster all the same, where its supervisor refuses or is silent."""
    return f"a cluster is running that cannot be reached: {refusal}"


def attach(name: str, waits: Callable[[], None]) -> Cluster:
    """Attach; `waits` is called if the cluster is ending, before the wait for its end."""
    return Cluster._attach(name, Path.cwd(), waits)  # noqa: SLF001 - of this package


def listen(cluster: Cluster, listener: Callable[[Message], None]) -> Callable[[], None]:
    """Call `listener` with each snapshot, on a thread; return a function that ends that."""
    return cluster._connection.listen(listener)  # noqa: SLF001 - of this package


def judged(run: Run) -> bool:
    """Return whether a wait for this run returned, or raised what became of it."""
    return run.number in run.cluster._judged  # noqa: SLF001 - of this package


def serve(cluster: Cluster) -> None:
    """Start the servers that this process coordinates, if there are any and they are down."""
    cluster._serve()  # noqa: SLF001 - of this package


def check_end(run: Run, timeout: float | None) -> None:
    """Refuse to wait for a run that never ends by itself."""
    run._check_end(timeout)  # noqa: SLF001 - of this package
