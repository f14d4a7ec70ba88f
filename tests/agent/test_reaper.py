"""When the agent looks for what workers left."""

from __future__ import annotations

import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import running
from speaker import state

from mwmagic.agent.family import (
    AWAITED_RESCAN_SECONDS,
    FIRST_RESCAN_SECONDS,
    HELPER_SECONDS,
    LATER_RESCAN_SECONDS,
    Reaper,
    Row,
)
from mwmagic.agent.family import Family as Descendants


class Family:
    """The descendants that a scan finds, by their ids, with what each belongs to."""

    def __init__(self):
        self.owners, self.scans, self.killed = {}, 0, []

    def look(self):
        self.scans += 1
        return [SimpleNamespace(pid=pid, owner=owner) for pid, owner in self.owners.items()]

    def kill(self, rows, *, alone=False):
        self.killed += [row.pid for row in rows]


class Worker(SimpleNamespace):
    """A worker with its main process."""

    def __init__(self, pid):
        super().__init__(pid=pid, kill_requested=False, exit=None)

    exited_at = 0.0

    @property
    def dying(self):
        return self.kill_requested or self.exit is not None


class World:
    def __init__(self):
        self.family = Family()
        self.workers = {"a": Worker(1), "b": Worker(2)}
        self.family.owners = {1: "a", 2: "b"}
        self.reaper = Reaper(self.family, self.workers, SimpleNamespace(since=None))

    def kill(self, *names):
        for name in names:
            self.workers[name].kill_requested = True
        self.reaper.hurry()

    def exits(self, name):
        worker = self.workers[name]
        worker.exit = {"code": 0}
        del self.family.owners[worker.pid]
        self.reaper.ended(worker)

    def scans(self, now):
        """Return how many scans are made at a moment."""
        before = self.family.scans
        while self.reaper.rescan <= now:
            made = self.family.scans
            self.reaper.purge(now)
            if made == self.family.scans:
                break
        return self.family.scans - before


@pytest.fixture
def world():
    return World()


def test_what_one_worker_leaves_is_looked_for_twice_at_once(world):
    world.exits("a")
    world.reaper.purge(5.0)
    assert not world.reaper.cleared("a"), "one scan may miss what forks meanwhile"
    world.reaper.purge(5.0)
    assert world.reaper.cleared("a")
    assert world.family.killed == []


def test_a_descendant_is_killed_before_its_worker_is_cleared(world):
    world.family.owners[7] = "a"
    world.exits("a")
    world.reaper.purge(5.0)
    assert world.family.killed == [7]
    assert not world.reaper.cleared("a")
    assert world.reaper.rescan == 5.0 + FIRST_RESCAN_SECONDS
    del world.family.owners[7]
    assert world.scans(5.1) >= 2
    assert world.reaper.cleared("a")


def test_what_a_worker_leaves_has_a_moment_to_end_by_itself(world):
    world.family.owners[7] = "a"
    world.workers["a"].exited_at = 5.0
    world.exits("a")
    world.reaper.purge(5.0 + HELPER_SECONDS / 2)
    assert world.family.killed == []
    assert not world.reaper.cleared("a"), "it may still be at work"
    world.reaper.purge(5.0 + HELPER_SECONDS)
    assert world.family.killed == [7]


def test_what_a_killed_worker_leaves_has_its_moment_after_the_worker(world):
    world.family.owners[7] = "a"
    world.kill("a")
    world.reaper.purge(5.0)
    assert world.family.killed == [1]


def test_while_killed_workers_end_scans_are_rare_and_after_the_last_at_once(world):
    world.kill("a", "b")
    assert world.scans(5.0) == 1
    assert world.family.killed == [1, 2]
    world.exits("a")
    assert world.scans(5.0 + AWAITED_RESCAN_SECONDS / 2) == 0
    assert not world.reaper.cleared("a"), "what it left is not known yet"
    world.exits("b")
    assert world.scans(5.0 + AWAITED_RESCAN_SECONDS / 2) == 2
    assert world.reaper.cleared("a")
    assert world.reaper.cleared("b")


def test_one_that_ends_by_itself_does_not_wait_for_one_that_was_killed(world):
    world.kill("b")
    assert world.scans(5.0) == 1
    world.family.owners[7] = "a"
    world.exits("a")
    assert world.scans(5.0) == 1
    assert 7 in world.family.killed
    assert not world.reaper.cleared("a")
    del world.family.owners[7]
    assert world.scans(5.0 + AWAITED_RESCAN_SECONDS) == 1
    assert world.reaper.cleared("a"), "though the other has not ended"
    assert not world.reaper.cleared("b")


def test_scans_become_rare_while_a_killed_worker_does_not_end(world):
    world.kill("a")
    moments = []
    while len(moments) < 12:
        world.reaper.purge(world.reaper.rescan)
        moments.append(world.reaper.rescan)
    pauses = [round(after - before, 6) for before, after in pairwise(moments)]
    assert pauses == sorted(pauses)
    assert pauses[0] == AWAITED_RESCAN_SECONDS
    assert pauses[-1] == LATER_RESCAN_SECONDS


LEADS = "import os; os.setpgid(0, 0); print(flush=True); input()"
LEAVES = """
import os, sys
os.setpgid(0, int(sys.argv[1]))
print(flush=True)
input()
os.setsid()
print(flush=True)
input()
"""


def test_a_worker_that_just_left_the_zygotes_group_is_killed_without_the_zygote():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    python = [sys.executable, "-I", "-S", "-c"]
    with running([*python, LEADS], **pipes) as zygote:
        zygote.stdout.readline()
        with running([*python, LEAVES, str(zygote.pid)], **pipes) as worker:
            worker.stdout.readline()
            row = Row(worker.pid, Path(f"/proc/{worker.pid}/stat").read_bytes())
            worker.stdin.write("\n")
            worker.stdin.flush()
            worker.stdout.readline()
            Descendants().kill([row])
            assert worker.wait(120) == -signal.SIGKILL
        assert state(zygote.pid) == "S"
        zygote.stdin.write("\n")
        zygote.stdin.close()
        assert zygote.wait(120) == 0
