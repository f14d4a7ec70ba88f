"""The Ray engine: nodes of a Ray cluster, in a placement group."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from mwmagic.engines.engine import Host, agent_command
from mwmagic.errors import ClusterError
from mwmagic.model.machine import spread

from .bridge import Bridge, SocketLink, check_ray

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from mwmagic.engines.link import Link
    from mwmagic.model.cluster import Task
    from mwmagic.model.options import ClusterOptions

__all__ = ["RayEngine"]

RESOURCES_EXAMPLE = "--engine ray -- CPU=4 memory=8e9"

SPARE_SECONDS = 10.0
"""How much longer than a lease other nodes are kept for the next allocation: there may be none."""


@dataclass(eq=False)
class _Thread:
    """A node of an allocation, and the link to its agent."""

    bridge: Bridge
    number: int
    node: str
    link: SocketLink | None = None

    @property
    def broken(self) -> bool:
        """Whether there was a link that has ended."""
        return self.link is not None and not self.link.alive


@dataclass(frozen=True)
class RayHost(Host):
    """A node of Ray, as offered by the engine."""

    # Another allocation's actor on the same node is another agent.
    thread: _Thread = field(kw_only=True)

    async def connect(self) -> Link:
        """Have the bridge join a link to the agent."""
        self.thread.link = await self.thread.bridge.join(self.thread.number)
        return self.thread.link


class RayEngine:
    """Nodes of a Ray cluster; see `mwmagic.engines.Engine`.

    A placement group holds them, and ends with the process that asked for it: that is the
    bridge, which imports Ray, as this process does not.
    """

    takes: ClassVar[frozenset[str]] = frozenset(
        {"address", "nodes", "python", "scheduler", "interface", "files", "lease", "hold"}
    )

    def __init__(self, options: ClusterOptions) -> None:
        check_ray()
        self.options = options
        self._resources = _resources(options)
        self._bridge: Bridge | None = None
        self._hosts: list[RayHost] = []
        self._tasks = 0
        self._bad: set[str] = set()
        self._names: dict[str, str] = {}

    @property
    def helpers(self) -> Collection[int]:
        """The id of the bridge."""
        return self._bridge.pids if self._bridge else ()

    async def allocate(
        self, tasks: Sequence[Task], *, avoid: Collection[str], notify: Callable[[str], None]
    ) -> Sequence[Host]:
        """Return nodes of a new placement group, without those that were lost."""
        self._bad |= self._lost(avoid)
        self._tasks = len(tasks)
        if self._bridge is None or not self._bridge.alive:
            await self.release()
            self._bridge = Bridge()
        try:
            nodes = await self._asked(self._bridge, notify)
        except BaseException:
            await self.release()
            raise
        self._hosts = [self._host(self._bridge, *one, len(tasks)) for one in nodes.items()]
        self._bad -= {host.thread.node for host in self._hosts}  # Ray had no others for long
        notify(_granted(self._hosts, tasks))
        return self._hosts

    def _lost(self, avoid: Collection[str]) -> set[str]:
        """Return the ids of nodes that were lost, but not of those lost with the bridge.

        The nodes of an earlier allocation were lost when that was given back.
        """
        if self._bridge is None or not self._bridge.alive:
            return set()
        return {h.thread.node for h in self._hosts if h.name in avoid and h.thread.broken}

    def prepare(self, unresponsive: Collection[str]) -> None:
        """Have a placement group without the unresponsive nodes ready, as long as there are any.

        An actor starts in about a second, which then passes during the lease.
        """
        nodes = {host.thread.node for host in self._hosts if host.name in unresponsive}
        keep = self.options.lease + SPARE_SECONDS
        spare = {**self._request(self._bad | nodes), "keep": keep} if nodes else None
        if self._bridge is not None:
            self._bridge.prepare(spare)

    async def _asked(
        self, bridge: Bridge, notify: Callable[[str], None]
    ) -> dict[int, dict[str, Any]]:
        """Ask Ray for nodes."""
        request = self._request(self._bad)
        bundles = request["bundles"]
        kind = "node" if self.options.nodes else "task"
        what = f"{len(bundles)} {kind}{'s' * (len(bundles) > 1)}, {_shown(bundles[0])} each"
        try:
            return await bridge.ask(request, lambda packet: notify(_waiting(what, packet)))
        except ClusterError as error:
            raise ClusterError(f"Ray at {request['address']!r}: {error}") from None

    def _request(self, avoid: Collection[str]) -> dict[str, Any]:
        """Return a request for a bundle of resources for each task, or for each of `--nodes`."""
        nodes = self.options.nodes
        share = -(-self._tasks // nodes) if nodes else 1
        bundle = {name: number * share for name, number in self._resources.items()}
        return {
            "address": self.options.address or "auto",
            "bundles": [bundle] * (nodes or self._tasks),
            "strategy": "STRICT_SPREAD" if nodes else "PACK",
            "avoid": sorted(avoid),
            "command": agent_command(self._python),
        }

    @property
    def _python(self) -> str:
        return self.options.python or sys.executable

    def _host(self, bridge: Bridge, number: int, node: Mapping[str, Any], tasks: int) -> RayHost:
        share = -(-tasks // self.options.nodes) if self.options.nodes else 1
        address = node["address"]
        return RayHost(
            self._name(node),
            f"[{address}]" if ":" in address else address,
            agent_command(self._python),
            slots=node["bundles"] * share,
            hint=f"Is there a {self._python} on the nodes? --python says which to use there",
            stderr=bridge.errors[number],
            thread=_Thread(bridge, number, node["id"]),
        )

    def _name(self, node: Mapping[str, Any]) -> str:
        """Return a node's host name, with its id if another node has or had the same."""
        others = {name for one, name in self._names.items() if one != node["id"]}
        host = node["name"] or node["address"]
        return self._names.setdefault(
            node["id"], f"{host}-{node['id'][:8]}" if host in others else host
        )

    async def why(self, host: Host) -> str | None:
        """Return what Ray says about the actor that held the agent, or about the bridge's end."""
        if not isinstance(host, RayHost):
            return None
        thread = host.thread
        if not thread.bridge.alive:
            return f"the process that talks to Ray ended: {thread.bridge.words}".rstrip(": ")
        return host.stderr.last or None

    async def release(self) -> None:
        """Give the nodes back."""
        bridge, self._bridge = self._bridge, None
        self._hosts = []
        if bridge is not None:
            await bridge.close()


def _resources(options: ClusterOptions) -> dict[str, float]:
    """Return what each task needs: a processor, and what the options say."""
    found: dict[str, float] = {"CPU": options.threads or 1, "GPU": options.gpus or 0}
    for word in options.scheduler:
        name, _, number = word.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not name or not 0 <= value < math.inf:
            raise ClusterError(
                f"{word!r} is not a resource of Ray; write what each task needs as in "
                f"{RESOURCES_EXAMPLE}"
            )
        found[name] = value
    needed = {name: number for name, number in found.items() if number}
    if not needed:
        raise ClusterError("each task needs a resource of Ray, such as CPU=1")
    return needed


def _shown(bundle: Mapping[str, float]) -> str:
    return " and ".join(f"{number:g} {name}" for name, number in bundle.items())


def _waiting(what: str, packet: Mapping[str, Any]) -> str:
    """Return in words what Ray says while it grants nothing."""
    have = [f"{free:g} of {total:g} {name}" for name, (free, total) in packet["have"].items()]
    return f"Ray waits ({packet['reason']}) for {what}; free: {', '.join(have)}"


def _granted(hosts: Sequence[Host], tasks: Sequence[Task]) -> str:
    """Return in words what was granted."""
    shares = spread(tasks, [host.slots for host in hosts])
    placed = [f"{host.name} ({len(own)})" for host, own in zip(hosts, shares, strict=True)]
    return f"nodes of Ray and their tasks: {', '.join(placed)}"
