"""mwmagic and its peers: the cells with which each does the same work, with two tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

NOTE = """
import os, time
def note(rank):
    now = time.monotonic()
    name = f"{os.environ['BENCHMARK_NOTES']}/{rank}.{os.getpid()}"
    with open(name + ".new", "w") as file:
        file.write(str(now))
    os.rename(name + ".new", name)
"""
"""Gives a task `note(rank)`, which notes when it was called, and by which process."""


@dataclass(frozen=True)
class Peer:
    """What may be asked of a peer with two tasks; an empty cell means that it has no such thing.

    Attributes
    ----------
    name : str
        What the table calls it.
    environment : str
        Whose pins it needs; empty for the project's own environment.
    start : tuple of str
        Cells until both tasks have noted their first line.
    trip : str
        Evaluates ``1 + 1`` on both tasks.
    waits : str
        Notes once more on both tasks, which then sleep.
    told : str
        A further cell that waits for what becomes of them.
    restarts : tuple of str
        Cells that run a program which notes and sleeps, and is restarted after a failure.
    setup : tuple of str
        Cells that are not timed.
    names : str
        A regular expression for how it names the second task.
    env : dict
        Further variables for the kernel.
    """

    name: str
    environment: str
    start: tuple[str, ...]
    names: str
    trip: str = ""
    waits: str = ""
    told: str = ""
    restarts: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)


RANK = "int(os.environ['MWMAGIC_TASK'].partition(':')[2])"
CLUSTER = "%mw_cluster 2 --no-warm --grace 0.2"
PROGRAM = f"%%mw_worker\n{NOTE}note({RANK})\n"
SLEEPS = f"{PROGRAM}time.sleep(600)\n"

LIVE = Peer(
    name="live cells",
    environment="",
    setup=("%load_ext mwmagic",),
    start=(CLUSTER, f"%%mw_live\n{NOTE}note({RANK})\n"),
    trip="%%mw_live\n1 + 1",
    waits=f"%%mw_live\nnote({RANK})\ntime.sleep(600)\n",
    names=r"worker:1",
)
PROGRAMS = Peer(
    name="programs",
    environment="",
    setup=("%load_ext mwmagic",),
    start=(CLUSTER, PROGRAM),
    waits=SLEEPS,
    told="%mw_wait",
    restarts=(f"{CLUSTER} --restarts 9", SLEEPS),
    names=r"worker:1",
)


IPYPARALLEL_START = """
import ipyparallel
cluster = ipyparallel.Cluster(n=2, log_level=40)
engines = cluster.start_and_connect_sync(activate=True)
for index in engines.ids:
    engines[index].push({"rank": index}, block=True)
"""

IPYPARALLEL = Peer(
    name="ipyparallel",
    environment="ipyparallel",
    start=(IPYPARALLEL_START, f"%%px\n{NOTE}note(rank)\n"),
    trip="%%px\n1 + 1",
    waits="%%px\nnote(rank)\ntime.sleep(600)\n",
    names=r"(?i)engine\W{0,4}1\b",
)


TORCHRUN_LAUNCH = (
    "!{{sys.executable}} -m torch.distributed.run --standalone --monitor-interval=0.1 {} {}"
)
TORCHRUN_FIRST = TORCHRUN_LAUNCH.format("--nproc-per-node=2", "first.py")
TORCHRUN_SLEEPS = TORCHRUN_LAUNCH.format("--nproc-per-node=2", "sleeps.py")
TORCHRUN_RESTARTS = TORCHRUN_LAUNCH.format("--nproc-per-node=2 --max-restarts=9", "sleeps.py")
TORCHRUN_PROGRAM = f"{NOTE}note(os.environ['RANK'])\n"
TORCHRUN_WRITE = f"""
import sys
from pathlib import Path
Path("first.py").write_text({TORCHRUN_PROGRAM!r})
Path("sleeps.py").write_text({TORCHRUN_PROGRAM!r} + "time.sleep(600)")
"""

TORCHRUN = Peer(
    name="torchrun",
    environment="torchrun",
    setup=(TORCHRUN_WRITE,),
    start=(TORCHRUN_FIRST,),
    waits=TORCHRUN_SLEEPS,
    restarts=(TORCHRUN_RESTARTS,),
    names=r"(?i)rank\W{0,6}1\b",
)


RAY_WORK = f"""
import ray.train
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

def work(config):
    {NOTE.strip().replace(chr(10), chr(10) + 4 * " ")}
    note(ray.train.get_context().get_world_rank())
    time.sleep(config["seconds"])

def train(seconds, failures=0):
    scaling = ScalingConfig(num_workers=2, resources_per_worker={{"CPU": 0.5}})
    run = RunConfig(failure_config=FailureConfig(max_failures=failures))
    config = {{"seconds": seconds}}
    TorchTrainer(work, train_loop_config=config, scaling_config=scaling, run_config=run).fit()
"""

RAY = Peer(
    name="Ray Train",
    environment="ray",
    setup=(RAY_WORK,),
    start=("train(0)",),
    waits="train(600)",
    restarts=("train(600, failures=9)",),
    names=r"(?i)(rank|worker)\W{0,4}1\b",
    env={"RAY_USAGE_STATS_ENABLED": "0"},
)
