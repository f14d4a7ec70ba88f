"""Twelve whole programs, as people write them: their parameters are found, set and run, or refused.

They are written after public multi-worker programs, with a loop of a few lines as their training.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field

import pytest

from mwmagic.errors import BadArguments
from mwmagic.experiments.parameters import parameters, settings, values

TUTORIAL = """
import json
import os

per_worker_batch_size = 64
tf_config = json.loads(os.environ.get('TF_CONFIG', '{"cluster": {"worker": ["a", "b"]}}'))
num_workers = len(tf_config['cluster']['worker'])

global_batch_size = per_worker_batch_size * num_workers
EPOCHS, STEPS_PER_EPOCH = 3, 70


def mnist_dataset(batch_size):
    shuffle_buffer = 60_000
    return list(range(0, shuffle_buffer, batch_size))


data = mnist_dataset(global_batch_size)
print(global_batch_size, EPOCHS, STEPS_PER_EPOCH, len(data))
"""

SLURM_FIRE = """
import os

import fire


def main(total_epochs: int, *, batch_size: int = 32, lr: float = 1e-3, snapshot: str = "a.pt"):
    rank = int(os.environ.get("SLURM_PROCID", 0))
    print(rank, total_epochs, batch_size, lr, snapshot)


if __name__ == "__main__":
    fire.Fire(main)
"""

ABSL = """
from absl import app
from absl import flags

FLAGS = flags.FLAGS
flags.DEFINE_integer("batch_size", 128, "Global batch size.", lower_bound=1)
flags.DEFINE_float("learning_rate", 0.1, "Initial rate.")
flags.DEFINE_boolean("fp16", False, "Whether to compute with 16 bits.")
flags.DEFINE_string("data_dir", None, "Where the records are.")


def main(argv):
    del argv
    print(FLAGS.batch_size, FLAGS.learning_rate, FLAGS.fp16, FLAGS.data_dir)


if __name__ == "__main__":
    app.run(main)
"""

ARGPARSE = """
import argparse


def parse_args():
    parser = argparse.ArgumentParser(description="Distributed training")
    parser.add_argument("data", help="the folder of the data")
    parser.add_argument("-b", "--batch-size", default=256, type=int)
    parser.add_argument("--lr", "--learning-rate", default=0.1, type=float, dest="lr")
    parser.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("-v", "--verbose", action="count", default=0)
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_args()
    seed = 17
    print(args.batch_size, args.lr, args.optimizer, args.amp, seed)
"""

CONFIG_DICT = """
config = {
    "model": {"units": 64, "layers": [64, 32], "dropout": None},
    "optimizer": dict(name="adam", lr=3e-4),
    "epochs": 5,
    "log_dir": "logs/" + "run",
}
config["epochs"] = 10


def build(model):
    return model["units"] * len(model["layers"])


print(build(config["model"]), config["optimizer"]["lr"], config["epochs"])
"""

DATACLASS = """
from dataclasses import dataclass, field


@dataclass
class TrainConfig:
    lr: float = 6e-4
    warmup: int = 100
    compile: bool = False
    betas: tuple = (0.9, 0.95)
    tags: list = field(default_factory=list)
    device: str = "cpu"


cfg = TrainConfig(device="cuda")
print(cfg.lr, cfg.warmup, cfg.compile, cfg.betas, cfg.device)
"""

ENVIRONMENT = """
import os

BATCH_SIZE = int(os.environ.get("BATCH_SIZE", 64))
LR = float(os.getenv("LR", "1e-3"))
MODEL = os.environ["MODEL_NAME"]
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
print(BATCH_SIZE, LR, MODEL, os.environ["TF_CPP_MIN_LOG_LEVEL"])
"""

CHIEF_CELL = """
learning_rate = 0.01
checkpoint_every = 2
role = "chief"
print(role, learning_rate, checkpoint_every)
"""

LIVE_CELLS = """
units = 64

class Net:
    depth = 2

lr = 0.1
net = Net()
net.width = 8
print(units, lr, net.depth, net.width)
"""

CUSTOM_LOOP = """
momentum = 0.9
learning_rate = 0.5
num_steps = 4
weight, velocity = 1.0, 0.0

for step in range(num_steps):
    gradient = 2 * weight
    velocity = momentum * velocity - learning_rate * gradient
    weight += velocity
    if step == 2:
        learning_rate = learning_rate / 10
print(num_steps, round(weight, 4))
"""

ASSIGNED_TWICE = """
batch_size = 32
epochs = 2
batch_size = 64
try:
    import missing_accelerator
    devices = 8
except ImportError:
    devices = 1
print(batch_size, epochs, devices)
"""

COMPUTED = """
import math

base = 16
scale = 2.0
batch_size = base * 4
learning_rate = 0.1 * math.sqrt(scale)
shape = (base, 3)
print(batch_size, round(learning_rate, 3), shape)
"""


@dataclass(frozen=True)
class Program:
    """A program, its parameters, and what it prints once some are set."""

    source: str
    found: dict
    given: dict
    printed: str
    refused: dict = field(default_factory=dict)
    args: tuple = ()
    env: dict = field(default_factory=dict)


AGAIN = "cannot be set: it is assigned again in line {}"

PROGRAMS = {
    "a tutorial's main.py": Program(
        TUTORIAL,
        {"per_worker_batch_size": 64, "EPOCHS": 3, "STEPS_PER_EPOCH": 70},
        {"per_worker_batch_size": "1000", "EPOCHS": 1},
        "2000 1 70 30",
        {"global_batch_size": "no parameter 'global_batch_size'", "EPOCHS=1.5": "an integer"},
    ),
    "a Slurm script with fire": Program(
        SLURM_FIRE,
        {"batch_size": 32, "lr": 1e-3, "snapshot": "a.pt"},
        {"batch_size": 8, "snapshot": "12"},
        "0 5 8 0.001 12",
        {"SLURM_PROCID": "no parameter 'SLURM_PROCID'", "lr=fast": "a number, not 'fast'"},
        args=("5",),
    ),
    "absl flags": Program(
        ABSL,
        {"batch_size": 128, "learning_rate": 0.1, "fp16": False, "data_dir": None},
        {"learning_rate": "1", "fp16": "true", "data_dir": "/data"},
        "128 1.0 True /data",
        {"fp16=3": "takes true or false, not 3", "lr": "its parameters are batch_size"},
    ),
    "argparse under a main guard": Program(
        ARGPARSE,
        {"batch_size": 256, "lr": 0.1, "optimizer": "sgd", "amp": False, "seed": 17},
        {"lr": "0.5", "amp": "true", "optimizer": "adam", "seed": "3"},
        "256 0.5 adam True 3",
        {
            "data": "it is positional: give it with the script's arguments",
            "verbose": "its action is not to store a value",
            "optimizer=lion": "takes one of sgd, adam, not 'lion'",
        },
        args=("folder",),
    ),
    "a config dict": Program(
        CONFIG_DICT,
        {
            "config.model.units": 64,
            "config.model.layers": [64, 32],
            "config.model.dropout": None,
            "config.optimizer.name": "adam",
            "config.optimizer.lr": 3e-4,
            "config.epochs": 10,
        },
        {"units": 10, "layers": "[1, 2, 3]", "config.optimizer.lr": 1, "epochs": 1},
        "30 1.0 1",
        {"log_dir": "no parameter 'log_dir'", "units=0.5": "takes an integer, not 0.5"},
    ),
    "a dataclass": Program(
        DATACLASS,
        {
            "TrainConfig.lr": 6e-4,
            "TrainConfig.warmup": 100,
            "TrainConfig.compile": False,
            "TrainConfig.betas": (0.9, 0.95),
        },
        {"lr": 1, "betas": "0.5, 0.6", "compile": "yes"},
        "1.0 100 True (0.5, 0.6) cuda",
        {"device": "it is given in line 15", "tags": "no parameter 'tags'"},
    ),
    "environment variables": Program(
        ENVIRONMENT,
        {"BATCH_SIZE": 64, "LR": 1e-3},
        {"BATCH_SIZE": "8", "MODEL_NAME": "small"},
        "8 0.001 small 3",
        {"TF_CPP_MIN_LOG_LEVEL": "the program sets it in line 7", "LR=high": "a number"},
    ),
    "a cell of one of two tasks": Program(
        CHIEF_CELL,
        {"learning_rate": 0.01, "checkpoint_every": 2, "role": "chief"},
        {"checkpoint_every": 5},
        "chief 0.01 5",
        {"steps": "its parameters are learning_rate, checkpoint_every, role"},
    ),
    "live cells": Program(
        LIVE_CELLS,
        {"units": 64, "Net.depth": 2, "lr": 0.1, "net.width": 8},
        {"width": 16, "lr": 0.3, "depth": 4},
        "64 0.3 4 16",
        {"net": "no parameter 'net'"},
    ),
    "a custom loop": Program(
        CUSTOM_LOOP,
        {"momentum": 0.9, "learning_rate": 0.5, "num_steps": 4, "weight": 1.0, "velocity": 0.0},
        {"num_steps": 2, "momentum": 0},
        "2 0.0",
        {"gradient": "no parameter 'gradient'", "num_steps=2.5": "write a float there"},
    ),
    "one that assigns twice": Program(
        ASSIGNED_TWICE,
        {"epochs": 2},
        {"epochs": 5},
        "64 5 1",
        {"batch_size": AGAIN.format(4), "devices": "no parameter 'devices'"},
    ),
    "one that computes its parameter": Program(
        COMPUTED,
        {"base": 16, "scale": 2.0},
        {"base": 4, "scale": 4},
        "16 0.2 (4, 3)",
        {"batch_size": "no parameter 'batch_size'", "shape": "no parameter 'shape'"},
    ),
}

every = pytest.mark.parametrize("name", PROGRAMS)


@every
def test_what_is_found(name):
    one = PROGRAMS[name]
    assert values(one.source, one.args, one.env) == one.found


@pytest.mark.slow
@every
def test_what_is_set_is_what_runs(name, tmp_path):
    one = PROGRAMS[name]
    done = settings(one.source, one.given, one.args)
    assert done.source.count("\n") == one.source.count("\n"), "lines stay"
    (tmp_path / "main.py").write_text(done.source)
    process = subprocess.run(
        [sys.executable, "main.py", *done.args],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, **done.env},
    )
    assert process.stdout.strip() == one.printed, process.stderr
    now = values(done.source, done.args, done.env)
    assert {known: now[known] for known in done.values} == done.values


@every
def test_what_is_refused(name):
    one = PROGRAMS[name]
    for setting, reason in one.refused.items():
        parameter, _, value = setting.partition("=")
        with pytest.raises(BadArguments) as raised:
            settings(one.source, {parameter: value or "1"}, one.args)
        assert reason in str(raised.value), setting


def test_a_program_that_is_not_python_alone_has_no_parameters():
    with pytest.raises(BadArguments, match="parameters cannot be read"):
        settings(LIVE_CELLS + "!nvidia-smi\n", {"units": 1})
    with pytest.raises(SyntaxError):
        parameters("%matplotlib inline\nunits = 1")
