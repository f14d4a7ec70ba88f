"""The supervisors of this user that are running, and connections to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.errors import ClusterEnding, SupervisorError, SupervisorLost
from mwmagic.model.options import ClusterOptions

from . import sockets
from .connection import CLOSE_SECONDS, Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

__all__ = ["connections", "unreachable"]


def connections(
    paths: Iterable[Path],
    refusals: list[SupervisorError],
    *,
    owner: bool,
    wake: bool = False,
    waits: Callable[[], None] = lambda: None,
) -> Iterator[Connection]:
    """Connect to the supervisor behind each socket; wait for the end of one that is ending."""
    for path in paths:
        connection = _connection(path, refusals, waits, owner=owner, wake=wake)
        if connection is not None:
            yield connection


def _connection(
    path: Path,
    refusals: list[SupervisorError],
    waits: Callable[[], None],
    *,
    owner: bool,
    wake: bool,
) -> Connection | None:
    try:
        return Connection(path, owner=owner, wake=wake)
    except SupervisorLost:
        sockets.remove(path)
    except ClusterEnding as error:
        waits()
        if not _ends(path):
            refusals.append(error)
    except SupervisorError as error:
        refusals.append(error)
    return None


def _ends(path: Path) -> bool:
    """Wait for the end of a cluster for as long as it may take; return whether it has come."""
    try:
        connection = Connection(path, owner=False)
    except SupervisorLost:
        return True
    options = ClusterOptions.from_json(connection.news["cluster"]["options"])
    try:
        return connection.wait(lambda _: False, options.grace + CLOSE_SECONDS)
    except SupervisorLost:
        return True
    finally:
        connection.close()


def unreachable(refusal: SupervisorError) -> str:
    """Say that there is a cluster all the same, where its supervisor refuses or is silent."""
    return f"a cluster is running that cannot be reached: {refusal}"
