"""What a live cell costs, compared with ipyparallel: the round trip of ``1 + 1`` on all tasks.

::

    pip install ipyparallel
    python benchmarks/live.py [--rounds N]

Both run on this machine, in turn, with the same number of processes, and are asked from Python: a
cell's result is the value on every task. A ratio below 1 means that a live cell is faster.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import contextmanager

import ipyparallel

from mwmagic import Cluster

SIZES = (2, 8)
CELLS = 100
"""How many cells make a round, after ten that are not measured."""


@contextmanager
def ours(size):
    """Yield a function that asks live interpreters."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(size, directory=folder, name=f"bench{size}", warm=False) as cluster,
        cluster.live() as live,
    ):
        yield lambda: live.run("1 + 1")


@contextmanager
def theirs(size):
    """Yield a function that asks ipyparallel's engines."""
    with ipyparallel.Cluster(n=size, log_level=40) as client:
        view = client[:]
        view.block = True
        yield lambda: view.execute("1 + 1", silent=False).get()


def round_trip(ask):
    """Return the median of a round, in milliseconds."""
    times = []
    for number in range(10 + CELLS):
        began = time.perf_counter()
        ask()
        if number >= 10:
            times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{'':10}{'live ms':>10}{'ipyparallel ms':>16}{'ratio':>8}")
    for size in SIZES:
        with ours(size) as own, theirs(size) as other:
            pairs = [(round_trip(own), round_trip(other)) for _ in range(options.rounds)]
        own, other = (statistics.median(one) for one in zip(*pairs, strict=True))
        print(f"{size} tasks   {own:10.2f}{other:16.2f}{own / other:8.2f}", flush=True)


if __name__ == "__main__":
    main()
