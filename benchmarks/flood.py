"""What it costs a worker to print a lot while no one reads it.

``python benchmarks/flood.py`` runs a process that prints line by line, and 1,000 lines at once, in
turn into a file, through a pipe into ``cat``, and as a worker whose log mwmagic keeps. It reports
how long the process takes, and the ratio to the file. All print unbuffered, as workers do.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from mwmagic import Cluster

LINE = "step 5000 of a training with loss=0.4321 and accuracy=0.98765\n"
SIZES = {1: 20 << 20, 1000: 200 << 20}
"""The number of lines printed at once, and roughly the bytes in total."""

MAIN = f"""
import sys, time
from pathlib import Path
text, count = {LINE!r} * int(sys.argv[1]), int(sys.argv[2])
start = time.perf_counter()
for _ in range(count):
    sys.stdout.write(text)
Path("seconds").write_text(str(time.perf_counter() - start))
"""
PLAIN = [sys.executable, "-u", "main.py"]


def into_file(folder: Path, args: list[str]) -> Path:
    log = folder / "file.log"
    with log.open("wb") as file:
        subprocess.run([*PLAIN, *args], cwd=folder, stdout=file, check=True)
    return log


def into_cat(folder: Path, args: list[str]) -> Path:
    log = folder / "cat.log"
    plain = subprocess.Popen([*PLAIN, *args], cwd=folder, stdout=subprocess.PIPE)
    with log.open("wb") as file, plain:
        subprocess.run(["cat"], stdin=plain.stdout, stdout=file, check=True)
    return log


def into_log(folder: Path, args: list[str]) -> Path:
    with Cluster(1, name="flood", directory=folder, warm=False) as cluster:
        run = cluster.run("main.py", args=args, cwd=folder).wait()
        return Path(run.status().tasks["worker:0"].log)


WAYS = {"file": into_file, "cat": into_cat, "mwmagic": into_log}


def seconds(way: str, folder: Path, lines: int) -> float:
    """Return how long a process takes to print everything, and check that it arrived."""
    count = SIZES[lines] // (lines * len(LINE))
    log = WAYS[way](folder, [str(lines), str(count)])
    size = log.stat().st_size
    if size != count * lines * len(LINE):
        raise AssertionError(f"{log} has {size} bytes")
    log.unlink()
    return float((folder / "seconds").read_text())


def compare(folder: Path, lines: int, rounds: int) -> None:
    """Print the times of all ways, measured in turn."""
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, values in times.items():
            values.append(seconds(way, folder, lines))
    print(f"{SIZES[lines] >> 20} MB, {lines} lines at once, {rounds} rounds")
    for way, values in times.items():
        ratio = statistics.median(
            own / file for own, file in zip(values, times["file"], strict=True)
        )
        print(f"  {way:<8} median {statistics.median(values):5.2f} s  {ratio:.2f} of the file's")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "main.py").write_text(MAIN)
        for lines in SIZES:
            compare(Path(name), lines, given.rounds)


if __name__ == "__main__":
    main()
