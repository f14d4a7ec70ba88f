"""Internals of clusters and runs, for this package's own displays and magics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from mwmagic.model.messages import Message

    from .run import Run

__all__ = ["attach", "check_end", "judged", "listen", "serve"]


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
