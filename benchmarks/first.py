"""From Enter to a program's first line and first trained step, with TensorFlow.

Two workers. By hand is what the tutorial does: two plain processes with TF_CONFIG.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from functools import partial

from .case import Case, Line
from .clusters import MOMENT, Moments, by_hand, folder
from .kernels import kernel
from .ratio import alternated

IMPORTED = MOMENT + "import tensorflow as tf\n"
STRATEGY = IMPORTED + "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
STEP = """
import numpy as np
x, y = np.ones((64, 8), "float32"), np.ones((64, 1), "float32")
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16).repeat()
with strategy.scope():
    model = LIBRARY.Sequential([LIBRARY.layers.Input((8,)), LIBRARY.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(data, epochs=1, steps_per_epoch=1, verbose=0)
"""
PROGRAMS = {
    "line": (IMPORTED, "the first line with TensorFlow imported"),
    "step": (STRATEGY + STEP.replace("LIBRARY", "tf.keras"), "the first trained step"),
}
"""By hand, Keras 3 cannot train on several workers: there the step is that of tf_keras."""

AIMS_SECONDS = {"line": 0.06, "step": 0.5}


def old_keras(program):
    return program.replace("import numpy", "import tf_keras, numpy").replace("tf.keras", "tf_keras")


class Notebook:
    """A kernel whose cells launch a program, with or without a warm process."""

    def __init__(self, stack, path, *, warm):
        self.kernel = stack.enter_context(kernel(sys.executable, path))
        self.program, self.moments = (path / "main.py").read_text(), Moments(path)
        options = "" if warm else " --no-warm"
        self.kernel.run(f"%load_ext mwmagic\ncluster = %mw_cluster 2{options}")
        if warm:
            state = "cluster.machines[0].warm.state"
            self.kernel.run(f"import time\nwhile {state} == 'importing': time.sleep(0.05)")

    def seconds(self):
        began = time.monotonic()
        request = self.kernel.send(f"%%mw_worker\n{self.program}")
        found = self.moments.next(2)
        self.kernel.hear(request)
        self.kernel.run("%mw_wait")
        return max(found.values()) - began


def from_shell(path, moments):
    began = time.monotonic()
    processes = by_hand(path, 2, tf_config=True)
    found = moments.next(2)
    for one in processes:
        one.wait()
    return max(found.values()) - began


def measure(name, plan):
    program, what = PROGRAMS[name]
    program += "moment()\n"
    with ExitStack() as stack:
        shell = stack.enter_context(folder(old_keras(program)))
        calls = {"hand": partial(from_shell, shell, Moments(shell))}
        for way in ("cold", "warm"):
            notebook = Notebook(stack, stack.enter_context(folder(program)), warm=way == "warm")
            calls[way] = notebook.seconds
        found = alternated(plan.rounds(7, 2), **calls)
    for way in ("warm", "cold"):
        aim = f"aim {AIMS_SECONDS[name]} s" if way == "warm" else ""
        yield Line(f"Enter to {what}, {way}", "s", found[way], "by hand", found["hand"], note=aim)


CASES = [
    Case(f"first-{name}", f"Enter to {what}, against by hand", partial(measure, name))
    for name, (_, what) in PROGRAMS.items()
]
