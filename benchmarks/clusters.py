"""Clusters of mwmagic, and the same processes started by hand, to compare them with."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mwmagic import Cluster

POLL_SECONDS = 0.001
WAIT_SECONDS = 120.0
END_SECONDS = 10.0

MOMENT = """
import os as _os, time as _time
def moment():
    now = _time.monotonic()
    with open("up/new.%d" % _os.getpid(), "w") as file:
        file.write(str(now))
    _os.rename(file.name, "up/%d" % _os.getpid())
"""
"""Gives a program `moment()`, which notes when it was called in a folder named `up`."""


@contextmanager
def folder(program=""):
    """Yield a directory that holds a program as `main.py`, and a folder for its moments."""
    with tempfile.TemporaryDirectory(prefix="mwmagic-benchmark-") as name:
        path = Path(name)
        (path / "main.py").write_text(program)
        (path / "up").mkdir()
        yield path


class Moments:
    """The moments that processes note in a folder, each process once."""

    def __init__(self, path):
        self.path, self.seen = path / "up", set()

    def next(self, count):
        """Wait for new processes; return the moment of each, by its id."""
        found, deadline = set(), time.monotonic() + WAIT_SECONDS
        while len(found := self.noted() - self.seen) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(found)} of {count} processes came in {WAIT_SECONDS} s")
            time.sleep(POLL_SECONDS)
        self.seen |= found
        return {pid: float((self.path / str(pid)).read_text()) for pid in found}

    def noted(self):
        return {int(one.name) for one in self.path.iterdir() if one.name.isdigit()}


@contextmanager
def cluster(size, path, *, warm=False, **options):
    """Yield a cluster; a warm one once it has imported its framework."""
    name = "warm" if warm else "cold"
    with Cluster(size, directory=path, warm=warm, name=name, **options) as one:
        while warm and one.machines[0].warm.state == "importing":
            time.sleep(0.05)
        yield one


def free_ports(count):
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("localhost", 0))
        return [one.getsockname()[1] for one in sockets]


def by_hand(path, size, *, tf_config=False, python=sys.executable, args=()):
    """Start a program's processes as a shell would; return them."""
    workers = [f"localhost:{port}" for port in free_ports(size)] if tf_config else []
    return [
        subprocess.Popen(
            [python, "main.py", *args],
            cwd=path,
            env={**os.environ, **(config(workers, index) if tf_config else {})},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for index in range(size)
    ]


def config(workers, index):
    task = {"type": "worker", "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": task})}


def torchrun(python, path, size, *words):
    """Start a program with torchrun at a monitor interval of 0.1 s; return the launcher."""
    options = ["--standalone", "--monitor-interval=0.1", f"--nproc-per-node={size}", *words]
    return subprocess.Popen(
        [python, "-m", "torch.distributed.run", *options, "main.py"],
        cwd=path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def end(*processes):
    """End processes: torchrun ends its workers on SIGTERM only."""
    for one in processes:
        one.terminate()
    for one in processes:
        killer = threading.Timer(END_SECONDS, one.kill)
        killer.start()
        one.wait()
        killer.cancel()
