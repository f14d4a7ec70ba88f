"""The wait for a cluster's machines."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mwmagic import errors
from mwmagic.model.placement import Placing

if TYPE_CHECKING:
    from collections.abc import Callable

    from mwmagic.model.messages import Message

    from .connection import Connection

__all__ = ["placed"]


def placed(connection: Connection, told: Callable[[str], None]) -> None:
    """Wait until a cluster has its machines, for as long as that takes."""
    said = ""
    while True:
        connection.wait(partial(_tells, said), None)
        now = _of(connection.news)
        if now.said not in ("", said):
            said = now.said
            told(said)
        if now.state == "failed":
            raise getattr(errors, now.kind, errors.SupervisorError)(now.error)
        if now.state == "placed":
            return


def _of(news: Message) -> Placing:
    return Placing(**news["cluster"]["placing"])


def _tells(said: str, news: Message) -> bool:
    """Return whether there is something new to tell, or nothing more to wait for."""
    now = _of(news)
    return now.state != "waiting" or now.said not in ("", said)
