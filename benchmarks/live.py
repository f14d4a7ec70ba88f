"""What a live cell costs, compared with others, and what moving an array costs.

::

    python benchmarks/live.py [--rounds N]

The round trip of ``1 + 1`` on all tasks is compared with ipyparallel's and with that of an endpoint
of PyTorch's Monarch, which get an environment of their own below a temporary directory. All run on
this machine, in turn, with the same number of processes, and are asked from Python; a cell's result
is the value on every task. "Displayed" is the same cell as the magic, in a kernel, with
its output. A ratio below 1 means that a live cell is faster.

Pushing and pulling an array of 256 MB is compared with `numpy.save` to memory and `numpy.load` from
there.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from jupyter_client.manager import start_new_kernel

from mwmagic import Cluster
from mwmagic.client.transfer import MEMORY

SIZES = (2, 8)
CELLS = 100
"""How many cells make a round, after ten that are not measured."""

ARRAY_MB = 256
SHARES = {"ipyparallel": 0.25, "Monarch": 1.0, "Monarch, displayed": 2.0}
"""How much of the others' time a live cell may take."""

MEASURE = f"""
import statistics, sys, time
def measure(ask):
    times = []
    for number in range(10 + {CELLS}):
        began = time.perf_counter()
        ask()
        if number >= 10:
            times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)
def serve(ask):
    print("ready", flush=True)
    for _ in sys.stdin:
        print(measure(ask), flush=True)
"""

OTHERS = {
    "ipyparallel": """
import ipyparallel
with ipyparallel.Cluster(n=SIZE, log_level=40) as client:
    view = client[:]
    view.block = True
    serve(lambda: view.execute("1 + 1", silent=False).get())
""",
    "Monarch": """
from monarch.actor import Actor, endpoint, this_host
class One(Actor):
    @endpoint
    def two(self):
        return 1 + 1
one = this_host().spawn_procs(per_host={"workers": SIZE}).spawn("one", One)
serve(lambda: one.two.call().get())
""",
}
"""Programs that measure a round for each line that they read."""

KERNEL = """
ask = lambda: get_ipython().run_cell_magic("mw_live", "", "1 + 1")
result = measure(ask)
"""


@contextmanager
def ours(size):
    """Yield a function that measures a round of live cells, asked from Python."""
    scope = {}
    exec(MEASURE, scope)
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(size, directory=folder, name=f"bench{size}", warm=False) as cluster,
        cluster.live() as live,
    ):
        yield lambda: scope["measure"](lambda: live.run("1 + 1"))


@contextmanager
def displayed(size):
    """Yield a function that measures a round of live cells in a kernel, with their output."""
    with tempfile.TemporaryDirectory() as folder:
        manager, client = start_new_kernel(cwd=folder)

        def run(code):
            reply = client.execute_interactive(code, output_hook=lambda _: None, timeout=120)
            assert reply["content"]["status"] == "ok", reply["content"]

        def ask():
            run(KERNEL)
            reply = client.execute_interactive(
                "", user_expressions={"result": "result"}, timeout=60
            )
            return float(reply["content"]["user_expressions"]["result"]["data"]["text/plain"])

        try:
            run("%load_ext mwmagic")
            run(f"%mw_cluster {size} --no-warm")
            run("%%mw_live\n1")
            run(MEASURE)
            yield ask
            run("%mw_stop --cluster")
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


@contextmanager
def theirs(python, name, size, folder):
    """Yield a function that measures a round of another package."""
    program = Path(folder, f"measured_{name}.py")  # not the name of what it imports
    program.write_text(MEASURE + OTHERS[name].replace("SIZE", str(size)))
    process = subprocess.Popen(
        [python, str(program)],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )

    def ask():
        process.stdin.write("\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    try:
        while process.stdout.readline().strip() != "ready":
            assert process.poll() is None, f"{name} ended"
        yield ask
    finally:
        process.stdin.close()
        process.wait()


def environment(folder):
    """Make an environment with the others, and return its Python."""
    venv.create(folder, with_pip=True)
    python = str(Path(folder, "bin", "python"))
    command = [python, "-m", "pip", "install", "-q", "ipyparallel", "torchmonarch"]
    subprocess.run(command, check=True)
    return python


def compare(rounds):
    """Print the round trips, and return the measures that are too slow."""
    slow = []
    print(f"{'':10}{'live':>8}{'displayed':>11}{'ipyparallel':>13}{'Monarch':>9}   milliseconds")
    with tempfile.TemporaryDirectory() as folder:
        python = environment(f"{folder}/environment")
        for size in SIZES:
            with (
                ours(size) as own,
                displayed(size) as shown,
                theirs(python, "ipyparallel", size, folder) as ipyparallel,
                theirs(python, "Monarch", size, folder) as monarch,
            ):
                asked = (own, shown, ipyparallel, monarch)
                found = [[ask() for ask in asked] for _ in range(rounds)]
            live, seen, parallel, actors = (
                statistics.median(one) for one in zip(*found, strict=True)
            )
            print(
                f"{size} tasks   {live:8.2f}{seen:11.2f}{parallel:13.2f}{actors:9.2f}", flush=True
            )
            ratios = {
                "ipyparallel": live / parallel,
                "Monarch": live / actors,
                "Monarch, displayed": seen / actors,
            }
            print("   of", ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items()))
            slow += [f"{size}: {one}" for one, ratio in ratios.items() if ratio > SHARES[one]]
    return slow


def timed(act):
    """Return how long something takes at best, in seconds."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return min(times)


def move():
    """Print what moving an array costs."""
    array = np.random.default_rng(0).random(ARRAY_MB * 2**17)
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory(dir=MEMORY) as memory,
        Cluster(1, directory=folder, name="move", warm=False) as cluster,
        cluster.live() as live,
    ):
        path = f"{memory}/array.npy"
        live.push(array=array)
        measured = {
            "numpy.save": timed(lambda: np.save(path, array)),
            "push": timed(lambda: live.push(array=array)),
            "numpy.load": timed(lambda: np.load(path)),
            "pull": timed(lambda: live.pull("array")),
        }
    for name, seconds in measured.items():
        print(f"{name:12}{array.nbytes / seconds / 1e9:6.2f} GB/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    move()
    slow = compare(options.rounds)
    if slow:
        sys.exit(f"slower than it should be: {', '.join(slow)}")


if __name__ == "__main__":
    main()
