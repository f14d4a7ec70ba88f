"""Parameters in the forms in which people write them: found, set, and refused."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys

import pytest

from mwmagic.errors import BadArguments
from mwmagic.experiments.parameters import (
    MISSING,
    numbers_in,
    parameters,
    settings,
    unset,
    values,
)

TUTORIAL = """
import json, os
import tensorflow as tf
per_worker_batch_size = 64
tf_config = json.loads(os.environ['TF_CONFIG'])
num_workers = len(tf_config['cluster']['worker'])
global_batch_size = per_worker_batch_size * num_workers
LEARNING_RATE, EPOCHS = 1e-3, 3
layers = [
    64,
    32,
]  # hidden
name: str = "mnist"
"""

CONFIG = """
config = {"batch_size": 32, "opt": {"lr": 0.1, "name": "sgd"}, "steps": steps(), "seed": 1}
other = dict(depth=2, model=dict(units=8))
config["seed"] = 2
if __name__ == '__main__':
    dropout = 0.5
    print(config, other, dropout)
def steps():
    return 3
"""

DATACLASS = """
from dataclasses import dataclass, field
from typing import NamedTuple
import keras
@dataclass
class Config:
    lr: float = 0.1
    units: int = field(default=64)
    name: str = "a"
    layers: list = field(default_factory=list)
class Plain:
    decay = 1e-4
class Point(NamedTuple):
    x: int = 1
    y: int = 2
class Layer(keras.layers.Layer):
    width = 3
config = Config(name="b")
config.units = 128
point = Point(5)
"""

ENVIRONMENT = """
import os
from os import environ, getenv
BATCH = int(os.environ.get("BATCH_SIZE", 64))
lr = float(getenv("LR", "0.1"))
debug = bool(environ.get("DEBUG", ""))
data = os.environ["DATA_DIR"]
kind = os.environ.setdefault("KIND", "a")
home = os.environ["HOME"]
os.environ["THREADS"] = "2"
threads = os.environ["THREADS"]
"""

ARGPARSE = """
import argparse
DEFAULT = 32
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--lr", "-l", type=float, default=0.1, help="the rate")
    parser.add_argument("--batch-size", type=int, default=DEFAULT)
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
    parser.add_argument("--sizes", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--mixed", action="store_true")
    parser.add_argument("--no-cache", dest="cache", action="store_false")
    parser.add_argument("--shuffle", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--name", required=True)
    print(sorted(vars(parser.parse_args()).items()))
if __name__ == "__main__":
    main()
"""

ABSL = """
from absl import app, flags
flags.DEFINE_float("lr", 0.1, "The rate.")
flags.DEFINE_integer("units", 64, "The units.", lower_bound=1)
flags.DEFINE_bool("mixed", False, "Whether.")
flags.DEFINE_enum("optimizer", "sgd", ["sgd", "adam"], "Which.")
flags.DEFINE_list("sizes", ["a", "b"], "Them.")
def main(_):
    f = flags.FLAGS
    print(f.lr, f.units, f.mixed, f.optimizer, f.sizes)
app.run(main)
"""

CLICK = """
import click
@click.command()
@click.option("--lr", "-l", default=0.1)
@click.option("--units", type=int, default=64)
@click.option("--mixed/--full", default=False)
@click.option("--quick", is_flag=True)
@click.option("--opt", "optimizer", type=click.Choice(["sgd", "adam"]), default="sgd")
def main(lr, units, mixed, quick, optimizer):
    print(lr, units, mixed, quick, optimizer)
main()
"""

FIRE = """
import fire
def train(data, lr=0.1, units=64, *, name="a", mixed=False):
    print(data, lr, units, repr(name), mixed)
if __name__ == "__main__":
    fire.Fire(train)
"""

LOOP = """
lr = 0.1
lr *= 2
steps = 10
steps = max(steps, 1)
rate = 0.5
for rate in (1, 2):
    pass
units = 8
if rate > 1:
    units = 16
size = 3
def change():
    global size
    size = 4
momentum = 0.9
def local():
    momentum = 0.8
    return momentum
if __name__ != "__main__":
    imported = 1
"""

COMPUTED = """
import math
half = math.sqrt(0.25)
whole = half * 2
_ = 0
"""

CELLS = """
# the first cell
lr = 0.1
# the second
class Net:
    units = 8
net = Net()
net.depth = 3
options = {"lr": 0.2}
"""

UPDATED = """
base = {"lr": 0.1, "units": 8, "a": {"b": 1}}
base.update(units=9)
more = {"lr": 0.3, **base, "last": 1}
changed = {"lr": 0.1}
changed.update(base)
counted = {"n": 1}
counted["n"] += 1
"""


def found(source):
    return {one.name: one.value for one in parameters(source) if not one.refusal}


def refused(source):
    return {one.name: one.refusal for one in parameters(source) if one.refusal}


FOUND = {
    "a tutorial": (
        TUTORIAL,
        {
            "per_worker_batch_size": 64,
            "LEARNING_RATE": 1e-3,
            "EPOCHS": 3,
            "layers": [64, 32],
            "name": "mnist",
        },
        {},
    ),
    "a dict": (
        CONFIG,
        {
            "config.batch_size": 32,
            "config.opt.lr": 0.1,
            "config.opt.name": "sgd",
            "config.seed": 2,
            "other.depth": 2,
            "other.model.units": 8,
            "dropout": 0.5,
        },
        {},
    ),
    "classes": (
        DATACLASS,
        {"Config.lr": 0.1, "config.units": 128, "Plain.decay": 1e-4, "Point.y": 2},
        {
            "Config.units": "it is assigned again in line 19",
            "Config.name": "it is given in line 18",
            "Point.x": "it is given in line 20",
        },
    ),
    "the environment": (
        ENVIRONMENT,
        {"BATCH_SIZE": 64, "LR": 0.1, "DEBUG": False, "KIND": "a"},
        {"THREADS": "the program sets it in line 10"},
    ),
    "argparse": (
        ARGPARSE,
        {
            "DEFAULT": 32,
            "lr": 0.1,
            "batch_size": 32,
            "optimizer": "sgd",
            "sizes": [1, 2],
            "mixed": False,
            "cache": True,
            "shuffle": True,
        },
        {"data": "it is positional: give it with the script's arguments"},
    ),
    "absl": (
        ABSL,
        {"lr": 0.1, "units": 64, "mixed": False, "optimizer": "sgd", "sizes": ["a", "b"]},
        {},
    ),
    "click": (
        CLICK,
        {"lr": 0.1, "units": 64, "mixed": False, "quick": False, "optimizer": "sgd"},
        {},
    ),
    "fire": (FIRE, {"lr": 0.1, "units": 64, "name": "a", "mixed": False}, {}),
    "a loop": (
        LOOP,
        {"lr": 0.1, "steps": 10, "momentum": 0.9},
        {
            "rate": "it is assigned again in line 7",
            "units": "it is assigned again in line 11",
            "size": "it is assigned again in line 15",
        },
    ),
    "what is computed": (COMPUTED, {"_": 0}, {}),
    "cells": (CELLS, {"lr": 0.1, "Net.units": 8, "net.depth": 3, "options.lr": 0.2}, {}),
    "updates": (
        UPDATED,
        {"base.lr": 0.1, "base.a.b": 1, "more.last": 1, "counted.n": 1},
        {
            "base.units": "it is assigned again in line 3",
            "changed.lr": "it is assigned again in line 6",
        },
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_a_program_calls_its_parameters(name):
    source, settable, others = FOUND[name]
    known = found(source)
    required = {one for one, value in known.items() if value is MISSING}
    assert {one: value for one, value in known.items() if one not in required} == settable
    assert required == {"the environment": {"DATA_DIR"}, "argparse": {"name"}}.get(name, set())
    assert refused(source) == others


def ran(source, given, args=()):
    """Run a program in this process with parameters set; return its variables."""
    done = settings(source, given, args)
    assert len(done.source.split("\n")) == len(source.split("\n")), "lines stay"
    space = {"__name__": "__main__"}
    exec(compile(done.source, "main.py", "exec"), space)
    assert {name: values(done.source)[name] for name in done.values} == done.values
    return space


def test_a_literal_is_set_where_it_stands():
    given = {"LEARNING_RATE": "0.5", "layers": "[1]", "name": "it's", "EPOCHS": "7"}
    source = TUTORIAL.replace("import tensorflow as tf", "").replace("tf_config", "#")
    source = source.replace("num_workers = len(#['cluster']['worker'])", "num_workers = 2")
    space = ran(source, given)
    assert (space["LEARNING_RATE"], space["EPOCHS"], space["layers"]) == (0.5, 7, [1])
    assert (space["name"], space["global_batch_size"]) == ("it's", 128)


def test_an_entry_is_set_by_the_last_part_of_its_name():
    source = CONFIG.replace('"steps": steps(), ', "")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        ran(source, {"lr": "1e-2", "config.batch_size": 8, "units": 16, "dropout": "0", "seed": 5})
    assert out.getvalue() == (
        "{'batch_size': 8, 'opt': {'lr': 0.01, 'name': 'sgd'}, 'seed': 5} "
        "{'depth': 2, 'model': {'units': 16}} 0.0\n"
    )


def test_the_last_parts_of_a_name_are_enough():
    chosen = settings("a = {'opt': {'lr': 1}}\nb = {'lr': 2}", {"opt.lr": "3"})
    assert chosen.values == {"a.opt.lr": 3}


@pytest.mark.parametrize(
    "imported", ["import mwmagic.worker as worker", "from mwmagic import worker"]
)
def test_a_mapping_has_whatever_name_it_was_imported_by(imported):
    [one] = parameters(f"{imported}\nlr = float(worker.params.get('lr', 0.1))")
    assert (one.name, one.value) == ("lr", 0.1)


def test_a_default_after_or_is_one():
    [one] = parameters("lr = float(os.environ.get('LR') or 0.1)")
    assert (one.name, one.value, one.kind) == ("LR", 0.1, float)


def test_an_annotation_without_a_value_is_no_second_assignment():
    assert settings("units: int\nunits = 3", {"units": "4"}).source == "units: int\nunits = 4"


def test_the_fields_of_a_class_are_set():
    source = DATACLASS.replace(
        "import keras", "class keras: layers = type('', (), {'Layer': object})"
    )
    space = ran(source, {"Config.lr": "1", "config.units": 2, "decay": "0.5", "y": "7"})
    assert (space["config"].lr, space["config"].units, space["Plain"].decay) == (1.0, 2, 0.5)
    assert tuple(space["point"]) == (5, 7)


def test_lines_and_other_characters_stay():
    source = (
        'näme = "ä"; lr = 0.1  # ü\ntext = """a\nb\n"""\npair = (1,\n  2)\n'
        "raise ValueError(näme, lr, text, pair)\n"
    )
    done = settings(source, {"lr": "2", "text": "x", "pair": "(3, 4)", "näme": "ö"})
    with pytest.raises(ValueError, match=r"\('ö', 2.0, 'x', \(3, 4\)\)") as raised:
        exec(compile(done.source, "main.py", "exec"), {})
    assert raised.traceback[-1].lineno + 1 == 7


OUTSIDE = {
    "argparse": (
        ARGPARSE,
        {"lr": "-1", "batch_size": 8, "optimizer": "adam", "sizes": "3,4", "mixed": "true"}
        | {"cache": False, "shuffle": "false", "name": "x y"},
        ["file"],
        (
            "[('batch_size', 8), ('cache', False), ('data', 'file'), ('lr', -1.0), "
            "('mixed', True), ('name', 'x y'), ('optimizer', 'adam'), ('shuffle', False), "
            "('sizes', [3, 4])]"
        ),
    ),
    "absl": (
        ABSL,
        {"lr": "0.5", "units": 8, "mixed": True, "optimizer": "adam", "sizes": "c,d"},
        [],
        "0.5 8 True adam ['c', 'd']",
    ),
    "click": (
        CLICK,
        {"lr": "-0.5", "units": 8, "mixed": True, "quick": True, "optimizer": "adam"},
        [],
        "-0.5 8 True True adam",
    ),
    "fire": (
        FIRE,
        {"lr": "0.5", "units": 8, "name": "7", "mixed": True},
        ["file"],
        "file 0.5 8 '7' True",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OUTSIDE)
def test_what_the_program_parses_is_given_as_arguments(name, tmp_path):
    source, given, args, printed = OUTSIDE[name]
    done = settings(source, given, args)
    assert done.source == source
    (tmp_path / "main.py").write_text(source)
    command = [sys.executable, "main.py", *done.args]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.stdout.strip() == printed, process.stderr
    known = values(source, done.args)
    assert {one: known[one] for one in done.values} == done.values


def test_variables_are_given_to_the_environment():
    done = settings(ENVIRONMENT, {"BATCH_SIZE": "8", "LR": 1, "DEBUG": "false", "DATA_DIR": "/x"})
    assert done.env == {"BATCH_SIZE": "8", "LR": "1.0", "DEBUG": "", "DATA_DIR": "/x"}
    assert values(ENVIRONMENT, env=done.env) == {
        "BATCH_SIZE": 8, "LR": 1.0, "DEBUG": False, "DATA_DIR": "/x", "KIND": "a"
    }  # fmt: skip


REFUSED = {
    "no such name": (
        TUTORIAL,
        {"LERNING_RATE": "1"},
        (
            "the program has no parameter 'LERNING_RATE': its parameters are "
            "per_worker_batch_size, LEARNING_RATE, EPOCHS, layers, name; "
            "did you mean LEARNING_RATE?"
        ),
    ),
    "none at all": ("print(1)", {"lr": "1"}, "no parameter 'lr': it has none that can be set"),
    "assigned again": (
        LOOP,
        {"units": "3"},
        "units in line 9 cannot be set: it is assigned again in line 11; its parameters are ",
    ),
    "text for a number": (
        TUTORIAL,
        {"EPOCHS": "many"},
        "the parameter EPOCHS takes an integer, not 'many'",
    ),
    "a float for an integer": (
        TUTORIAL,
        {"EPOCHS": "0.5"},
        "takes an integer, not 0.5; the program gives it 3 in line 8, write a float there",
    ),
    "a boolean for a number": (TUTORIAL, {"EPOCHS": "True"}, "takes an integer, not True"),
    "two of one name": (
        "a = {'lr': 1}\nb = {'lr': 2}",
        {"lr": "3"},
        "the program has several parameters 'lr': write a.lr or b.lr",
    ),
    "one that is computed": (
        "units = 2 * 32\nsteps = 3",
        {"units": "3"},
        "no parameter 'units', as its value in line 1 is computed: its parameters are steps",
    ),
    "texts in a list of numbers": (
        "layers = (64, 32)",
        {"layers": "64,wide"},
        "the parameter layers takes an integer, not 'wide'",
    ),
    "twice": ("a = {'lr': 1}", {"lr": "3", "a.lr": "4"}, "the parameter a.lr is given twice"),
    "None as an argument": (
        "parser.add_argument('--name')",
        {"name": "None"},
        "the parameter name cannot be None, as an argument is text",
    ),
    "an option that is repeated": (
        "@click.option('--size', multiple=True)\ndef main(): pass",
        {"size": "3"},
        "size in line 1 cannot be set: its option is of a special kind",
    ),
    "a flag that is repeated": (
        "flags.DEFINE_multi_integer('size', [1], '')",
        {"size": "3"},
        "size in line 1 cannot be set: its option is of a special kind",
    ),
    "another choice": (ARGPARSE, {"optimizer": "lion"}, "takes one of sgd, adam, not 'lion'"),
    "a source that cannot be read": ("a = (", {"a": "1"}, "'(' was never closed in line 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_set_is_one_clear_error(name):
    source, given, message = REFUSED[name]
    with pytest.raises(BadArguments) as raised:
        settings(source, given)
    assert message in str(raised.value)


SHORTENED = """
import argparse
parser = argparse.ArgumentParser({more})
parser.add_argument("--learning-rate", "--rate", type=float, default=0.1)
parser.add_argument("--learn", action="append")
parser.add_argument("--decay", type=float, default=0.0)
parser.add_argument("--delay", type=float, default=0.0)
parser.add_argument("--shuffle", action=argparse.BooleanOptionalAction, default=True)
"""


def test_options_may_be_shortened_as_argparse_allows():
    source = SHORTENED.format(more="")
    args = ["--learning", "0.3", "--no-sh", "--del=2"]
    known = {"learning_rate": 0.3, "decay": 0.0, "delay": 2.0, "shuffle": False}
    assert values(source, args) == known
    assert values(source, ["--learn", "0.3"])["learning_rate"] == 0.1  # another option's own name
    assert values(source, ["--de", "0.3"])["decay"] == 0.0  # may be either: the program refuses it
    assert settings(source, {"decay": 1}, args).args == (*args, "--decay", "1.0")
    with pytest.raises(BadArguments, match="the script's arguments hold --learning-rate already"):
        settings(source, {"learning_rate": 1}, args)
    assert unset(source, ["learning_rate"], args, {})[0] == ("--no-shuffle", "--delay=2")
    whole = SHORTENED.format(more="allow_abbrev=False")
    assert values(whole, args)["learning_rate"] == 0.1


def test_a_parameter_that_is_also_an_argument_or_variable_is_refused():
    with pytest.raises(BadArguments, match="the script's arguments hold --lr already"):
        settings(ARGPARSE, {"lr": 1}, ["--lr", "2"])
    with pytest.raises(BadArguments, match="the variable LR is given with --env already"):
        settings(ENVIRONMENT, {"LR": 1}, env={"LR": "2"})


COLLIDING = """
import argparse
lr = 0.5
parser = argparse.ArgumentParser()
parser.add_argument("-p", "--params", type=int, default=3)
parser.add_argument("--workers", "-n", type=int, default=8)
parser.add_argument("-v", "--wait", action="store_true")
parser.add_argument("-lr", "--lr", type=float, default=0.1)
"""


@pytest.mark.parametrize("args", [["-p", "7", "-n4", "-v", "-lr=0.2"],
                                  ["-p=7", "--workers=4", "--wait", "-lr", "0.2"]])  # fmt: skip
def test_options_named_like_those_of_the_command_are_the_programs_own(args):
    assert values(COLLIDING, args) == {"params": 7, "workers": 4, "wait": True, "lr": 0.2}
    done = settings(COLLIDING, {"params": 1, "workers": 2}, ["-v"])
    assert done.args == ("-v", "--params", "1", "--workers", "2")
    with pytest.raises(BadArguments, match="the script's arguments hold --params already"):
        settings(COLLIDING, {"params": 1}, args)
    names = ["params", "workers", "wait", "lr"]
    assert unset(COLLIDING, names, [*args, "rest"], {}) == (("rest",), {})


def test_numbers_are_taken_from_an_environment_and_texts_are_not():
    source = """
import os
batch = int(os.environ.get("BATCH", 64))
rate = float(os.getenv("RATE", "0.1"))
key = os.environ["KEY"]
name = os.environ.get("NAME", "sgd")
"""
    env = {"BATCH": "128", "RATE": "quick", "KEY": "1", "NAME": "adam", "OTHER": "5"}
    assert numbers_in(source, env) == {"BATCH": "128"}
    assert numbers_in("batch = (", env) == {}


def test_an_argument_hides_a_literal_of_its_name():
    [lr] = [one for one in parameters(COLLIDING) if one.name == "lr"]
    assert (lr.value, lr.hidden) == (0.1, 3)
    assert settings(COLLIDING, {"lr": 1}).source == COLLIDING
    [lr] = parameters(ABSL_AND_LITERAL)
    assert (lr.value, lr.hidden, values(ABSL_AND_LITERAL, ["-lr", "3"])) == (0.1, 2, {"lr": 3})


ABSL_AND_LITERAL = "from absl import flags\nlr = 0.5\nflags.DEFINE_float('lr', 0.1, '')\n"


@pytest.mark.parametrize(
    ("args", "train"),
    [([], True), (["--notrain"], False), (["--train=false"], False), (["--train"], True)],
)
def test_a_flag_of_absl_needs_no_value(args, train):
    source = "from absl import flags\nflags.DEFINE_bool('train', True, '')\n"
    assert values(source, args) == {"train": train}
    assert settings(source, {"train": "no"}).args == ("--notrain",)


def test_odd_sources_have_no_parameters():
    assert parameters("a = 1\n" * 300_000) == []
    for source in ("a\0 = 1", "a = '\udc80'"):
        with pytest.raises(SyntaxError):
            parameters(source)
