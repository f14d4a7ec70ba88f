"""What keeps one machine of a cluster from reaching another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mwmagic.agent.wire import FAILED, REFUSED, SILENT, STRANGER, UNRESOLVED, UNROUTABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "FAILED",
    "REFUSED",
    "SILENT",
    "STRANGER",
    "UNRESOLVED",
    "UNROUTABLE",
    "Obstacle",
]


@dataclass(frozen=True)
class Obstacle:
    """Why one machine cannot connect to another.

    Parameters
    ----------
    source, target : str
        The names of the machine that connects and of the other.
    address : str
        The address of the other, with a port at which it listens.
    why : str
        One of `mwmagic.agent.wire.OBSTACLES`.
    at : tuple of str
        The IP addresses that the address stands for on the first machine.
    error : str
        What the system says.
    interfaces : mapping of str to sequence of str
        The IP addresses of the other machine, by network interface.
    """

    source: str
    target: str
    address: str
    why: str
    at: tuple[str, ...] = ()
    error: str = ""
    interfaces: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)

    @property
    def loops(self) -> bool:
        """Whether the address stands for the first machine itself."""
        return bool(self.at) and all(one == "::1" or one.startswith("127.") for one in self.at)
