"""The checks that a cluster's machines can meet, and have the framework in the same version."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

from mwmagic.errors import ClusterError, SupervisorError
from mwmagic.model.machine import Obstacle
from mwmagic.words.failure import names_words
from mwmagic.words.host import reach_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mwmagic.frameworks import Framework

    from .node import Node

__all__ = ["Rendezvous", "check_versions", "find_versions"]

REACH_SECONDS = 1.0
"""How long a machine may take to connect to another."""

AGAIN_REACH_SECONDS = 4.0
"""The same after a failure: a link may lose packets, and TCP's third try comes after 3 s."""

VERSIONS_SECONDS = 5.0
"""How long a machine may take to say what it has; a slow one is not waited for."""


class Rendezvous:
    """Has every machine connect to every other, once for the same machines.

    `obstacles` are the pairs that could not connect at the latest try.
    """

    def __init__(self, *, named: bool) -> None:
        self.obstacles: list[Obstacle] = []
        self._named = named
        self._met: frozenset[tuple[str, str]] = frozenset()

    async def check(self, nodes: Sequence[Node]) -> None:
        """Try all pairs at the same time."""
        known = frozenset((node.host.name, node.address) for node in nodes)
        if len(nodes) < 2 or known <= self._met:  # noqa: PLR2004 - a pair
            return
        self.obstacles = await _obstacles(nodes, {node: node.port for node in nodes}, REACH_SECONDS)
        if self.obstacles:
            raise ClusterError(reach_words(self.obstacles, named=self._named))
        self._met = known

    async def again(self, nodes: Sequence[Node]) -> list[Obstacle]:
        """Return the pairs that cannot connect now, tried at ports that no task has."""
        held = await asyncio.gather(*(node.channel.hold(1) for node in nodes))
        ports = {node: port for node, [port] in zip(nodes, held, strict=True)}
        try:
            self.obstacles = await _obstacles(nodes, ports, AGAIN_REACH_SECONDS)
        finally:
            for node, port in ports.items():
                node.channel.send("release", ports=[port])
        if self.obstacles:
            self._met = frozenset()
        return self.obstacles


async def _obstacles(
    nodes: Sequence[Node], ports: Mapping[Node, int], seconds: float
) -> list[Obstacle]:
    """Return the pairs that cannot connect, each machine listening at a port."""
    words = {node: secrets.token_hex(8) for node in nodes}
    try:
        heard = [_listens(node, ports[node], word) for node, word in words.items()]
        listen = await asyncio.gather(*heard)
        doors = {
            node: (f"{node.address}:{ports[node]}", words[node])
            for node, does in zip(nodes, listen, strict=True)
            if does
        }
        found = await asyncio.gather(*(_found(node, doors, seconds) for node in nodes))
    finally:
        for node in nodes:
            node.channel.send("unlisten")
    return [one for own in found for one in own]


async def _listens(node: Node, port: int, word: str) -> bool:
    """Have a machine listen at a port; return whether it does."""
    try:
        await node.channel.request("listen", port=port, word=word)
    except SupervisorError:  # it is lost, which is told elsewhere
        return False
    return True


async def _found(
    node: Node, doors: Mapping[Node, tuple[str, str]], seconds: float
) -> list[Obstacle]:
    """Return what keeps a machine from connecting to the others, at addresses that say a word."""
    others = [other for other in doors if other is not node]
    targets = [list(doors[other]) for other in others]
    try:
        answer = await node.channel.request("reach", targets=targets, within=seconds)
    except SupervisorError:  # nothing is known
        return []
    return list(_read(node, {other: doors[other][0] for other in others}, answer["results"]))


def _read(
    node: Node, others: Mapping[Node, str], results: Sequence[Mapping[str, Any] | None]
) -> Iterable[Obstacle]:
    """Yield what an agent's answer tells."""
    for (other, address), result in zip(others.items(), results, strict=True):
        if result is not None:
            yield Obstacle(
                node.host.name,
                other.host.name,
                address,
                result["why"],
                tuple(result["at"]),
                result["error"],
                other.channel.addresses,
            )


async def find_versions(node: Node, framework: Framework, env: Mapping[str, str]) -> None:
    """Ask a machine which versions of a framework's packages its workers would import."""
    names = [framework.module, *framework.companions]
    ask = node.channel.request("find", names=names, env=dict(env), seconds=VERSIONS_SECONDS)
    try:
        answer = await ask
    except SupervisorError:  # nothing is known, and the warm process tells what is wrong
        return
    node.versions = answer["versions"]


def check_versions(nodes: Sequence[Node], framework: Framework) -> None:
    """Refuse machines without the framework, or with another version of it."""
    missing = [
        one for one in nodes if framework.module in one.versions and not _has(one, framework)
    ]
    if missing:
        first = missing[0].channel.executable
        raise ClusterError(
            f"{framework.title} is not installed on {names_words(_names(missing))} for {first}; "
            "install it there, or name a Python that has it with --python"
        )
    for name in (framework.module, *framework.companions):
        _check_same(nodes, name)


def _check_same(nodes: Sequence[Node], name: str) -> None:
    """Refuse different minor versions of a package."""
    known = [node for node in nodes if node.versions.get(name)]
    by_minor: dict[tuple[str, ...], list[Node]] = {}
    for node in known:
        minor = tuple((node.versions[name] or "").split(".")[:2])
        by_minor.setdefault(minor, []).append(node)
    if len(by_minor) > 1:
        told = [
            f"{own[0].versions[name]} on {names_words(_names(own))}" for own in by_minor.values()
        ]
        raise ClusterError(
            f"the machines have different versions of {name}: {'; '.join(told)}. Install the same "
            "on all of them, or name a Python that has it with --python"
        )


def _has(node: Node, framework: Framework) -> bool:
    """Return whether a machine has a framework."""
    return node.versions[framework.module] is not None


def _names(nodes: Sequence[Node]) -> list[str]:
    return [node.host.name for node in nodes]
