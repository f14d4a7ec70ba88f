"""The hosts of an engine, as what disturbs trainings on them sees them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from accidents import agents
from processes import command, variables

from mwmagic.engines import CODE

PYTHON = str(Path(__file__).parents[2] / ".venv/bin/python")
"""The workers' Python, which has TensorFlow."""

RECORD_BYTES = "64m"
"""How large the disk of the records is."""

HOME_BYTES = "32m"
"""How large the own disk of the last of the hosts that ssh reaches is."""


class Place:
    """What the hosts of all engines have.

    Attributes
    ----------
    client
        The name of the program that connects to a host.
    lacks
        The kinds of faults that cannot happen there.
    trained
        The weights of the training with Keras that nothing disturbed there, once that is known.
    """

    client = ""
    lacks: tuple[str, ...] = ("full host",)
    trained = None

    def workers(self, host):
        found = [one.pid for one in host.processes()]
        own = b"MWMAGIC_TASK="
        return [pid for pid in found if any(one.startswith(own) for one in variables(pid))]


class Ssh(Place):
    """Hosts that ssh reaches; the last does not see the directory of the run."""

    client = "ssh"
    lacks = ()

    def __init__(self, lab):
        self.lab = lab
        self.hosts = lab.hosts
        self.there("mount", "-o", f"remount,size={HOME_BYTES}", self.lab.home)

    def there(self, *words):
        """Run a command that sees the last host's own disks."""
        [daemon] = [one.pid for one in self.hosts[-1].processes() if "-D" in one.cmdline()]
        command = ["nsenter", f"--mount=/proc/{daemon}/ns/mnt", "--", *words]
        return subprocess.run(command, check=False, capture_output=True)

    def fill(self):
        """Fill the last host's own disk; return what makes room again."""
        filler = self.lab.home / "filler"
        self.there("dd", "if=/dev/zero", f"of={filler}", "bs=4096")
        return lambda: self.there("rm", "-f", filler)

    def words(self, *, spare, workers):
        names = [host.name for host in self.hosts[: workers + spare]]
        if not spare:
            names = [host.name for host in self.hosts[-workers:]]
        hosts = ["--engine", "ssh", "--hosts", ",".join(names)]
        return [*hosts, f"--scheduler=-F {self.lab.config}"]

    def daemons(self, host):
        found = [one.pid for one in host.processes()]
        return [pid for pid in found if command(pid).startswith("sshd: root@")]

    def left(self):
        return self.lab.left()


@contextmanager
def ssh(hidden):
    from sshd import Lab

    with tempfile.TemporaryDirectory(prefix="mw-lab-", dir="/tmp") as folder:
        lab = Lab(folder, [hidden, CODE])
        try:
            lab.up()
            yield Ssh(lab)
        finally:
            lab.down()


class OnSlurm(Place):
    """The nodes of a Slurm."""

    client = "srun"

    def __init__(self, one):
        self.slurm = one
        self.hosts = one.network.hosts

    def words(self, *, spare, workers):
        asked = ["--engine", "slurm", "--nodes", str(workers)]
        return asked if spare else [*asked, f"--scheduler=--exclude={self.hosts[0].name}"]

    def daemons(self, host):
        return [one.pid for one in host.processes() if one.name() == "slurmstepd"]

    def left(self):
        return self.slurm.jobs() or [c for h in self.hosts for c in map(command, agents(h))]


@contextmanager
def slurm(_hidden):
    import slurm as on_network

    with on_network.slurm() as one, patch.dict(os.environ, one.environment):
        yield OnSlurm(one)


class OnRay(Place):
    """The nodes of a Ray."""

    lacks = ("full host", "kill client", "kill daemon")

    def __init__(self, one):
        self.rays = one
        self.hosts = one.network.hosts

    def words(self, *, spare, workers):
        return ["--engine", "ray", "--address", self.rays.address, "--nodes", str(workers)]

    def left(self):
        return self.rays.groups() or self.rays.left()


@contextmanager
def ray(_hidden):
    import raylets

    with raylets.rays() as one:
        yield OnRay(one)


ENGINES = {"ssh": ssh, "slurm": slurm, "ray": ray}


@contextmanager
def ready(engine):
    """Bring an engine's hosts up; yield them, and the folder that not all of them see."""
    own = tempfile.TemporaryDirectory(prefix="mw-runs-", dir="/tmp")
    with own as folder, ExitStack() as stack:
        small = ["mount", "-t", "tmpfs", "-o", f"size={RECORD_BYTES}", "none", folder]
        subprocess.run(small, check=True)
        stack.callback(subprocess.run, ["umount", "--lazy", folder], check=True)
        yield stack.enter_context(ENGINES[engine](Path(folder))), Path(folder)
