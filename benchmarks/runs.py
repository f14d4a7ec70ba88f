"""How long the table of 10,000 runs takes: without its index, and with it."""

from __future__ import annotations

import json
import time
from pathlib import Path

from mwmagic.record import RunPaths, runs
from mwmagic.record.paths import runs_folder
from mwmagic.words.table import RunTable

from .case import Case, Line
from .clusters import folder

COUNT = 10_000
PROGRAM = "units = {units}\nlr = 0.1\nopt = {{'decay': 0.5}}\n" + "print(units * lr)\n" * 50


def write(path, count):
    """Write the records of runs that are over, each with its program and its metrics."""
    for number in range(1, count + 1):
        record = RunPaths(runs_folder(path) / f"{number:04d}-main")
        record.attempt(1).mkdir(parents=True)
        source = record.source("main.py", None)
        source.write_text(PROGRAM.format(units=2 ** (number % 8)))
        launch = {"script": "main.py", "source": source.name, "args": [], "given": {}}
        launch["cwd"] = str(path)
        reached = {"value": 1 / number, "attempt": 1, "epoch": 3, "step": 30}
        values = {name: {"last": reached, "best": reached} for name in ("loss", "val_loss")}
        tasks = {f"worker:{index}": {"state": "ended"} for index in range(2)}
        state = {
            "state": "finished",
            "started": 1e9 + number,
            "ended": 1e9 + 2 * number,
            "tasks": tasks,
            "launches": dict.fromkeys(tasks, launch),
            "metrics": dict.fromkeys(tasks, values),
        }
        lines = [
            {"wall": 1e9, "task": "worker:0", "attempt": 1, "metrics": {"loss": 1 / (step + 1)}}
            for step in range(30)
        ]
        record.metrics.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        record.state.write_text(json.dumps(state))


def shown(path):
    began = time.monotonic()
    repr(RunTable(runs(path)))
    return time.monotonic() - began


def measure(plan):
    count = COUNT // 10 if plan.quick else COUNT
    with folder() as path:
        write(Path(path), count)
        time.sleep(3)  # the index keeps nothing that changed within the last two seconds
        cold = [shown(path)]
        warm = [shown(path) for _ in range(plan.rounds(9, 3))]
    yield Line(f"the table of {count:,} runs", "s", warm, note="aim 0.3 s for 10,000")
    yield Line(f"the table of {count:,} runs that has no index yet", "s", cold)


CASES = [Case("runs", "the table of 10,000 runs, with and without its index", measure)]
