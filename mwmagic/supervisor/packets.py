"""Packets about live cells: orders to tasks, and what tasks say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mwmagic.errors import BadArguments
from mwmagic.model.live import CELL_BYTES

if TYPE_CHECKING:
    from mwmagic.model.messages import Message

__all__ = ["check_fits", "is_live", "kind_of", "packet_of"]

_HEAD = '{"live": '
"""How packets begin that are about cells."""


def is_live(packet: str) -> bool:
    """Return whether a packet on a worker's line is about cells."""
    return packet.startswith(_HEAD)


def kind_of(packet: str) -> str:
    """Return what a packet about cells says, even if the rest cannot be read."""
    return packet.removeprefix(_HEAD).lstrip('"').partition('"')[0]


def packet_of(order: Message) -> str:
    """Return an order as a packet, with as few bytes as its text has."""
    text = json.dumps(order, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a half of a pair of surrogates
        return json.dumps(order)
    return text


def check_fits(packet: str, what: str, remedy: str) -> None:
    """Raise BadArguments if a packet, which holds ``what``, is too long for a task's line."""
    size = len(packet.encode())
    if size > CELL_BYTES:
        raise BadArguments(f"{what} has {size:,} bytes, and {CELL_BYTES:,} are the limit; {remedy}")
