"""Ray Train: functions on workers of a Ray cluster, which starts with the first of them."""

from __future__ import annotations

from .peer import NOTE, Peer

WORK = f"""
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

PEER = Peer(
    name="Ray Train",
    environment="ray",
    setup=(WORK,),
    start=("train(0)",),
    waits="train(600)",
    restarts=("train(600, failures=9)",),
    names=r"(?i)(rank|worker)\W{0,4}1\b",
    env={"RAY_USAGE_STATS_ENABLED": "0"},
)
