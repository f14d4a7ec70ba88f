"""How long a gang takes from SIGKILL of one worker until all run again.

It compares mwmagic, with cold workers and with workers forked from its warm process, with
torchrun at a monitor interval of 0.1 s, all in one run and in turn. The script needs no framework:
its first line notes the time. Compare the ratios, not the milliseconds.

    python benchmarks/restart.py [ROUNDS] [TASKS ...]

PyTorch is expected in ``.torch``, where ``make test`` installs it; otherwise the line for torchrun
is left out.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

TORCH = Path(__file__).parents[1] / ".torch"

UP = """
import os, time
moment = time.monotonic()
with open("up/new.%d" % os.getpid(), "w") as file:
    file.write(str(moment))
os.rename(file.name, "up/%d" % os.getpid())
print("step", os.environ.get("MWMAGIC_ATTEMPT"), "loss 0.5", flush=True)
time.sleep(600)
"""
"""Notes when it runs; each attempt prints a new step, so that none is followed by a delay."""


class Gang:
    """The processes that have noted that they run in a folder."""

    def __init__(self, folder: Path, size: int) -> None:
        self.up = folder / "up"
        self.up.mkdir()
        self.size = size
        self.seen: set[int] = set()
        self.pids = self._next()

    def _next(self) -> dict[int, float]:
        """Wait until all run; return when each began."""
        while True:
            found = {int(one.name) for one in self.up.iterdir() if one.name.isdigit()}
            if len(found - self.seen) == self.size:
                break
            time.sleep(0.001)
        new, self.seen = found - self.seen, found
        return {pid: float((self.up / str(pid)).read_text()) for pid in new}

    def restarted(self) -> float:
        """Kill the last process; return the seconds until all run again."""
        begun = time.monotonic()
        os.kill(max(self.pids), signal.SIGKILL)
        self.pids = self._next()
        return max(self.pids.values()) - begun


@contextmanager
def by_mwmagic(folder: Path, size: int, *, warm: bool) -> Iterator[Gang]:
    name = "warm" if warm else "cold"
    with Cluster(size, directory=folder, warm=warm, name=name, restarts=10**6) as cluster:
        while warm and cluster.machines[0].warm.state == "importing":
            time.sleep(0.05)
        run = cluster.run("main.py", cwd=folder)
        yield Gang(folder, size)
        run.stop(grace=0)


@contextmanager
def by_torchrun(folder: Path, size: int) -> Iterator[Gang]:
    words = ["--standalone", "--max-restarts=1000", "--monitor-interval=0.1"]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", *words),
            *(f"--nproc-per-node={size}", "main.py"),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TORCH)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Gang(folder, size)
    finally:
        process.terminate()
        process.wait()


def main(rounds: int, sizes: list[int]) -> None:
    print("SIGKILL to all running again       median   min   max  ratio")
    for size in sizes:
        with ExitStack() as stack:

            def folder(stack: ExitStack = stack) -> Path:
                path = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                (path / "main.py").write_text(UP)
                return path

            gangs = {
                "mwmagic, cold": stack.enter_context(by_mwmagic(folder(), size, warm=False)),
                "mwmagic, warm": stack.enter_context(by_mwmagic(folder(), size, warm=True)),
            }
            if (TORCH / "torch").is_dir():
                gangs["torchrun"] = stack.enter_context(by_torchrun(folder(), size))
            seconds: dict[str, list[float]] = {name: [] for name in gangs}
            for _ in range(rounds):
                for name, gang in gangs.items():
                    time.sleep(0.2)
                    seconds[name].append(gang.restarted())
        base = statistics.median(seconds.get("torchrun", [float("nan")]))
        for name, times in seconds.items():
            median, least, most = statistics.median(times), min(times), max(times)
            told = f"{median * 1e3:5.0f} ms {least * 1e3:5.0f} {most * 1e3:5.0f}"
            print(f"{size:3} tasks, {name:20} {told} {median / base:6.2f}", flush=True)


if __name__ == "__main__":
    words = [int(word) for word in sys.argv[1:]]
    main(words[0] if words else 9, words[1:] or [2, 4, 16])
