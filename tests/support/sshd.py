"""A real sshd on each host of a network, and the configuration with which to reach them."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from network import Network
from processes import LABEL, command, eventually, labelled

PORT = 22


def key(path):
    """Make a key without a passphrase."""
    made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)]
    subprocess.run(made, check=True)
    return path


def answers(host):
    with suppress(OSError), socket.create_connection((host.address, PORT), 1) as one:
        return one.recv(4) == b"SSH-"
    return False


class Lab:
    """Hosts with a daemon each; every file of theirs is in one folder.

    Attributes
    ----------
    config : Path
        What ``ssh -F`` takes: it knows the hosts by name, and their keys.
    home : Path
        The user's home on every host; the last host has one of its own.
    hidden : sequence of Path
        What the last host does not see, because it has a disk of its own.
    """

    def __init__(self, folder, hidden=()):
        self.folder = Path(folder)
        self.hidden = hidden
        self.network = Network()
        self.hosts = self.network.hosts
        self.config = self.folder / "config"
        self.home = self.folder / "home"

    @property
    def names(self):
        return [host.name for host in self.hosts]

    def up(self):
        self.network.up()
        self.home.mkdir()
        own = key(self.folder / "id")
        lines = [f"{host.address} {host.name}\n" for host in self.hosts]
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        known = [self.start(host, own) for host in self.hosts]
        (self.folder / "known").write_text("".join(known))
        self.configure()
        for host in self.hosts:
            eventually(lambda host=host: answers(host), f"daemon on {host.name}")

    def start(self, host, own):
        """Start a host's daemon, and return its line in a file of known hosts."""
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # of its unprivileged part
        secret = key(self.folder / f"{host.name}.key")
        config = self.folder / f"{host.name}.conf"
        config.write_text(
            f"HostKey {secret}\nListenAddress {host.address}:{PORT}\nPidFile none\nUsePAM no\n"
            f"StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\n"
            f"AuthorizedKeysFile {own}.pub\n"
            f"SetEnv {LABEL}={os.environ[LABEL]} HOME={self.home}\n"
        )
        hidden = [*self.hidden, self.home] if host is self.hosts[-1] else ()
        words = ("/usr/sbin/sshd", "-D", "-e", "-f", str(config))
        daemon = host.command(*words, hidden=hidden, names=self.folder / "hosts")
        with (self.folder / f"{host.name}.log").open("wb") as log:
            # A daemon lives as long as the tests that share it: it has no label itself.
            env = {name: value for name, value in os.environ.items() if name != LABEL}
            self.network.start(daemon, env=env, stdout=log, stderr=log)
        return f"{host.address} {Path(f'{secret}.pub').read_text()}"

    def configure(self, name="config", *, before="", known="known"):
        """Write a configuration; of what is given twice, ssh takes the first."""
        path = self.folder / name
        hosts = "".join(f"Host {one.name}\n  HostName {one.address}\n" for one in self.hosts)
        path.write_text(
            f"{before}{hosts}Host *\n  User root\n  IdentityFile {self.folder / 'id'}\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {self.folder / known}\n"
            f"  KexAlgorithms curve25519-sha256\n"  # the one that costs least
        )
        return path

    def left(self, *hosts):
        """Return the agents and workers on hosts, by default on all; daemons have no label."""
        there = {one.pid for host in hosts or self.hosts for one in host.processes()}
        return [command(pid) for pid in labelled() if pid in there]

    def sessions(self, host):
        """Return the daemon's processes that serve logins on a host."""
        return [one for one in host.processes() if command(one.pid).startswith("sshd: root@")]

    def down(self):
        self.network.down()
