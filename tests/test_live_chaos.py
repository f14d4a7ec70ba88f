"""Random cells on living interpreters: none hangs, no line is lost, no process is left."""

from __future__ import annotations

import json
import os
import random
import signal
import threading

import pytest
from processes import pid_of

from mwmagic import Cluster
from mwmagic.errors import MwmagicError, NoRun, WorkerFailed

pytestmark = pytest.mark.slow

TASKS = 3
CELLS = 200
SETUP = "import os, sys, time; rank = int(os.environ['MWMAGIC_TASK'][-1]); kept = 'kept'"
SECONDS = 120.0
"""How long a cell may take, on a busy machine, before it counts as hanging."""


class Chaos:
    """A session, and what happens to it."""

    def __init__(self, cluster, dice):
        self.cluster, self.dice = cluster, dice
        self.token = 0
        self.open()

    def open(self):
        self.live = self.cluster.live()
        self.live.run(SETUP)

    def some(self):
        return sorted(self.dice.sample(range(TASKS), self.dice.randint(1, TASKS)))

    def finished(self, cell):
        """Wait for the end of a cell, which must come."""
        while not cell.over:
            assert cell.news(SECONDS) is not None, "the cell hangs"
        return cell

    def printed(self, cell, tasks):
        """Check that what a cell printed is in its part of each log, whole and alone."""
        text = f"{self.token} said\n".encode() * 5
        kept = self.live.process.record.paths.cells.read_text().splitlines()
        one = next(one for one in map(json.loads, kept) if one["cell"] == cell.number)
        for task in tasks:
            part = one["answers"][f"worker:{task}"]
            log = self.live.process.logs(task)
            assert log[part["start"] : part["end"]] == text

    def prints(self):
        tasks, self.token = self.some(), self.token + 1
        source = f"for _ in range(5): print('{self.token} said')\nassert kept == 'kept'"
        cell = self.finished(self.live.begin(source, tasks))
        self.live.check(cell, "cell")
        self.printed(cell, tasks)

    def raises(self):
        tasks, guilty = self.some(), self.dice.randrange(TASKS)
        cell = self.finished(self.live.begin(f"if rank == {guilty}: 1 / 0", tasks))
        raised = {task for task, one in cell.answers.items() if one.raised}
        assert raised == {f"worker:{task}" for task in tasks if task == guilty}

    def is_interrupted(self):
        tasks = self.some()
        cell = self.live.begin("time.sleep(600 if rank else 0.01)", tasks)
        threading.Timer(self.dice.random() * 0.1, self.live.interrupt, (cell,)).start()
        while not cell.over:
            threading.Event().wait(0.01)
        kinds = {task: one.raised and one.raised.type for task, one in cell.answers.items()}
        assert all(kinds[f"worker:{task}"] == "KeyboardInterrupt" for task in tasks if task)

    def queues(self):
        first = self.live.begin("time.sleep(0.05)")
        second = self.live.begin("rank", self.some())
        if self.dice.random() < 0.5:
            self.live.interrupt(first)
        self.finished(first)
        self.live.check(self.finished(second), "cell")

    def is_reset(self):
        cell = self.live.begin("time.sleep(600)")
        self.live.reset()
        with pytest.raises(NoRun):
            self.live.check(self.finished(cell), "cell")
        self.live.run(SETUP)

    def is_killed(self):
        victim = self.dice.randrange(TASKS)
        pid = pid_of(self.live.process, f"worker:{victim}")
        cell = self.live.begin("time.sleep(600)")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerFailed, match=f"worker:{victim} killed by SIGKILL"):
            self.live.check(self.finished(cell), "cell")
        with pytest.raises(MwmagicError):
            self.live.run("1")
        self.open()


@pytest.mark.timeout(600)
def test_whatever_happens_cells_end_and_lines_are_kept(tmp_path, nothing_survives):
    with Cluster(TASKS, directory=tmp_path, warm=False, grace=1.0) as cluster:
        chaos = Chaos(cluster, random.Random(17))
        steps = [chaos.prints, chaos.raises, chaos.is_interrupted, chaos.queues]
        rare = [chaos.is_reset, chaos.is_killed]
        for _ in range(CELLS):
            chaos.dice.choice(rare if chaos.dice.random() < 0.05 else steps)()
