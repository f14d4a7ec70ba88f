"""Start the tasks of a TF_CONFIG by hand, as a script without mwmagic would be."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from nursery import Nursery

QUIET = {
    "CUDA_VISIBLE_DEVICES": "",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_GRPC_REUSE_PORT": "1",
    "TF_NUM_INTEROP_THREADS": "2",
    "TF_NUM_INTRAOP_THREADS": "1",
    "no_proxy": "localhost,127.0.0.1",
}


def placeholder():
    """Hold a port in a way that TensorFlow's server can share."""
    held = socket.socket(socket.AF_INET6)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("::", 0))
    return held


@dataclass
class Gang:
    """Processes of one cluster, with a log file each; all gone at the end of a `with`."""

    directory: Path
    script: Path
    args: list = field(default_factory=list)
    workers: int = 2
    env: dict = field(default_factory=dict)
    first: str = "worker"
    nursery: Nursery | None = None  # what the processes are forked from, if they are

    def __enter__(self):
        self.directory.mkdir(parents=True, exist_ok=True)
        self.ports = [placeholder() for _ in range(self.workers)]
        self.processes = [self._start(index) for index in range(self.workers)]
        return self

    def __exit__(self, *exc):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for port in self.ports:
            port.close()

    def _start(self, index):
        env = {**os.environ, **QUIET, "PYTHONFAULTHANDLER": "1"}
        env.pop("TF_CONFIG", None)
        if self.workers > 1:
            env["TF_CONFIG"] = json.dumps(self._tf_config(index))
        argv = [str(self.script), *map(str, self.args)]
        if self.nursery is not None:
            return self.nursery.fork(argv, self.directory, {**env, **self.env}, self.log(index))
        with self.log(index).open("wb") as log:
            return subprocess.Popen(
                [sys.executable, *argv],
                env={**env, **self.env},
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _tf_config(self, index):
        addresses = [f"localhost:{port.getsockname()[1]}" for port in self.ports]
        cluster = {"worker": addresses}
        tasks = [("worker", i) for i in range(self.workers)]
        if self.first == "chief":
            cluster = {"chief": addresses[:1], "worker": addresses[1:]}
            tasks = [("chief", 0), *tasks[:-1]]
        kind, number = tasks[index]
        return {"cluster": cluster, "task": {"type": kind, "index": number}}

    def log(self, index):
        return self.directory / f"worker-{index}.log"

    def text(self, index):
        return self.log(index).read_text(errors="replace")

    def until(self, condition, timeout=120.0):
        """Wait for a condition, or fail with the logs once no task has written for so long."""
        written, since = None, time.monotonic()
        while not condition():
            sizes = [self.log(index).stat().st_size for index in range(self.workers)]
            if sizes != written:
                written, since = sizes, time.monotonic()
            assert time.monotonic() < since + timeout, self.tails()
            time.sleep(0.02)

    def wait(self, timeout=240.0):
        """Wait for all, at most until the first failure, and return the exit codes."""

        def over():
            codes = [process.poll() for process in self.processes]
            return None not in codes or any(codes)

        self.until(over, timeout)
        return [process.poll() for process in self.processes]

    def linger(self, timeout=30.0):
        """Give the others time to notice a failure."""
        deadline = time.monotonic() + timeout
        while None in [process.poll() for process in self.processes]:
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)

    def tails(self):
        return "\n".join(
            f"--- worker {index} ({process.poll()})\n{self.text(index)[-4000:]}"
            for index, process in enumerate(self.processes)
        )


def found(folder, program, nursery):
    """Run a program on two workers, and return the JSON that each printed after ``found``."""
    path = folder / "main.py"
    path.write_text(program)
    with Gang(folder / "run", path, nursery=nursery) as gang:
        assert gang.wait() == [0, 0], gang.tails()
        return [_found(gang.text(task)) for task in range(2)]


def _found(text):
    [line] = [line for line in text.splitlines() if line.startswith("found ")]
    return json.loads(line.removeprefix("found "))
