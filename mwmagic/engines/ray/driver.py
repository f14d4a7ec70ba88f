"""The bridge to Ray: a process that imports it, as neither a kernel nor a supervisor does.

``python -I driver.py`` has a packet socket as its standard input. The first packet is what to
ask Ray for. Packets go back about how that goes, and then which nodes there are. Each further
packet is the number of a node, and comes with a socket that is joined to an agent there, or it
is what to ask for instead, which gives the earlier nodes back, or what to have ready for then. When
the other end of the standard input closes, or this process ends in any way, Ray takes the nodes
back and ends the agents.

Besides Ray it needs only Python's own modules: what an actor uses is brought to the nodes as it
stands here.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import select
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

RELAY_BYTES = 1 << 20

DATAGRAM_BYTES = 1 << 16
"""More than any packet has."""

TEXT_CHARACTERS = 2000
"""How much of a text goes into a packet."""

GRANT_POLL_SECONDS = 0.05
"""How often Ray is asked whether there are nodes, at first."""

GRANT_POLL_LIMIT_SECONDS = 0.5
"""How often at last: it doubles until then."""

PENDING_SECONDS = 0.5
"""How long nodes may take to be granted before that counts as waiting."""

AVOID_SECONDS = 30.0
"""How long to insist on other nodes than those that were lost: longer than Ray takes to notice
that a node is dead. Those that it offers after that are sound in its eyes."""

END_SECONDS = 8.0
"""How long an agent may take to end before its actor is killed."""

UNDO_SECONDS = 3.0
"""How long it may take to give Ray's nodes back."""


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Holder:
    """An actor that holds an agent on its node.

    Ray assigns an actor no more than one bundle's GPUs, and its environment says so; that of
    the agent is the node's own, with the GPUs of all bundles there.
    """

    def __init__(self, command: list[str], gpus: list[str]) -> None:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - brought without pathlib
            pairs = [one.partition(b"=") for one in file.read().split(b"\0") if one]
        env = {name: value for name, _, value in pairs}
        env[b"CUDA_VISIBLE_DEVICES"] = ",".join(gpus).encode()
        process: Any = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
        self.input, self.output = process.stdin, process.stdout
        self.open = [process.stdout, process.stderr]

    def write(self, data: bytes) -> None:
        """Write to the agent, all of it."""
        view = memoryview(data)
        while view:
            view = view[self.input.write(view) :]

    def end(self) -> None:
        """Close the agent's standard input, which ends it."""
        self.input.close()

    def read(self) -> list[tuple[bool, bytes]]:
        """Wait for what the agent writes; return pieces, and whether each is its output.

        There is nothing once its output has ended.
        """
        found: list[tuple[bool, bytes]] = []
        while self.output in self.open and not found:
            for pipe in select.select(self.open, [], [])[0]:
                data = os.read(pipe.fileno(), RELAY_BYTES)
                if data:
                    found.append((pipe is self.output, data))
                else:
                    self.open.remove(pipe)
        return found


def gpus_here() -> list[str]:
    """Return the GPUs that Ray assigned to the task that this is called in."""
    import ray

    return [str(one) for one in ray.get_runtime_context().get_accelerator_ids().get("GPU", [])]


def words(error: BaseException) -> str:
    """Return an error in one line; of one that an actor raised, its traceback's last line."""
    plain = _COLOURS.sub("", str(error))
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    if any(line.startswith('File "') for line in lines):
        lines = lines[-1:]
    return (" ".join(lines) or type(error).__name__)[:TEXT_CHARACTERS]


class Reservation:
    """Nodes of a placement group, with an actor on each.

    `nodes` is what the engine knows of each one's; it and `holders`, the actors, are empty until
    Ray has granted them.
    """

    count = 0
    """How many this process has asked for: Ray refuses a second group of the same name."""

    def __init__(self, request: dict[str, Any]) -> None:
        Reservation.count += 1
        self.name = f"mwmagic-{self.count}"
        self.request = request
        self.group: Any = None
        self.holders: list[Any] = []
        self.nodes: list[dict[str, Any]] = []

    async def get(self, tell: Callable[..., None]) -> None:
        """Have an actor with an agent on every node; `tell` what Ray says while there are none."""
        import ray

        table = await self.granted(tell)
        of: dict[str, list[int]] = {}
        for at, node in sorted(table["bundles_to_node_id"].items()):
            of.setdefault(node, []).append(at)
        gpus = await self.gpus()
        known = {node["NodeID"]: node for node in ray.nodes()}
        actor = ray.remote(Holder)
        for bundles in of.values():
            own = [gpu for at in bundles for gpu in gpus[at]]
            settings = self.placed(bundle=bundles[0], max_concurrency=4, max_restarts=0)
            self.holders.append(actor.options(**settings).remote(self.request["command"], own))
        self.nodes = [
            {
                "id": node,
                "name": known[node]["NodeManagerHostname"],
                "address": known[node]["NodeManagerAddress"],
                "bundles": len(bundles),
            }
            for node, bundles in of.items()
        ]

    def serves(self, request: dict[str, Any]) -> bool:
        """Return whether Ray has granted what is now asked for."""
        alike = all(self.request[one] == request[one] for one in ("bundles", "strategy", "command"))
        nodes = {node["id"] for node in self.nodes}
        return alike and bool(nodes) and not nodes & set(request["avoid"])

    def give_back(self) -> None:
        """End the actors and give the nodes back."""
        import ray
        from ray.util.placement_group import remove_placement_group

        for holder in self.holders:
            ray.kill(holder)
        if self.group is not None:
            remove_placement_group(self.group)

    def ask(self, avoid: list[str]) -> None:
        """Ask for a placement group, which ends with this process."""
        from ray.util.placement_group import placement_group

        bundles = self.request["bundles"]
        selector = {"ray.io/node-id": f"!in({','.join(avoid)})"}
        self.group = placement_group(
            bundles,
            strategy=self.request["strategy"],
            name=self.name,
            **({"bundle_label_selector": [selector] * len(bundles)} if avoid else {}),
        )

    async def granted(self, tell: Callable[..., None]) -> dict[str, Any]:
        """Wait for the nodes, and return Ray's table of them."""
        from ray.util.placement_group import placement_group_table, remove_placement_group

        loop = asyncio.get_running_loop()
        began, said, avoid = loop.time(), None, self.request["avoid"]
        pause = GRANT_POLL_SECONDS
        self.ask(avoid)
        while (table := placement_group_table(self.group)).get("state") != "CREATED":
            waited = loop.time() - began
            if avoid and waited > AVOID_SECONDS:
                avoid = []
                remove_placement_group(self.group)
                self.ask(avoid)
            pending = self.pending(table)
            if waited > PENDING_SECONDS and pending != said:
                said = pending
                tell("pending", **pending)
            await asyncio.sleep(pause)
            pause = min(2 * pause, GRANT_POLL_LIMIT_SECONDS)
        return dict(table)

    def pending(self, table: dict[str, Any]) -> dict[str, Any]:
        """Return what Ray says while the nodes are not granted."""
        import ray

        stats = table.get("stats") or {}
        names = {name for bundle in self.request["bundles"] for name in bundle}
        total, free = ray.cluster_resources(), ray.available_resources()
        have = {name: [free.get(name, 0), total.get(name, 0)] for name in sorted(names)}
        return {"reason": str(stats.get("scheduling_state", table.get("state"))), "have": have}

    def placed(self, **options: Any) -> dict[str, Any]:  # noqa: ANN401 - Ray's
        """Return the options of an actor or task that is placed in the group."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        at = options.pop("bundle")
        strategy = PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=at)
        return {"num_cpus": 0, "scheduling_strategy": strategy, **options}

    async def gpus(self) -> list[list[str]]:
        """Return the GPUs of each bundle, which are its own while the group lasts."""
        import ray

        bundles = self.request["bundles"]
        task = ray.remote(gpus_here)
        asked = {
            at: task.options(**self.placed(bundle=at, num_gpus=bundle["GPU"])).remote()
            for at, bundle in enumerate(bundles)
            if bundle.get("GPU")
        }
        return [list(await asked[at]) if at in asked else [] for at in range(len(bundles))]


class Driver:
    """What Ray calls a driver: it asks for nodes, and its end gives them back."""

    def __init__(self, control: socket.socket, request: dict[str, Any]) -> None:
        self.control = control
        self.address = request["address"]
        self.grant = Reservation(request)
        self.holders: list[Any] = []  # also those of earlier grants
        self.spare: Reservation | None = None
        self.preparing: asyncio.Task[None] | None = None
        self.tasks: set[asyncio.Task[None]] = set()

    def send(self, kind: str, **fields: Any) -> None:  # noqa: ANN401 - JSON values
        """Send the engine a packet."""
        with suppress(OSError):  # it is gone, which the lifeline notices
            self.control.send(json.dumps({"type": kind, **fields}).encode())

    # The nodes.

    def connect(self) -> None:
        """Connect to Ray, whose logs are not forwarded."""
        import ray

        ray.init(self.address, log_to_driver=False, logging_level="error", configure_logging=False)

    def offer(self) -> None:
        """Send the engine the nodes; they are numbered from the first that is not known yet."""
        first = len(self.holders)
        self.holders += self.grant.holders
        self.send("nodes", nodes=self.grant.nodes, first=first)

    async def replace(self, request: dict[str, Any]) -> None:
        """Give the nodes back, and get others: without another import of Ray."""
        spare, self.spare = self.spare, None
        ready = spare is not None and spare.serves(request)
        try:
            self.grant.give_back()
            if spare is not None and ready:
                self.grant = spare
            else:
                self.dismiss(spare)
                self.grant = Reservation(request)
                await self.grant.get(self.send)
            self.offer()
        except Exception as error:  # noqa: BLE001 - whatever Ray raises, the engine reports
            self.send("failed", error=words(error))

    def prepare(self, request: dict[str, Any] | None) -> None:
        """Ask for other nodes beside these, in case these are given back soon; or for none."""
        self.dismiss(self.spare)
        self.spare = None
        if request is not None:
            self.spare = spare = Reservation(request)
            self.preparing = self.work(self.have(spare))

    async def have(self, spare: Reservation) -> None:
        """Have spare nodes, for a while."""
        try:
            await spare.get(lambda *_, **__: None)
        except Exception as error:  # noqa: BLE001 - whatever Ray raises: they are for speed alone
            sys.stderr.write(f"no spare nodes: {words(error)}\n")
        await asyncio.sleep(spare.request["keep"])
        if self.spare is spare:
            self.spare = None
            with suppress(Exception):
                spare.give_back()

    def dismiss(self, spare: Reservation | None) -> None:
        """Give spare nodes back, or stop asking for them."""
        if spare is not None:
            if self.preparing is not None:
                self.preparing.cancel()
            with suppress(Exception):
                spare.give_back()

    # The agents.

    def accept(self) -> None:
        """Take a socket, and join it to the agent of a node; or take another request."""
        try:
            data, ends, _, _ = socket.recv_fds(self.control, DATAGRAM_BYTES, 1)
        except BlockingIOError:
            return
        if ends:
            link = socket.socket(fileno=ends[0])
            link.settimeout(0)
            self.work(self.join(int(data), link))
        elif data:  # else the other end closes: the lifeline's matter
            request = json.loads(data)
            if "spare" in request:
                self.prepare(request["spare"])
            else:
                self.work(self.replace(request))

    def work(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Do something beside everything else."""
        task = asyncio.create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def join(self, number: int, link: socket.socket) -> None:
        """Pass bytes on between the engine and an agent until either ends."""
        import ray

        holder = self.holders[number]
        feeding = asyncio.create_task(self.feed(holder, link))
        try:
            await self.drain(number, link)
        except Exception as error:  # noqa: BLE001 - whatever Ray raises, the agent is lost
            self.send("stderr", node=number, text=words(error))
        finally:
            feeding.cancel()
            link.close()
            with suppress(Exception):
                ray.kill(holder)

    async def feed(self, holder: Any, link: socket.socket) -> None:  # noqa: ANN401 - an actor
        """Pass on what the engine sends; ask the agent to end when that ends."""
        import ray

        loop = asyncio.get_running_loop()
        with suppress(OSError):
            # One after the other: Ray does not promise an order otherwise.
            while data := await loop.sock_recv(link, RELAY_BYTES):
                await holder.write.remote(data)
        holder.end.remote()
        await asyncio.sleep(END_SECONDS)
        ray.kill(holder)

    async def drain(self, number: int, link: socket.socket) -> None:
        """Pass on what an agent sends."""
        loop = asyncio.get_running_loop()
        while pieces := await self.holders[number].read.remote():
            for output, data in pieces:
                if output:
                    await loop.sock_sendall(link, data)
                else:
                    text = data[-TEXT_CHARACTERS:].decode(errors="replace")
                    self.send("stderr", node=number, text=text)

    # The process.

    def give_back(self) -> None:
        """Give the nodes back, as far as Ray answers, and end."""
        timer = threading.Timer(UNDO_SECONDS, partial(os._exit, 0))
        timer.daemon = True
        timer.start()
        with suppress(Exception):
            self.grant.give_back()
            if self.spare is not None:
                self.spare.give_back()
        os._exit(0)

    async def run(self) -> None:
        """Get the nodes, and join sockets to agents from then on."""
        await self.grant.get(self.send)
        self.offer()
        self.control.settimeout(0)
        asyncio.get_running_loop().add_reader(self.control, self.accept)
        await asyncio.Event().wait()


def when_closed(control: socket.socket, react: Callable[[], None]) -> None:
    """Call a function, in a thread of its own, when the other end of a socket is closed."""

    def wait() -> None:
        poll = select.poll()
        poll.register(control, select.POLLRDHUP)
        poll.poll()
        react()

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """Talk to Ray until the engine closes the standard input."""
    control = socket.socket(fileno=os.dup(0))
    os.dup2(2, 1)  # Ray's own remarks
    request = json.loads(control.recv(DATAGRAM_BYTES))
    sys.path[:] = request["path"]
    driver = Driver(control, request)
    when_closed(control, driver.give_back)
    try:
        driver.connect()
        asyncio.run(driver.run())
    except BaseException as error:  # noqa: BLE001 - whatever Ray raises, the engine reports
        driver.send("failed", error=words(error))
    driver.give_back()


if __name__ == "__main__":
    main()
