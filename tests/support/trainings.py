"""Programs whose workers train together, and write down how far they are and what they printed.

Their arguments are a directory that all hosts see, where they keep their states, how many steps
they take, and how long they wait for each other.
"""

from __future__ import annotations

STEPS = 50
"""How many steps a program takes by itself."""

SWEPT_STEPS = 20
"""How many each trial of a sweep takes."""

SAVE_STEPS = 5
"""After how many steps a training saves its weights."""

UNITS = (1, 2)
"""The values that a sweep tries."""

_NOTES = """
import json, os, socket, sys, time
units = 1
sides, states, steps, patience = *sys.argv[1:3], int(sys.argv[3]), float(sys.argv[4])
config = json.loads(os.environ["TF_CONFIG"])
rank, peers = config["task"]["index"], config["cluster"]["worker"]
attempt, host = os.environ["MWMAGIC_ATTEMPT"], os.uname().nodename
run = int(os.path.basename(os.environ["MWMAGIC_RUN"]).partition("-")[0])
name = f"{run}-{rank}-{attempt}"
begun, done = (open(f"{sides}/{name}.{kind}", "ab", 0) for kind in ("begun", "done"))
number = 0

def say(text=""):
    global number
    begun.write(b".")
    print("line", name, number, text, flush=True)
    done.write(b".")
    number += 1

def write(path, text):
    with open(f"{path}.new", "w") as file:
        file.write(text)
    os.replace(file.name, path)

def phase(step, what):
    write(f"{sides}/phase-{rank}", f"{units} {attempt} {step} {what} {host}")

def over(weights):
    write(f"{sides}/weights-{units}-{rank}", json.dumps(weights))
    say("done")

say("on " + host)
phase(-1, "meets")
"""

_TOGETHER = """
def gone(task, why):
    error = "UnavailableError: Collective ops is aborted by: Error reported from"
    place = f"/job:worker/replica:0/task:{task}"
    print(f"tensorflow.python.framework.errors_impl.{error} {place}: {why}", flush=True)
    sys.exit(1)

def meet():
    end = time.monotonic() + 60
    at, port = peers[0].rsplit(":", 1)
    if rank == 0:
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("", int(port)))
        server.listen()
        server.settimeout(60)
        links = {}
        while len(links) < len(peers) - 1:
            link, _ = server.accept()
            link.settimeout(patience)
            file = link.makefile("rw")
            links[json.loads(file.readline())] = file
        return links
    while True:
        try:
            link = socket.create_connection((at, int(port)), 1)
            break
        except OSError:
            if time.monotonic() > end:
                gone(0, "heartbeat timeout: unhealthy")
            time.sleep(0.05)
    link.settimeout(patience)
    file = link.makefile("rw")
    file.write(json.dumps(rank) + "\\n")
    file.flush()
    return {0: file}

def exchange(value):
    values, last = {rank: value}, 0
    try:
        for last, file in sorted(links.items()):
            if rank:
                file.write(json.dumps(value) + "\\n")
                file.flush()
            values[last] = json.loads(file.readline() or gone(last, "Connection reset by peer"))
        if rank:
            return values[0]
        everything = [values[one] for one in range(len(peers))]
        for last, file in sorted(links.items()):
            file.write(json.dumps(everything) + "\\n")
            file.flush()
        return everything
    except TimeoutError:
        gone(last, "heartbeat timeout: unhealthy")
    except OSError as error:
        gone(last, error.strerror)
"""

_MEET = """
links = meet()
state = f"{states}/state-{units}-{rank}"
try:
    with open(state) as file:
        mine = json.load(file)
except (OSError, ValueError):
    mine = [0, [1.0 * units, 2.0, 3.0]]
step, weights = max(exchange(mine))
say(f"from step {step}")
"""

_TRAIN = f"""
while step < steps:
    phase(step, "trains")
    time.sleep(0.12)
    parts = exchange([(rank + 1) * (one * 0.01 + step) for one in weights])
    weights = [one - 0.1 * sum(gradients) for one, gradients in zip(weights, zip(*parts))]
    step += 1
    for part in range(3):
        say(f"step {{step}}")
    if step % {SAVE_STEPS} == 0:
        phase(step, "saves")
        time.sleep(0.1)
        write(state, json.dumps([step, weights]))
"""

_END = """
exchange(None)
over(weights)
"""

PLAIN = f"{_NOTES}{_TOGETHER}{_MEET}{_TRAIN}{_END}"
"""Workers that add numbers up over TCP at their addresses, and give up as TensorFlow's do."""

_RAISES = """
def gone(task, why):
    raise ConnectionError(f"worker:{task} is gone: {why}")
"""

_BEGIN = f"{_NOTES}{_TOGETHER}{_RAISES}{_MEET}"

LIVE = f"""
import argparse, sys, time
from mwmagic import Cluster
from mwmagic.client.arguments import add_cluster_options, typed
from mwmagic.errors import MwmagicError
parser = argparse.ArgumentParser()
add_cluster_options(parser, notebook=False)
parser.add_argument("program", nargs="*")
given = parser.parse_args()
with Cluster(**{{**typed(given), "warm": False}}) as cluster:
    while True:
        try:
            live = cluster.live()
            live.run(f"import sys; sys.argv = {{given.program}}")
            live.run({_BEGIN!r})
            for upto in range(5, int(given.program[3]) + 1, 5):
                live.run(f"steps = {{upto}}" + {_TRAIN!r})
            live.run({_END!r})
            break
        except MwmagicError as error:
            print("again, after", error, file=sys.stderr, flush=True)
            time.sleep(0.5)
"""
"""The plain training in live cells; a session that breaks off is followed by another one."""

KERAS = f"""{_NOTES}
import keras
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(64 * {SAVE_STEPS}, 16)).astype("float32")
y = x.sum(1, keepdims=True)
with strategy.scope():
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

class Notes(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.step = epoch * {SAVE_STEPS}
        phase(self.step, "trains")

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.12)
        self.step += 1
        phase(self.step, "trains")
        for part in range(3):
            say(f"step {{self.step}}")

    def on_epoch_end(self, epoch, logs=None):
        phase(self.step, "saves")

data = tf.data.Dataset.from_tensor_slices((x, y)).batch(64)
saved = [Notes(), keras.callbacks.BackupAndRestore(f"{{sides}}/backup-{{units}}")]
model.fit(data, epochs=steps // {SAVE_STEPS}, verbose=0, callbacks=saved)
over([float(abs(one).sum()) for one in model.get_weights()])
"""
"""A real training, which continues from where Keras's BackupAndRestore has saved it."""


def undisturbed(units, workers, steps):
    """Return the weights of a plain training that nothing disturbs."""
    weights = [1.0 * units, 2.0, 3.0]
    for step in range(steps):
        parts = [[(rank + 1) * (one * 0.01 + step) for one in weights] for rank in range(workers)]
        sums = [sum(gradients) for gradients in zip(*parts, strict=True)]
        weights = [one - 0.1 * total for one, total in zip(weights, sums, strict=True)]
    return weights
