"""The check that the machines of a cluster can connect to each other."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

from mwmagic.errors import ClusterError, SupervisorError
from mwmagic.model.machine import Obstacle
from mwmagic.words.host import reach_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .node import Node

__all__ = ["Rendezvous"]

REACH_SECONDS = 1.0
"""How long a machine may take to connect to another."""


class Rendezvous:
    """Has every machine connect to every other, once for the same machines."""

    def __init__(self, *, named: bool) -> None:
        self._named = named
        self._met: frozenset[tuple[str, str]] = frozenset()

    async def check(self, nodes: Sequence[Node]) -> None:
        """Try all pairs at the same time."""
        known = frozenset((node.host.name, node.address) for node in nodes)
        if len(nodes) < 2 or known <= self._met:  # noqa: PLR2004 - a pair
            return
        obstacles = await self._obstacles(nodes)
        if obstacles:
            raise ClusterError(reach_words(obstacles, named=self._named))
        self._met = known

    async def _obstacles(self, nodes: Sequence[Node]) -> list[Obstacle]:
        """Return the pairs that cannot connect."""
        words = {node: secrets.token_hex(8) for node in nodes}
        try:
            heard = [_listens(node, word) for node, word in words.items()]
            listen = await asyncio.gather(*heard)
            doors = {node: words[node] for node, does in zip(nodes, listen, strict=True) if does}
            found = await asyncio.gather(*(_found(node, doors) for node in nodes))
        finally:
            for node in nodes:
                node.channel.send("unlisten")
        return [one for own in found for one in own]


async def _listens(node: Node, word: str) -> bool:
    """Have a machine listen at its first task's port; return whether it does."""
    try:
        await node.channel.request("listen", port=node.port, word=word)
    except SupervisorError:  # it is lost, which is told elsewhere
        return False
    return True


async def _found(node: Node, doors: Mapping[Node, str]) -> list[Obstacle]:
    """Return what keeps a machine from connecting to the others."""
    others = [other for other in doors if other is not node]
    targets = [[f"{other.address}:{other.port}", doors[other]] for other in others]
    try:
        answer = await node.channel.request("reach", targets=targets, within=REACH_SECONDS)
    except SupervisorError:  # nothing is known
        return []
    return list(_read(node, others, answer["results"]))


def _read(
    node: Node, others: Sequence[Node], results: Sequence[Mapping[str, Any] | None]
) -> Iterable[Obstacle]:
    """Yield what an agent's answer tells."""
    for other, result in zip(others, results, strict=True):
        if result is not None:
            yield Obstacle(
                node.host.name,
                other.host.name,
                f"{other.address}:{other.port}",
                result["why"],
                tuple(result["at"]),
                result["error"],
                other.channel.addresses,
            )
