"""Where the tasks of a run are, and what is reported of a stall."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from mwmagic.logs import Guard
from mwmagic.model.findings import Examination, Position, Whereabouts
from mwmagic.supervisor.stalls import Dump, Examiner

SLEEPING = """Current thread 0x00007f3c36082b80 (most recent call first):
  File "/home/me/data.py", line 7 in load
  File "/home/me/main.py", line 12 in <module>
  File "/home/me/src/mwmagic/worker/bootstrap.py", line 186 in _execute
  File "/home/me/src/mwmagic/agent/fork_server/zygote.py", line 219 in <module>
"""


def unexpected(fault):
    raise AssertionError(str(fault))


class FakeRun:
    """A run whose processes write their stacks at once, or fail to."""

    def __init__(self, folder, trains=("worker:0", "worker:1"), others=()):
        self.stalls, self.found, self.errors = [], [], []
        self.broken = False
        self.resumptions = 0
        self.trains = trains
        self.processes = []
        for task in (*others, *trains):
            path = folder / f"{task}.stacks"
            path.touch()
            paths = SimpleNamespace(stacks=path)
            process = SimpleNamespace(
                task=task, usage={}, paths=paths, no_stack=None, script="main.py"
            )
            self.processes.append(process)

    def alive(self):
        return self.processes

    def peers(self):
        return list(self.trains)

    async def apart(self):
        return None

    async def refresh(self, process):
        pass

    def dump(self, process):
        if self.broken:
            raise OSError("the agent is gone")
        process.paths.stacks.write_text(SLEEPING)

    def seen(self, found):
        return []

    def located(self, found):
        self.found.append(found)

    def unexamined(self, error):
        self.errors.append(str(error))

    def stalled(self, stall):
        self.stalls.append(stall)

    def resumed(self):
        self.resumptions += 1


def idle(examiner, run, since=0):
    """Let the tasks do nothing for 20 seconds, and what that sets off come to its end."""

    async def judge():
        for time in range(since, since + 20):
            for process in run.processes:
                examiner.watchdog.seen(process.task, time=time, size=0, cpu=0.0)
            examiner.judge(float(time), running=True)
            if examiner._busy is not None:
                await examiner._busy

    asyncio.run(judge())


def test_a_stall_is_reported_once_with_where_each_task_is(tmp_path):
    run = FakeRun(tmp_path)
    examiner = Examiner(run, run, 5.0, Guard(unexpected))
    idle(examiner, run)
    [stall] = run.stalls
    at = [Position(task, Whereabouts.IN_USER_CODE, "data.py:7 in load") for task in run.trains]
    assert (stall.seconds, stall.guilty, stall.positions) == (5.0, "worker:0", tuple(at))
    assert examiner.stall is stall
    texts = dict.fromkeys(run.trains, SLEEPING)
    assert run.found == [Examination(tuple(at), texts)]
    assert (examiner.times, run.errors) == (1, [])


def test_progress_ends_a_stall_and_the_next_one_is_reported_too(tmp_path):
    run = FakeRun(tmp_path)
    examiner = Examiner(run, run, 5.0, Guard(unexpected))
    idle(examiner, run)
    examiner.watchdog.seen("worker:0", time=20.0, size=9, cpu=0.0)
    examiner.judge(20.0, running=True)
    assert (examiner.stall, run.resumptions) == (None, 1)
    idle(examiner, run, since=21)
    assert (len(run.stalls), run.resumptions) == (2, 1)


def test_a_stall_that_ends_while_it_is_looked_into_is_not_reported(tmp_path):
    run = FakeRun(tmp_path)
    examiner = Examiner(run, run, 5.0, Guard(unexpected))

    async def resume():
        for process in run.processes:
            examiner.watchdog.seen(process.task, time=0.0, size=0, cpu=0.0)
        examiner.judge(6.0, running=True)
        examiner.judge(7.0, running=False)
        await examiner._busy

    asyncio.run(resume())
    assert (len(run.found), run.stalls, examiner.stall, run.resumptions) == (1, [], None, 0)


def test_a_stall_is_reported_also_where_the_tasks_cannot_be_examined(tmp_path):
    run = FakeRun(tmp_path)
    run.broken = True
    examiner = Examiner(run, run, 5.0, Guard(unexpected))
    idle(examiner, run)
    [stall] = run.stalls
    assert stall.guilty == "worker:0"
    assert {one.whereabouts for one in stall.positions} == set()
    assert run.errors == ["the agent is gone"]
    run.broken = False
    examiner.judge(0.0, running=False)
    idle(examiner, run)
    assert len(run.stalls) == 2, "an error does not end the watch for stalls"
    assert run.stalls[1].positions


def test_a_stall_is_reported_also_where_it_cannot_be_explained(tmp_path):
    run, faults = FakeRun(tmp_path), []
    run.seen = lambda found: 1 / 0
    examiner = Examiner(run, run, 5.0, Guard(faults.append))
    idle(examiner, run)
    [stall] = run.stalls
    assert (stall.guilty, stall.why) == ("worker:0", None)
    assert (examiner.times, len(faults)) == (1, 1)


def test_a_task_that_does_not_train_is_not_guilty_of_a_stall(tmp_path):
    run = FakeRun(tmp_path, others=("evaluator:0",))
    examiner = Examiner(run, run, 5.0, Guard(unexpected))
    idle(examiner, run)
    [stall] = run.stalls
    assert [one.task for one in stall.positions] == ["evaluator:0", "worker:0", "worker:1"]
    assert stall.guilty == "worker:0"


def test_a_run_that_is_not_running_is_not_stalled(tmp_path):
    run = FakeRun(tmp_path)
    examiner = Examiner(run, run, 5.0, Guard(unexpected))
    examiner.watchdog.seen("worker:0", time=0.0, size=0, cpu=0.0)
    examiner.judge(100.0, running=False)
    assert (examiner.stall, run.stalls) == (None, [])


def test_a_task_that_cannot_be_asked_is_not_waited_for_and_says_why(tmp_path):
    run = FakeRun(tmp_path)
    new, _ = run.processes
    new.paths.stacks.unlink()
    run.dump = lambda process: setattr(process, "no_stack", Whereabouts.NO_HANDLER)
    examiner = Examiner(run, run, 5.0, Guard(unexpected))
    idle(examiner, run)
    [stall] = run.stalls
    assert [one.whereabouts for one in stall.positions] == [
        Whereabouts.NOT_BEGUN,
        Whereabouts.NO_HANDLER,
    ]


def test_a_dump_is_complete_when_it_grows_no_more(tmp_path):
    path = tmp_path / "worker-0.stacks"
    path.write_text("an earlier dump\n")
    dump = Dump(path)
    assert not dump.complete()
    assert dump.stack() is None
    with path.open("a") as file:
        file.write(SLEEPING)
    assert not dump.complete(), "it may still grow"
    assert dump.complete()
    assert dump.stack().at == "data.py:7 in load"
