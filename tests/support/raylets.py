"""A Ray on the hosts of a network, with all files in a private directory. It needs root."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

# Or a token that another cluster left in the home directory would be asked for.
os.environ["RAY_AUTH_MODE"] = "disabled"

import ray
from network import GATEWAY, NUMBER, Network
from processes import LABEL, alive, command, eventually
from ray.util.placement_group import placement_group_table

RAY = (sys.executable, "-c", "from ray.scripts.scripts import main; main()")
"""The command line of the Ray that these tests' Python has."""

MEMORY_BYTES = 80_000_000
"""As small as Ray lets the store of each node be."""

CPUS = 2
GPUS = 2
"""What each node has of them, by its declaration."""

AGENT_PORTS = [
    f"--{name}-port={port}"
    for port, name in enumerate(
        ("dashboard-agent-grpc", "dashboard-agent-listen", "runtime-env-agent", "metrics-export"),
        6500 + 10 * NUMBER,
    )
]
"""Where a node's helpers listen. A node waits at most 30 s for helpers that choose their ports,
in which a busy machine may not start them."""

OWN = ("ray::", "/ray/", "ray.scripts")
"""Words in the commands of Ray's processes."""


class Rays:
    """A head on this machine, without processors, and a node on each host of a network.

    Attributes
    ----------
    folder : Path
        Its files.
    address : str
        Where its head is.
    """

    def __init__(self, folder, network):
        self.folder = folder
        self.network = network
        self.nodes = {}
        self.port = 6400 + NUMBER
        self.address = f"{GATEWAY}:{self.port}"

    def up(self):
        self.head = self.start_head()
        eventually(self.started, self.logs)
        for host in self.network.hosts:
            self.start_on(host)
        ray.init(self.address, log_to_driver=False, logging_level="error")
        eventually(self.ready, self.logs)

    def start_head(self):
        head = ["--head", f"--port={self.port}", "--num-cpus=0", "--include-dashboard=false"]
        return self.start("head", GATEWAY, *head, f"--temp-dir={self.folder}/ray")

    def start_on(self, host):
        words = [f"--address={self.address}", f"--num-cpus={CPUS}", f"--num-gpus={GPUS}"]
        self.nodes[host] = self.start(host.name, host.address, *words, on=host)

    def start(self, name, address, *words, on=None):
        store = f"--object-store-memory={MEMORY_BYTES}"
        node = ["start", f"--node-ip-address={address}", store, "--block", *AGENT_PORTS, *words]
        command = [*RAY, *node, "--disable-usage-stats"]
        env = {key: value for key, value in os.environ.items() if key != LABEL}
        env |= {"RAY_memory_monitor_refresh_ms": "0"}
        with (self.folder / f"{name}.out").open("ab") as out:
            whole = on.command(*command, hidden=[self.folder / "ray"]) if on else command
            return self.network.start(whole, stdout=out, stderr=out, env=env)

    def started(self):
        """Whether the head is up: a node that asks it earlier may wait in vain.

        One that gave up, as a node does on a busy machine, is started again.
        """
        if self.head.poll() is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.head.pid, signal.SIGKILL)
            self.head = self.start_head()
        return "Ray runtime started" in (self.folder / "head.out").read_text()

    def logs(self):
        return "\n".join(f"{p.name}: {p.read_text()}" for p in self.folder.glob("*.out"))

    def left(self, *hosts):
        """Return what runs on hosts, by default on all, that is not Ray's own."""
        there = [one for host in hosts or self.network.hosts for one in host.processes()]
        lines = [command(one.pid) for one in there if alive(one.pid)]
        return [line for line in lines if line and not any(word in line for word in OWN)]

    def groups(self):
        """Return the placement groups that are asked for or granted."""
        table = placement_group_table()
        return [one for one in table.values() if one["state"] != "REMOVED"]

    def ready(self):
        """Whether all nodes are there and idle; one that gave up is started again.

        Ray gives a node 30 s to come up, in which a busy machine may not have started all of it.
        """
        for host, process in list(self.nodes.items()):
            if process.poll() is not None:
                self.start_on(host)
        return self.idle()

    def idle(self):
        """Whether all nodes have all that they declared."""
        free = ray.available_resources()
        nodes = [node for node in ray.nodes() if node["Alive"] and "CPU" in node["Resources"]]
        return len(nodes) == len(self.network.hosts) and free.get("CPU") == CPUS * len(nodes)


@contextmanager
def rays():
    """Bring a network and a Ray up, and take them down without residue."""
    network = Network()
    with tempfile.TemporaryDirectory(prefix="mw-ray-", dir="/tmp") as folder:
        try:
            network.up()
            one = Rays(Path(folder), network)
            one.up()
            yield one
        finally:
            ray.shutdown()
            network.down()
