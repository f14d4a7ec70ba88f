"""A Slurm on the hosts of a network, with all files in a private directory. It needs root."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

from network import GATEWAY, NUMBER, Network
from processes import LABEL, eventually

GPUS = 2
"""What each node has of them, by its declaration."""

PORTS = range(18000 + 200 * (NUMBER % 64), 18200 + 200 * (NUMBER % 64))
"""Where salloc and srun listen: at none of the ports that the kernel gives to processes, since a
peer in another test that tries an ended worker's address again would otherwise connect to them.
Measured: while such a peer says nothing, srun of Slurm 22.05 does nothing, for up to 80 s."""

REQUEUED_SECONDS = 20
"""How long a job that is put back into the queue waits at least: Slurm lets it wait until the
credentials of its old steps have expired, two minutes unless `cred_expire` says otherwise. With
that, and the scheduler's own look once a minute, such a job was not yet back after four minutes on
a busy machine."""

CONFIGURATION = """\
ClusterName=mw
SlurmctldHost={here}({gateway})
SlurmctldPort={port}
SrunPortRange={ports}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire={requeued}
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherParams=OverMemoryKill
JobAcctGatherFrequency=task=1
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=1900
SchedulerParameters=bf_interval=1,sched_interval=2
ReturnToService=1
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
KillWait=5
GresTypes=gpu
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10
"""

NODE = "NodeName={name} NodeAddr={address} CPUs=4 RealMemory=8000 Gres=gpu:{gpus} State=UNKNOWN"


class Slurm:
    """A controller on this machine and a daemon on each host of a network.

    Attributes
    ----------
    folder : Path
        Its files; `environment` leads Slurm's commands to them.
    """

    def __init__(self, folder, network):
        self.folder = folder
        self.network = network
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}

    def up(self):
        self.configure()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.start("munged", *self.munged())
        eventually((self.folder / "munge.socket").exists, "munged")
        self.start("slurmctld", "slurmctld", "-D", "-c")
        for host in self.network.hosts:
            self.start_on(host)
        eventually(self.idle, self.logs)

    def configure(self):
        (self.folder / "state").mkdir()
        for host in self.network.hosts:
            (self.folder / host.name).mkdir()
        nodes = [NODE.format(name=h.name, address=h.address, gpus=GPUS) for h in self.network.hosts]
        facts = {"here": socket.gethostname(), "gateway": GATEWAY, "port": 17000 + NUMBER}
        facts["ports"] = f"{PORTS.start}-{PORTS.stop - 1}"
        facts["requeued"] = REQUEUED_SECONDS
        text = CONFIGURATION.format(folder=self.folder, nodes="\n".join(nodes), **facts)
        (self.folder / "slurm.conf").write_text(text)
        # It starts its plugin for control groups whether or not anything uses it.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        devices = ("/dev/null", "/dev/zero")[:GPUS]  # any that exist everywhere
        lines = [f"Name=gpu File={device}\n" for device in devices]
        (self.folder / "gres.conf").write_text("".join(lines))

    def munged(self):
        """Return the command of a daemon whose files are all in the directory."""
        kinds = ("key", "log", "pid", "seed")
        files = [f"--{kind}-file={self.folder}/munge.{kind}" for kind in kinds]
        # By force, as the directory is closed to other users.
        return ["munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", *files]

    def start_on(self, host):
        """Start a node's daemon."""
        self.start(host.name, *host.command("slurmd", "-D", "-N", host.name))

    def start(self, name, *command):
        with (self.folder / f"{name}.out").open("wb") as out:
            # A daemon lives as long as the tests that share it: it has no label itself.
            own = {name: value for name, value in os.environ.items() if name != LABEL}
            environment = {**own, **self.environment}
            return self.network.start(command, stdout=out, stderr=out, env=environment)

    def ask(self, *command):
        """Return what one of Slurm's commands prints."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return done.stdout.strip()

    def complaint(self, *command):
        """Return what one of Slurm's commands says is wrong."""
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        return done.stderr.strip()

    def idle(self):
        """Whether all nodes wait for jobs."""
        return self.ask("sinfo", "--noheader", "--format=%T %D") == (
            f"idle {len(self.network.hosts)}"
        )

    def jobs(self):
        """Return the jobs that wait, run or end."""
        return self.ask("squeue", "--noheader", "--format=%i").split()

    def queue(self):
        """Say what jobs and nodes there are, when there should be idle nodes alone."""
        return f"idle nodes alone: {self.ask('squeue', '--long')}\n{self.ask('sinfo', '-N', '-l')}"

    def nodes(self, job):
        """Return a job's nodes, such as ``n[1-2]``."""
        return self.ask("squeue", "--noheader", f"--jobs={job}", "--format=%N")

    def logs(self):
        logs = sorted(path for path in self.folder.iterdir() if path.suffix in (".out", ".log"))
        return "\n".join([self.ask("sinfo"), *(f"{p.name}: {p.read_text()}" for p in logs)])


@contextmanager
def slurm():
    """Bring a network and a Slurm up, and take them down without residue."""
    network = Network()
    with tempfile.TemporaryDirectory(prefix="mw-slurm-", dir="/tmp") as folder:
        try:
            network.up()
            one = Slurm(Path(folder), network)
            one.up()
            yield one
        finally:
            network.down()
