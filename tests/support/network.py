"""Several hosts on one machine: network namespaces on a bridge, each with its own host name.

The first host has another boot time too, as another machine has. It needs root.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import psutil


def _claimed():
    """Claim a number that no other process has, until this one ends."""
    for number in range(1, 250):
        path = Path(tempfile.gettempdir(), f"mwmagic-test-network-{number}")
        claim = path.open("w")
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            claim.close()
        else:
            return number, claim
    raise OSError("all networks of tests are taken")


NUMBER, _CLAIM = _claimed()
"""Keeps the networks of tests that run at the same time apart."""

BRIDGE = f"mw{NUMBER}"
GATEWAY = f"10.177.{NUMBER}.1"
AHEAD_SECONDS = 5_000_000

NOWHERE = ("lladdr", "02:00:00:00:00:01", "nud", "permanent")
"""The end of a neighbour's entry to which what is sent gets lost."""


def ip(*words):
    subprocess.run(["ip", *words], check=True)


@dataclass(frozen=True)
class NetworkHost:
    """A namespace that stands for a host."""

    number: int
    ahead: int = 0

    @property
    def name(self):
        return f"mw{NUMBER}n{self.number}"

    @property
    def address(self):
        return f"10.177.{NUMBER}.{10 + self.number}"

    @property
    def link(self):
        """The bridge's end of its cable."""
        return f"mw{NUMBER}v{self.number}"

    def command(self, *words, hidden=(), names=None):
        """Return a command that runs another one on this host, which lacks some directories.

        A file with `names` of hosts and their addresses is its own ``/etc/hosts``.
        """
        clock = ["--time", "--monotonic", str(self.ahead), "--boottime", str(self.ahead)]
        mounts = "".join(f"mount -t tmpfs none {shlex.quote(str(one))} && " for one in hidden)
        if names is not None:
            mounts = f"mount --bind {shlex.quote(str(names))} /etc/hosts && {mounts}"
        inner = ["sh", "-c", f'hostname "$0" && {mounts} exec "$@"', self.name, *words]
        mount = ["--mount"] if mounts else []
        fork = ["--fork", "--kill-child"] if self.ahead else []
        own = ["unshare", "--uts", *mount, *(clock if self.ahead else []), *fork, "--"]
        return ["nsenter", f"--net=/run/netns/{self.name}", "--", *own, *inner]

    def up(self):
        ip("netns", "add", self.name)
        ip("link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("link", "set", self.link, "master", BRIDGE, "up")
        ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        ip("-n", self.name, "link", "set", "lo", "up")
        ip("-n", self.name, "link", "set", "eth0", "up")
        ip("-n", self.name, "route", "add", "default", "via", GATEWAY)

    def down(self):
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self.link], check=False, capture_output=True)

    def attach(self, interface, address):
        """Give it another network interface on the same bridge."""
        # Or both interfaces answer for both addresses, and the answers are kept when one is gone.
        answer = "echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore"
        subprocess.run(["nsenter", f"--net=/run/netns/{self.name}", "sh", "-c", answer], check=True)
        link = f"{self.link}{interface}"
        ip("link", "add", link, "type", "veth", "peer", "name", interface, "netns", self.name)
        ip("link", "set", link, "master", BRIDGE, "up")
        ip("-n", self.name, "addr", "add", f"{address}/24", "dev", interface)
        ip("-n", self.name, "link", "set", interface, "up")

    def detach(self, interface):
        """Remove an interface that was attached."""
        ip("link", "del", f"{self.link}{interface}")

    def shun(self, other):
        """Have what it sends to another host get lost, as behind a firewall that drops packets."""
        ip("-n", self.name, "neigh", "replace", other.address, "dev", "eth0", *NOWHERE)

    def greet(self, other):
        """End `shun`, if it has not ended."""
        words = ["-n", self.name, "neigh", "del", other.address, "dev", "eth0"]
        subprocess.run(["ip", *words], check=False, capture_output=True)

    def mute(self):
        """Have all that it sends off its network get lost, but nothing that is sent to it."""
        ip("-n", self.name, "neigh", "replace", GATEWAY, "dev", "eth0", *NOWHERE)

    def deafen(self):
        """Have all that this machine sends to it get lost, but nothing that it sends."""
        ip("neigh", "replace", self.address, "dev", BRIDGE, *NOWHERE)

    def drop(self, part):
        """Have a part of all packets from and to other hosts get lost, at random."""
        lost = ("-m", "statistic", "--mode", "random", "--probability", str(part), "-j", "DROP")
        for chain, way in (("INPUT", "-i"), ("OUTPUT", "-o")):
            self.run("iptables", "--wait", "-A", chain, way, "eth0", *lost)

    def throttle(self, kilobits):
        """Let its link carry no more than so many kilobits a second, each way."""
        bucket = ("tbf", "rate", f"{kilobits}kbit", "burst", "4kb", "latency", "400ms")
        self.run("tc", "qdisc", "replace", "dev", "eth0", "root", *bucket)
        subprocess.run(["tc", "qdisc", "replace", "dev", self.link, "root", *bucket], check=True)

    def run(self, *words):
        """Run a command that changes its network."""
        command = ["nsenter", f"--net=/run/netns/{self.name}", "--", *words]
        subprocess.run(command, check=True, capture_output=True)

    def heal(self):
        """End `mute`, `deafen`, `drop` and `throttle`."""
        for where, address, device in (
            (("-n", self.name), GATEWAY, "eth0"),
            ((), self.address, BRIDGE),
        ):
            words = [*where, "neigh", "del", address, "dev", device]
            subprocess.run(["ip", *words], check=False, capture_output=True)
        for command in (
            ["tc", "-n", self.name, "qdisc", "del", "dev", "eth0", "root"],
            ["tc", "qdisc", "del", "dev", self.link, "root"],
            ["nsenter", f"--net=/run/netns/{self.name}", "--", "iptables", "--wait", "-F"],
        ):
            subprocess.run(command, check=False, capture_output=True)

    def cut(self):
        """Take its cable out."""
        ip("link", "set", self.link, "down")

    def mend(self):
        """Put its cable back."""
        ip("link", "set", self.link, "up")

    def processes(self):
        """Return the processes on this host."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self.name], capture_output=True, text=True, check=False
        )
        found = []
        for pid in listed.stdout.split():
            with contextlib.suppress(psutil.Error):
                found.append(psutil.Process(int(pid)))
        return found


@dataclass
class Network:
    """Hosts that reach each other and this machine."""

    hosts: list[NetworkHost] = field(
        default_factory=lambda: [
            NetworkHost(1, ahead=AHEAD_SECONDS),
            NetworkHost(2),
            NetworkHost(3),
        ]
    )
    started: list[subprocess.Popen] = field(default_factory=list)

    def up(self):
        self.down()
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{GATEWAY}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for host in self.hosts:
            host.up()

    def start(self, command, **options):
        """Start a daemon, which ends with the network, or with this process if that is killed."""
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            **options,
        )
        self.started.append(process)
        return process

    def down(self):
        for process in reversed(self.started):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.started.clear()
        for host in self.hosts:
            host.down()
        subprocess.run(["ip", "link", "del", BRIDGE], check=False, capture_output=True)
