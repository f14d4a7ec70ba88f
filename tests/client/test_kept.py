"""Programs whose processes stay, and what programs ask, through the Python interface."""

from __future__ import annotations

import pytest

from mwmagic import Cluster
from mwmagic.client.live.cell import InputPrompts
from mwmagic.errors import (
    BadArguments,
    ClusterError,
    NoRun,
    RunActive,
    RunStopped,
    SupervisorError,
    WorkerFailed,
)
from mwmagic.model.status import RunState
from mwmagic.record import Record

pytestmark = pytest.mark.slow

RANK = "import os; rank = int(os.environ['MWMAGIC_TASK'][-1])\n"
RAISES = (
    RANK
    + """
def share(x):
    half = x / 2
    if rank:
        raise ValueError("bad batch")
    return half

found = share(7)
"""
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    with Cluster(2, directory=folder, warm=False, grace=1.0) as cluster:
        yield cluster


@pytest.fixture
def run(cluster):
    """Run a program, and let go of it after the test."""

    def run(source, **options):
        return cluster.run("main.py", source=source, cwd=cluster.options.root, **options)

    yield run
    if cluster.latest is not None:
        cluster.latest.stop(grace=0)


def texts(answers):
    return {task: answer.value.get("text/plain") for task, answer in answers.items()}


def answer(run, *lines):
    """Answer what a run's tasks ask, in turn, until it is over; return who asked what."""
    asked, left = [], list(lines)
    while not run.status().settled:
        run.stirred_within(60)
        for task, question in run.status().asks.items():
            asked.append((task, question.prompt, question.debugger))
            run.reply(task, left.pop(0))
    return asked


def test_what_a_program_leaves_stays_and_what_it_raised_can_be_debugged(cluster, run):
    one = run(RAISES, keep=True)
    with pytest.raises(WorkerFailed, match="ValueError: bad batch") as caught:
        one.wait(120)
    assert caught.value.cause.where.line == 6
    status = one.status()
    assert (status.state, status.outcome) == (RunState.KEPT, RunState.FAILED)
    assert status.tasks["worker:1"].raised.type == "ValueError"
    live = cluster.live()
    assert texts(live.run("rank, globals().get('found')")) == {
        "worker:0": "(0, 3.5)",
        "worker:1": "(1, None)",
    }
    lines = iter(["print('half is', half)", "q"])
    live.run("import pdb; pdb.pm()", [1], ask=lambda *_: next(lines))
    assert b"half is 3.5" in one.logs(1)
    one.stop()
    assert one.state == "failed", "what it ended with stays its result"
    kept = Record(one.directory, one.number)
    assert kept.status.cause.exception == "ValueError: bad batch"
    assert [e["failed"] for e in kept.events() if e["event"] == "kept"] == [True]


def test_a_program_that_ends_well_stays_and_the_next_that_stays_replaces_it(cluster, run):
    first = run("x = 1", keep=True).wait(120)
    assert (first.kept, first.over) == (True, False)
    with pytest.raises(RunActive, match="its processes stay with their variables"):
        run("x = 2")
    assert texts(cluster.live().run("x", tasks=[0])) == {"worker:0": "1"}
    with pytest.raises(RunActive, match="`%mw_restart` runs that again"):
        cluster.live().reset()
    second = run("x = 2", keep=True).wait(120)
    assert first.state == "finished"
    assert texts(cluster.live().run("x", tasks=[0])) == {"worker:0": "2"}
    cluster.live().run("x = 3")
    cluster.restart().wait(120)
    assert second.number == cluster.latest.number
    assert set(texts(cluster.live().run("x")).values()) == {"2"}


@pytest.mark.parametrize("exits", ["exit()", "exit(0)", "exit(3)", "exit('bye')"])
def test_a_program_that_exits_stays(cluster, run, exits):
    one = run(f"x = 5\nimport sys\nsys.{exits}", keep=True)
    one.stirred_within(60)
    assert one.status().result is (
        RunState.FAILED if "3" in exits or "bye" in exits else RunState.FINISHED
    )
    assert set(texts(cluster.live().run("x")).values()) == {"5"}


@pytest.mark.parametrize(
    ("when", "end", "told"),
    [
        ("program", "os.kill(os.getpid(), 9)", "worker:1 killed by SIGKILL"),
        ("program", "os._exit(0)", "worker:1 exited with code 0"),
        ("cell", "os.kill(os.getpid(), 9)", "worker:1 killed by SIGKILL"),
        ("cell", "os._exit(0)", "worker:1 exited with code 0"),
    ],
)
def test_a_process_that_dies_ends_it_with_the_diagnosis(cluster, run, when, end, told):
    source = RANK + (f"if rank: {end}" if when == "program" else "raise ValueError(rank)")
    one = run(source, keep=True)
    with pytest.raises(WorkerFailed):
        one.wait(120)
    if when == "cell":
        assert one.kept
        with pytest.raises(WorkerFailed, match=told):
            cluster.live().run(end, tasks=[1])
    assert one.state == "failed"
    with pytest.raises(WorkerFailed, match=told):
        one.wait(120)


def test_what_cannot_be_kept_is_refused(cluster, run):
    with pytest.raises(BadArguments, match="restarts end the processes"):
        run("pass", keep=True, restarts=1)
    run("pass", keep=True, task=0)
    with pytest.raises(ClusterError, match="its first launch had --keep"):
        run("pass", task=1)


def test_a_program_asks_and_is_answered(run):
    source = RANK + "if rank:\n    name = input('name? ')\n    breakpoint()\n    print('got', name)"
    one = run(source, answered=True)
    asked = answer(one, "Ada", "name = name.upper()", "c")
    assert asked == [
        ("worker:1", "name? ", False),
        ("worker:1", "(Pdb) ", True),
        ("worker:1", "(Pdb) ", True),
    ]
    assert b"got ADA" in one.logs(1)
    assert one.wait().state == "finished"
    with pytest.raises((SupervisorError, NoRun), match=r"worker:1 asks nothing|nothing is running"):
        one.reply(1, "too late")


@pytest.mark.parametrize(
    ("source", "known"), [("input()", "input"), ("breakpoint()\n1", "debugger")]
)
@pytest.mark.parametrize("answered", [True, False])
def test_a_program_that_no_one_answers_fails_at_once(run, source, known, answered):
    one = run(source, answered=answered)
    if answered:
        asking = InputPrompts(print, one.reply)  # the first one's failure may end the other
        while not one.status().settled:
            asking.refuse(one.status().asks)
            one.stirred_within(60)
    with pytest.raises(WorkerFailed) as caught:
        one.wait(120)
    assert caught.value.cause.known == known


def test_an_answer_to_a_run_that_is_over_is_dropped(run):
    one = run("input()", answered=True)
    assert one.stirred_within(60)
    asks = one.status().asks
    one.stop()
    prompts = InputPrompts(print, one.reply)
    prompts.refuse(asks)
    with pytest.raises(RunStopped):
        one.wait()


def test_a_program_that_waits_for_an_answer_is_not_stalled(tmp_path):
    with Cluster(1, directory=tmp_path, warm=False, stall_timeout=1) as cluster:
        one = cluster.run("main.py", source="input()", cwd=tmp_path, answered=True)
        one.stirred_within(60)
        assert not one.ended_within(3.5)
        assert one.status().stall is None
        one.reply(0, "go on")
        assert one.wait(120).state == "finished"


def test_a_child_does_not_ask(run):
    source = """
import os
child = os.fork()
if not child:
    try:
        input("child? ")
    except EOFError:
        os._exit(7)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    one = run(source, answered=True)
    assert answer(one) == []
    assert b"child 7" in one.logs(0)


def test_a_default_timeout_of_the_programs_sockets_does_not_end_its_processes(cluster, run):
    run("import socket; socket.setdefaulttimeout(0.01)", keep=True).wait(120)
    found = cluster.live().run("import time; time.sleep(0.1); socket.getdefaulttimeout()")
    assert set(texts(found).values()) == {"0.01"}
