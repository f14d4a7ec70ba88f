"""Random live cells of a notebook whose kernel is lost: with `--detach` the session goes on.

`tests/test_live_chaos.py` does the same from Python, with more cells and without a kernel.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time

import pytest
from processes import eventually

pytestmark = pytest.mark.slow

TASKS = 3
CELLS = 30
DECLARE = f"%mw_cluster {TASKS} --no-warm --grace 1 --detach"
PATIENT = "from mwmagic.client.live import cell; cell.HELD_SECONDS = 60.0"
"""Has a line wait for that of the other tasks however late a busy machine has it."""

SETUP = "%%mw_live\nimport os, time; rank = int(os.environ['MWMAGIC_TASK'][-1]); total = 0"


class Chaos:
    """A notebook, and what happens to its session."""

    def __init__(self, kernel, folder, dice):
        self.kernel, self.folder, self.dice = kernel, folder, dice
        self.count = 0
        self.declare()
        self.open()

    def declare(self):
        assert self.kernel.run(PATIENT).error is None
        assert self.kernel.run(DECLARE).error is None

    def open(self):
        """Begin a session, on which nothing has been counted."""
        self.total = 0
        assert self.kernel.run(SETUP).error is None

    # The record.

    def run(self):
        return max((self.folder / ".mwmagic" / "runs").glob("*-live"))

    def state(self):
        return json.loads((self.run() / "run.json").read_text())["tasks"]

    def cells(self):
        """Return the cells that are recorded by now."""
        path = self.run() / "cells.jsonl"
        return [json.loads(line) for line in path.open()] if path.exists() else []

    def running(self, code):
        """Send a cell, and wait until all of its tasks run it; return the request."""
        request = self.kernel.send(f"%%mw_live\nprint('begun')\n{code}")
        while True:
            message = self.kernel.client.get_iopub_msg(timeout=120)
            text = message["content"].get("text", "")
            if message["parent_header"].get("msg_id") == request and "[0-2] begun" in text:
                return request

    def counted(self, many=1):
        """Return code by which each task counts, and prints the number, so many times."""
        self.total += many
        return f"for _ in range({many}): total += 1; print('counted', total)"

    def checked(self):
        """Check that no task has lost a count, and that its cell's part of the log has it."""
        result = self.kernel.run(f"%%mw_live\n{self.counted()}\ntotal")
        assert result.error is None, result.error
        found = list(result.shown.values())[-1]["text/plain"]
        assert found == str(self.total), (result.text, self.cells()[-3:])
        # A cell's end is recorded soon after it is told.
        eventually(lambda: self.said() == [b"counted %d\n" % self.total] * TASKS)

    def said(self):
        """Return what each task's log has of the last recorded cell."""
        logs = self.run() / "attempt-1"
        parts = (part for one in self.cells()[-1:] for part in one["answers"].items())
        named = ((logs / f"{task.replace(':', '-')}.log", part) for task, part in parts)
        return [log.read_bytes()[part["start"] : part["end"]] for log, part in named]

    # What happens.

    def raises(self):
        guilty = self.dice.randrange(TASKS)
        code = f"%%mw_live\n{self.counted()}\nif rank == {guilty}: 1 / 0\ntime.sleep(0.01 * rank)"
        assert f"worker:{guilty} raised ZeroDivisionError" in self.kernel.run(code).error

    def is_slow(self):
        slow = self.dice.randrange(TASKS)
        code = f"%%mw_live\nif rank == {slow}: time.sleep(0.2)\n{self.counted(3)}"
        assert self.kernel.run(code).error is None

    def is_interrupted(self):
        request = self.running("time.sleep(600)")
        behind = self.kernel.send(f"%%mw_live\n{self.counted()}")
        self.kernel.manager.interrupt_kernel()
        assert "WaitInterrupted" in self.kernel.collect(request).error
        assert self.kernel.collect(behind).error is None, "it was queued behind an interrupt"

    def is_killed(self):
        victim = self.dice.randrange(TASKS)
        request = self.running("time.sleep(600)")
        # The record, from which it is read, may be a moment behind.
        pid = eventually(lambda: self.state()[f"worker:{victim}"]["pid"], "process id")
        os.kill(pid, signal.SIGKILL)
        assert f"worker:{victim} killed by SIGKILL" in self.kernel.collect(request).error
        self.open()

    def is_restarted(self):
        """Lose the kernel while a cell runs, which goes on, or between two cells."""
        busy = self.dice.random() < 0.7
        if busy:
            go = self.folder / f"go-{time.monotonic_ns()}"
            wait = f"while not os.path.exists({str(go)!r}): time.sleep(0.01)"
            self.running(f"{wait}\n{self.counted(5)}")
        self.kernel.restart(now=busy)
        self.declare()
        if busy:
            go.touch()


@pytest.mark.timeout(1200)
def test_cells_end_and_lines_are_kept_though_kernels_are_restarted(
    nothing_survives, kernel, tmp_path
):
    chaos = Chaos(kernel, tmp_path, random.Random(17))
    often = [chaos.raises, chaos.is_slow, chaos.is_interrupted]
    rare = [chaos.is_killed, chaos.is_restarted]
    for number in range(CELLS):
        once = rare[number : number + 1]
        step = once or (rare if chaos.dice.random() < 0.1 else often)
        chaos.dice.choice(step)()
        chaos.checked()
    assert kernel.run("%mw_stop --cluster").error is None
