"""The supervisors of this user that are running, and connections to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.errors import SupervisorError, SupervisorLost

from . import sockets
from .connection import Connection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["connections"]


def connections(
    paths: Iterable[Path], refusals: list[SupervisorError], *, owner: bool
) -> Iterator[Connection]:
    """Connect to the supervisor behind each socket.

    Parameters
    ----------
    paths : iterable of Path
        The sockets; a dead one is removed.
    refusals : list of SupervisorError
        Gets the errors of the supervisors that refuse.
    owner : bool
        Whether to become the owner of the cluster.
    """
    for path in paths:
        connection = _connection(path, refusals, owner=owner)
        if connection is not None:
            yield connection


def _connection(path: Path, refusals: list[SupervisorError], *, owner: bool) -> Connection | None:
    try:
        return Connection(path, owner=owner)
    except SupervisorLost:
        sockets.remove(path)
    except SupervisorError as error:
        refusals.append(error)
    return None
