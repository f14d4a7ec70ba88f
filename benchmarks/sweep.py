"""What a trial of a sweep costs beside its training: two workers that only report a loss.

KerasTuner has no row: it calls a function in its own process, so that a trial starts nothing.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from mwmagic import Cluster

from . import environments
from .case import Case, Line
from .clusters import folder
from .ratio import alternated

TRIALS = 4
"""The first starts what all share, so only those after it count."""

REPORT = "from mwmagic.worker import report\nunits = 1\nreport(loss=float(units))\n"
IMPORTED = "import tensorflow as tf\n"
TUNE_SECONDS = 600.0

TUNE = """
import json, sys, time
import ray
from ray import train, tune
from ray.train import RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

folder, trials = sys.argv[1], int(sys.argv[2])

def worker(config):
    train.report({"loss": float(config["units"])})

def trial(config):
    run = RunConfig(storage_path=folder, name="train-%d" % config["units"])
    sizes = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1})
    trainer = DataParallelTrainer(
        worker, train_loop_config=config, scaling_config=sizes, run_config=run)
    trainer.fit()
    tune.report({"loss": float(config["units"]), "ended": time.monotonic()})

ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
found = tune.Tuner(
    tune.with_resources(trial, {"cpu": 0.1}),
    param_space={"units": tune.grid_search(list(range(1, trials + 1)))},
    tune_config=tune.TuneConfig(max_concurrent_trials=1),
    run_config=tune.RunConfig(storage_path=folder, name="tune", verbose=0),
).fit()
print(json.dumps([one.metrics["ended"] for one in found]))
"""


@contextmanager
def swept(program, *, warm):
    """Yield what measures a sweep on a cluster that is ready: the seconds of a trial."""
    with folder(program) as path, Cluster(2, directory=path, warm=warm) as cluster:
        cluster.run(path / "main.py").wait()  # the warm process is there

        def seconds():
            ends = []
            space = {"units": list(range(1, TRIALS + 1))}
            cluster.sweep(path / "main.py", space, progress=lambda _: ends.append(monotonic()))
            return (ends[2 * TRIALS - 1] - ends[1]) / (TRIALS - 1)

        yield seconds


def tuned():
    """Run as many trials by Ray Tune, each a training of Ray Train; return the seconds of one."""
    with tempfile.TemporaryDirectory(prefix="mwmagic-benchmark-") as name:
        script = Path(name, "tune.py")
        script.write_text(TUNE)
        command = [environments.python("ray"), script, name, str(TRIALS)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=TUNE_SECONDS
        )
    ends = sorted(json.loads(done.stdout.splitlines()[-1]))
    return (ends[-1] - ends[0]) / (TRIALS - 1)


def measure(plan):
    environments.python("ray")
    what = "a trial beside its training, 2 workers, "
    with swept(REPORT, warm=False) as cold, swept(IMPORTED + REPORT, warm=True) as warm:
        found = alternated(plan.rounds(3, 1), cold=cold, warm=warm, tune=tuned)
    against = "Ray Tune with Ray Train"
    yield Line(f"{what}cold", "s", found["cold"], against, found["tune"], aim=0.1)
    yield Line(f"{what}warm, TensorFlow imported", "s", found["warm"], against, found["tune"], 0.1)


CASES = [Case("sweep", "what a trial costs, against Ray Tune with Ray Train", measure, slow=True)]
