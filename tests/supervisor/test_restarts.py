"""Failures, restarts, stops and faults on purpose."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from textwrap import dedent

import pytest
from processes import alive, eventually

from mwmagic.errors import (
    ClusterError,
    FileTrouble,
    NoRun,
    RunActive,
    RunStopped,
    SupervisorError,
    WaitTimeout,
    WorkerFailed,
)
from mwmagic.model.status import Delay, GivenUp
from mwmagic.words.run import task_words, words

pytestmark = pytest.mark.slow

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP


def pids(run):
    """Wait until every task's process says that it is up."""
    tasks = run.status().tasks
    eventually(lambda: all(said(run, task) for task in tasks))
    return [task.pid for task in run.status().tasks.values()]


def said(run, task):
    return run.status().tasks[task].size > 0


def test_every_attempt_has_a_directory_and_knows_its_number(cluster):
    code = """
        import os, sys
        attempt = os.environ["MWMAGIC_ATTEMPT"]
        print("attempt", attempt, os.environ["MWMAGIC_TASK"], os.environ["TF_CONFIG"])
        if attempt != "3" and os.environ["MWMAGIC_TASK"] == "worker:1":
            raise OSError(attempt)
    """
    one = cluster(2, restarts=2)
    run = one.run("main.py", source=dedent(code)).wait(120)
    assert (run.status().attempt, run.status().restarts) == (3, 2)
    assert run.record.attempts == 3
    for attempt in (1, 2, 3):
        log = run.logs(1, attempt=attempt).decode()
        assert log.startswith(f"attempt {attempt} worker:1 ")
        assert one.tf_config(1) in log  # the ports are the same across restarts
    assert run.logs(1) == run.logs(1, attempt=3)
    report = json.loads((run.directory / "attempt-2/worker-1.json").read_text())
    assert (report["type"], report["message"]) == ("OSError", "2")
    assert run.cause is None


def test_the_restarts_come_to_an_end(cluster):
    one = cluster(1)
    run = one.run("main.py", source="raise OSError('again')", restarts=1)
    with pytest.raises(WorkerFailed, match="worker:0 exited with code 1: OSError: again") as failed:
        run.wait(120)
    assert "This was attempt 2: its restart had been used up" in str(failed.value)
    assert failed.value.run is run
    assert failed.value.cause.where.source == "raise OSError('again')"
    assert run.status().attempt == 2


def test_the_first_restart_comes_at_once_and_a_later_one_says_why_it_waits(cluster):
    seen = []
    run = cluster(1, restarts=2).run("main.py", source="raise OSError('again')")
    with pytest.raises(WorkerFailed):
        run.wait(120, progress=seen.append)
    [delayed, *_] = [status for status in seen if status.delay]
    assert (delayed.delay, delayed.attempt) == (Delay(0.5, "time"), 2)
    assert "in 0.5 s, because attempt 2 failed as soon as the one before" in words(delayed)
    assert run.status().given_up is GivenUp.RESTARTS
    events = map(json.loads, (run.directory / "events.jsonl").read_text().splitlines())
    delays = [event for event in events if event["event"] == "delay"]
    assert [(event["seconds"], event["by"]) for event in delays] == [(0.5, "time")]


PROGRESS = """
    import os, sys, time
    attempt = int(os.environ["MWMAGIC_ATTEMPT"])
    if os.environ["MWMAGIC_TASK"] != "worker:0":
        time.sleep(600)
    for step in range(steps[attempt - 1]):
        print("epoch 1 step", step, "loss 0.5", flush=True)
    sys.exit(1)
"""


def test_a_run_that_makes_no_progress_ends_and_one_that_does_goes_on(cluster):
    one = cluster(2, restarts=5)
    run = one.run("main.py", source="steps = 3, 4, 2, 4, 0\n" + dedent(PROGRESS))
    with pytest.raises(WorkerFailed, match="attempt 5: no progress: the last 3 attempts"):
        run.wait(120)
    status = run.status()
    assert (status.attempt, status.restarts, status.given_up) == (5, 4, GivenUp.PROGRESS)
    assert run.record.status.given_up is GivenUp.PROGRESS
    run = one.run("main.py", source="steps = 3, 4, 5, 6, 7, 8\n" + dedent(PROGRESS))
    with pytest.raises(WorkerFailed, match="all 5 restarts had been used up"):
        run.wait(120)
    assert run.status().given_up is GivenUp.RESTARTS


def test_a_mistake_in_the_code_is_not_tried_again(cluster):
    run = cluster(1, restarts=5).run("main.py", source="if True print()")
    with pytest.raises(WorkerFailed, match="SyntaxError") as failed:
        run.wait(120)
    assert run.status().attempt == 1
    assert "used up" not in str(failed.value)


def test_42_means_resume(cluster):
    code = """
        import os, sys, time
        time.sleep(0.01)
        sys.exit(42 if os.environ["MWMAGIC_ATTEMPT"] == "1" else 0)
    """
    run = cluster(2, restarts=1).run("main.py", source=dedent(code)).wait(120)
    assert run.status().attempt == 2


def test_why_the_others_run_on_after_42_is_reported(cluster):
    code = """
        import os, pathlib, sys, time
        print("up", flush=True)
        if os.environ["MWMAGIC_TASK"] == "worker:0":
            time.sleep(600)
        while not pathlib.Path("others-up").exists():
            time.sleep(0.01)
        sys.exit(42)
    """
    run = cluster(2).run("main.py", source=dedent(code))
    eventually(lambda: run.status().tasks["worker:0"].size)
    Path(run.cluster.options.directory, "others-up").touch()
    why = "ending: worker:1 exited with code 42, so the others may still save"
    eventually(lambda: run.words == why, lambda: run.words)


def test_one_failure_ends_everybody(cluster):
    code = """
        import os, time
        print(os.getpid(), flush=True)
        if os.environ["MWMAGIC_TASK"] == "worker:1":
            raise ValueError("mine")
        time.sleep(600)
    """
    run = cluster(3).run("main.py", source=dedent(code))
    with pytest.raises(WorkerFailed, match="worker:1 exited with code 1: ValueError: mine"):
        run.wait(120)
    tasks = run.status().tasks
    assert not [task for task in tasks.values() if task.pid and alive(task.pid)]
    assert (tasks["worker:0"].signal, tasks["worker:0"].ours) == (signal.SIGKILL, True)
    assert (tasks["worker:1"].code, tasks["worker:1"].ours) == (1, False)


def test_a_failure_reaches_the_others_before_the_process_has_ended(cluster, tmp_path):
    code = """
        import atexit, os, pathlib, time
        def leave():
            other = int(pathlib.Path("other").read_text())
            while pathlib.Path(f"/proc/{other}").exists():
                time.sleep(0.01)
            pathlib.Path("saved").touch()
        if os.environ["MWMAGIC_TASK"] == "worker:1":
            while not pathlib.Path("other").exists():
                time.sleep(0.01)
            atexit.register(leave)
            raise ValueError("mine")
        pathlib.Path("draft").write_text(str(os.getpid()))
        os.rename("draft", "other")
        time.sleep(600)
    """
    run = cluster(2).run("main.py", source=dedent(code))
    with pytest.raises(WorkerFailed, match="worker:1 exited with code 1: ValueError: mine"):
        run.wait(120)
    tasks = run.status().tasks
    assert task_words(tasks["worker:1"]) == "exited with code 1"
    assert (tasks["worker:0"].signal, tasks["worker:0"].ours) == (signal.SIGKILL, True)
    assert (tmp_path / "saved").exists()


@pytest.mark.parametrize("number", ["SIGKILL", "SIGSEGV"])
def test_what_a_task_raised_wins_over_the_signal_that_ended_it_afterwards(cluster, number):
    code = f"""
        import atexit, os, signal
        atexit.register(os.kill, os.getpid(), signal.{number})
        raise ValueError("mine")
    """
    run = cluster(1).run("main.py", source=dedent(code))
    with pytest.raises(WorkerFailed, match="worker:0 exited with code 1: ValueError: mine"):
        run.wait(120)
    assert task_words(run.status().tasks["worker:0"]) == "exited with code 1"


def test_temporary_files_of_a_task_that_was_killed_are_removed(cluster, tmp_path):
    code = """
        import os, pathlib, time
        from mwmagic.worker import this_task, write_path
        if this_task().index == 1:
            path = pathlib.Path(write_path("model.bin"))
            path.write_bytes(b"x")
            pathlib.Path("where").write_text(str(path))
            os.kill(os.getpid(), 9)
        time.sleep(600)
    """
    with pytest.raises(WorkerFailed):
        cluster(2).run("main.py", source=dedent(code)).wait(120)
    path = Path((tmp_path / "where").read_text())
    assert path.name == "model.bin"
    assert not [folder for folder in path.parents if folder.name.startswith("mwmagic-")][
        -1
    ].exists()


def test_a_stop_ends_a_program_that_is_over_and_whose_thread_runs_on(cluster):
    code = """
        import threading, time
        threading.Thread(target=time.sleep, args=[600]).start()
        raise ValueError("mine")
    """
    run = cluster(1).run("main.py", source=dedent(code))
    eventually(lambda: run.state == "ending", "the failure is known")
    run.stop(grace=0)
    assert run.status().cause.exception == "ValueError: mine"


def test_a_stop_gives_workers_time_to_save(cluster, tmp_path):
    code = """
        import pathlib, signal, sys, time
        def save(*_):
            pathlib.Path("saved").touch()
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        print("up", flush=True)
        time.sleep(600)
    """
    run = cluster(1).run("main.py", source=dedent(code))
    pids(run)
    run.stop()
    assert run.state == "stopped"
    assert (tmp_path / "saved").exists()
    with pytest.raises(RunStopped):
        run.wait()


def test_a_worker_that_ignores_sigterm_is_killed(cluster):
    run = cluster(2, grace=0.1).run("main.py", source=STUBBORN)
    family = pids(run)
    run.stop()
    assert run.state == "stopped"
    assert not [pid for pid in family if alive(pid)]
    assert run.status().tasks["worker:0"].signal == signal.SIGKILL


def test_a_stop_while_a_worker_starts(cluster):
    one = cluster(2)
    for number in (1, 2, 3):
        run = one.run("main.py", source=STUBBORN)
        run.stop(grace=0)
        assert (run.number, run.state) == (number, "stopped")


def test_a_stop_between_two_attempts(cluster):
    one = cluster(1, restarts=9)
    run = one.run("main.py", source="raise OSError")
    eventually(lambda: "restarting" in run.words, lambda: run.words)
    run.stop()
    assert run.state in ("stopped", "failed")
    assert one.run("main.py", source="print('next')").wait(120).number == 2


def test_stopping_what_is_over_does_nothing(cluster, monkeypatch):
    run = cluster(1).run("main.py", source="").wait(120)
    run.stop()
    with monkeypatch.context() as patch:
        patch.setattr(run, "_ended", lambda: False)  # as while it ends
        run.stop()
    assert run.state == "finished"
    with pytest.raises(NoRun, match="run 1 is over"):
        run.kill(0)


EVALUATE = """
import pathlib, time
from mwmagic.worker import this_task

if this_task().type == "worker":
    while not pathlib.Path("up").exists():
        time.sleep(0.01)
    raise SystemExit
pathlib.Path("up").touch()
while not pathlib.Path("training-is-done").exists():
    time.sleep(0.01)
print("evaluated")
time.sleep(600)
"""


def test_an_idle_evaluator_is_stopped_when_training_is_done(cluster, tmp_path):
    run = cluster(1, evaluator=True).run("main.py", source=EVALUATE)
    eventually(lambda: run.words == "ending: evaluator:0 still runs")
    (tmp_path / "training-is-done").touch()
    assert run.wait(120).state == "finished"
    assert run.logs("evaluator") == b"evaluated\n"
    assert task_words(run.status().tasks["evaluator:0"]) == "ended"


def test_one_task_is_stopped_alone_where_the_others_can_go_on(cluster):
    run = cluster(1, evaluator=True, grace=0.1).run("main.py", source=SLEEP)
    pids(run)
    run.stop("evaluator:0")
    tasks = run.status().tasks
    assert (tasks["evaluator:0"].state, tasks["worker:0"].state) == ("ended", "running")
    assert run.state == "running"
    with pytest.raises(ClusterError):
        run.stop(7)
    run.stop(0)
    assert run.state == "stopped"


def test_a_fault_on_purpose(cluster):
    one = cluster(2)
    run = one.run("main.py", source=SLEEP)
    pids(run)
    run.kill(1)
    with pytest.raises(WorkerFailed, match="worker:1 killed by SIGKILL"):
        run.wait(120)
    run = one.run("main.py", source=SLEEP)
    pids(run)
    run.kill("worker:0", signal.SIGUSR2)
    with pytest.raises(WorkerFailed, match="worker:0 killed by SIGUSR2"):
        run.wait(120)


def test_a_task_without_a_process_takes_no_signal(cluster):
    run = cluster(2).run("main.py", task=0, source=SLEEP)
    with pytest.raises(SupervisorError, match="worker:1 has no process"):
        run.kill(1)
    with pytest.raises(ClusterError, match="worker:9"):
        run.kill(9)


def test_a_gang_is_started_again_on_demand(cluster):
    one = cluster(2)
    with pytest.raises(NoRun, match="nothing ran"):
        one.restart()
    run = one.run("main.py", source=SLEEP)
    first = pids(run)
    assert one.restart().number == run.number
    eventually(lambda: run.status().attempt == 2)
    assert not set(pids(run)) & set(first)
    assert not [pid for pid in first if alive(pid)]
    assert run.status().restarts == 0


def test_what_is_being_stopped_is_not_started_again(cluster):
    one = cluster(1, grace=60)
    run = one.run("main.py", source=STUBBORN)
    pids(run)
    stopping = threading.Thread(target=run.stop, daemon=True)
    stopping.start()
    eventually(lambda: run.state == "ending")
    with pytest.raises(RunActive, match="run 1 is being stopped"):
        one.restart()
    run.kill(0)
    stopping.join(120)
    assert run.state == "stopped"


def test_a_run_that_is_over_starts_again_as_a_new_one(cluster, tmp_path):
    one = cluster(2)
    one.run("main.py", task=0, source="import sys; print(sys.argv, 'zero')", args=["a"])
    run = one.run("other.py", task=1, source="import os; print(os.environ['X'])", env={"X": "y"})
    run.wait(120)
    again = one.restart()
    assert again.number == 2
    again.wait(120)
    assert again.logs(0) == b"['main.py', 'a'] zero\n"
    assert again.logs(1) == b"y\n"
    assert sorted(path.name for path in again.directory.glob("*.py")) == [
        "main.worker-0.py",
        "other.worker-1.py",
    ]


def test_a_run_outlives_its_record(cluster, tmp_path):
    code = """
        import pathlib, time
        print("up", flush=True)
        while not pathlib.Path("go").exists():
            time.sleep(0.01)
    """
    one = cluster(2)
    run = one.run("main.py", source=dedent(code))
    pids(run)
    run.directory.rename(tmp_path / "away")
    with pytest.raises(WaitTimeout):
        run.wait(0.3)
    (tmp_path / "go").touch()
    assert run.wait(120).state == "finished"
    assert "its record is incomplete" in run.words
    assert one.run("main.py", source="print('next')").wait(120).logs(0) == b"next\n"


def test_a_directory_that_cannot_be_written_is_reported(cluster, tmp_path):
    one = cluster(1)
    (tmp_path / ".mwmagic").write_text("a file, where a folder should be")
    with pytest.raises(FileTrouble, match=r"cannot be recorded: .*\.mwmagic cannot be written"):
        one.run("main.py", source="")
    (tmp_path / ".mwmagic").unlink()
    assert one.run("main.py", source="").wait(120).number == 1


def test_snapshots_reach_a_client_that_listens(cluster):
    one = cluster(1)
    seen = []
    stop = one._connection.listen(lambda news: seen.append(news["run"] and news["run"]["state"]))
    run = one.run("main.py", source="print('x')").wait(120)
    eventually(lambda: seen and seen[-1] == "finished")
    stop()
    one._connection.request("snapshot")  # what has come before it was passed on
    count = len(seen)
    one.run("main.py", source="").wait(120)
    assert len(seen) == count
    progressed = []
    one.run("main.py", source="").wait(120, progress=progressed.append)
    assert progressed[-1].state == "finished"
    assert run.status().state == "finished"  # though the news are of a later run


def test_a_cluster_that_is_busy_keeps_its_run(cluster):
    one = cluster(1)
    run = one.run("main.py", source=SLEEP)
    with pytest.raises(RunActive):
        one.run("main.py", source=SLEEP)
    pids(run)
    assert one.latest.number == run.number
