"""What a run tells of its end, on machines that are made up."""

from __future__ import annotations

import asyncio

import pytest
from fakes import FakeEngine, FakeMachine

from mwmagic.model.findings import Stall
from mwmagic.model.messages import Launch, Start
from mwmagic.model.options import ClusterOptions
from mwmagic.model.status import RunState
from mwmagic.record import Record, RunDirectory
from mwmagic.supervisor import run as module
from mwmagic.supervisor.pool import MachinePool
from mwmagic.supervisor.program import TaskProgram
from mwmagic.supervisor.run import ActiveRun


class Scene:
    """A run on a fake machine, and what its record held each time that it called itself over."""

    def __init__(self, root, script):
        self.over = asyncio.Event()
        self.endings = []
        options = ClusterOptions(2, name="c", directory=str(root))
        start = Start(options, env={}, warm=False)
        engine = FakeEngine([FakeMachine("a")], script)
        self.pool = MachinePool(start, self._take, lambda loss: None, lambda: None, engine)
        self.directory = RunDirectory.create(root, "main")
        self._start = start

    async def __aenter__(self):
        await self.pool.open()
        source = self.directory.save_source("main.py", None, "")
        program = TaskProgram(Launch("main.py", cwd="/"), source)
        self.run = ActiveRun(self.directory, self.pool, self._start, self._changed, program)
        for task in self._start.options.members:
            self.run.launch({task: program})
        return self

    async def __aexit__(self, *_):
        await self.pool.close()

    def _take(self, event):
        if "process" in event:
            self.run.on_event(event)

    def _changed(self):
        if self.run.over:
            self.run.write()
            events = [event["event"] for event in Record(self.directory.path, 1).events()]
            self.endings.append((self.run.status(), events))
            self.over.set()


def told(root, script, before):
    """Return what the first word of a run's end holds; `before` happens while it goes."""

    async def scene():
        async with Scene(root, script) as one:
            before(one.run)
            await asyncio.wait_for(one.over.wait(), 10)
            return one.endings[0]

    return asyncio.run(scene())


async def fail(worker):
    return 3


async def finish(worker):
    return 0


def stall(run):
    run._stalls._examiner.stall = Stall(seconds=9.0)


def test_a_stalled_run_that_ends_is_over_with_its_cause(tmp_path):
    status, events = told(tmp_path, fail, stall)
    assert status.state is RunState.FAILED
    assert status.cause is not None
    assert status.ended is not None
    assert events.index("resumed") < events.index("ended")


def test_a_fault_met_at_the_end_is_reported_with_the_end(tmp_path, monkeypatch):
    def faulty(seen):
        raise ValueError("a parser's fault")

    monkeypatch.setattr(module, "remarks", faulty)
    status, events = told(tmp_path, fail, lambda run: None)
    assert [fault.parser for fault in status.faults] == ["remarks"]
    assert status.cause is not None
    assert events.index("fault") < events.index("ended")


@pytest.mark.parametrize("stalled", [False, True])
def test_a_run_that_finishes_is_over_once_its_end_is_recorded(tmp_path, stalled):
    status, events = told(tmp_path, finish, stall if stalled else lambda run: None)
    assert status.state is RunState.FINISHED
    assert "ended" in events
