"""How long a gang of two takes from its launch to its first collective.

It compares three ways in one run, in turn: by hand as in the tutorial (two plain ``python``
processes), mwmagic with cold workers, and mwmagic with workers forked from its warm
process. It prints seconds and the ratio to the way by hand; compare ratios, not seconds.

    python benchmarks/start.py [ROUNDS]
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from mwmagic import Cluster

MAIN = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
@tf.function
def total():
    def one():
        return tf.distribute.get_replica_context().all_reduce("sum", tf.ones(()))
    return strategy.run(one)
assert float(total()) == 2.0
print("READY", flush=True)
"""


def free_ports(count):
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("localhost", 0))
        return [one.getsockname()[1] for one in sockets]


def by_hand(directory):
    """Start two processes with TF_CONFIG and wait for the output of both."""
    addresses = [f"localhost:{port}" for port in free_ports(2)]
    begin = time.perf_counter()
    workers = []
    for index in range(2):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        workers.append(
            subprocess.Popen(
                [sys.executable, "main.py"],
                cwd=directory,
                env={**os.environ, "TF_CONFIG": config},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        )
    for worker in workers:
        assert worker.stdout.readline() == b"READY\n"
    seconds = time.perf_counter() - begin
    for worker in workers:
        worker.wait()
        worker.stdout.close()
    return seconds


def by_mwmagic(cluster):
    """Launch on a cluster and wait for the output of both."""
    begin = time.perf_counter()
    run = cluster.run("main.py", cwd=cluster.options.root)
    logs = [run.directory / f"attempt-1/worker-{i}.log" for i in (0, 1)]
    while not all(log.exists() and b"READY" in log.read_bytes() for log in logs):
        time.sleep(0.005)
    seconds = time.perf_counter() - begin
    run.wait()
    return seconds


def main(rounds):
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (directory / "main.py").write_text(MAIN)
        cold = stack.enter_context(Cluster(2, directory=directory, warm=False, name="cold"))
        warm = stack.enter_context(Cluster(2, directory=directory, name="warm"))
        while warm.machines[0].warm.state == "importing":
            time.sleep(0.05)
        ways = {
            "by hand": lambda: by_hand(directory),
            "mwmagic, cold": lambda: by_mwmagic(cold),
            "mwmagic, warm": lambda: by_mwmagic(warm),
        }
        seconds = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                seconds[name].append(way())
    base = statistics.median(seconds["by hand"])
    print(f"{'launch to first collective, 2 workers':40} median  ratio  min   max")
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"{name:40} {median:5.2f}  {median / base:5.2f}  {min(times):.2f}  {max(times):.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
