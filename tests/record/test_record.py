"""The record of a run, as it is written, torn, and read back."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import stat
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from textwrap import dedent

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mwmagic import Cluster, Task, runs
from mwmagic.errors import ClusterError, MwmagicError, NoRun
from mwmagic.model.findings import Examination, Position, Whereabouts
from mwmagic.record import FORMAT_VERSION, Record, RunDirectory

WORKER = Task("worker", 0)
PARTS = ("format", "state", "tasks", "supervisor", "pid", "started", "lines", "texts", "worker:0")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(PARTS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(PARTS) | st.text(max_size=3), inner, max_size=5)
    ),
)


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path, "main")


def read_back(run):
    return Record(run.path, run.number)


def test_directories_are_numbered_named_and_private(tmp_path):
    names = ["main", "a b/ü", "...", "", "x" * 300]
    made = [RunDirectory.create(tmp_path, name) for name in names]
    assert [run.path.name for run in made] == [
        "0001-main",
        "0002-a-b",
        "0003-run",
        "0004-run",
        f"0005-{'x' * 64}",
    ]
    assert [record.number for record in runs(tmp_path)] == [1, 2, 3, 4, 5]
    assert runs(tmp_path)[1].name == "a-b"
    for path in (tmp_path / ".mwmagic/runs", made[0].path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert (tmp_path / ".mwmagic/.gitignore").read_text() == "*\n"


def test_numbers_go_on_after_the_last_and_past_9999(tmp_path):
    runs_folder = tmp_path / ".mwmagic/runs"
    (runs_folder / "9999-main").mkdir(parents=True)
    (runs_folder / "0007-main").mkdir()
    (runs_folder / "notes").mkdir()
    (runs_folder / "12-short").mkdir()
    assert RunDirectory.create(tmp_path, "main").path.name == "10000-main"
    assert [record.number for record in runs(tmp_path)] == [7, 9999, 10000]
    assert [record.number for record in runs(tmp_path)] == [7, 9999, 10000]


def test_where_nothing_ran_there_are_no_records(tmp_path):
    assert runs(tmp_path) == []
    assert runs(tmp_path / "nowhere") == []


@pytest.mark.slow
def test_eight_runs_created_at_once_get_different_numbers(tmp_path):
    with ProcessPoolExecutor(8, mp_context=get_context("fork")) as pool:
        made = pool.map(create, [tmp_path] * 80)
        assert sorted(made) == list(range(1, 81))


def create(root):
    return RunDirectory.create(root, "main").number


def test_sources_are_kept_byte_for_byte(run):
    text = b"\xef\xbb\xbf# coding: latin-1\r\n\xe9\xff".decode("utf-8", "surrogateescape")
    path = run.save_source("some/where/train.py", None, text)
    assert path == run.path / "train.py"
    assert path.read_bytes() == b"\xef\xbb\xbf# coding: latin-1\r\n\xe9\xff"
    assert run.save_source("train.py", Task("ps", 3), "").name == "train.ps-3.py"
    assert run.save_source("train", None, "").name == "train.py"
    again = RunDirectory(run.path.parent / "again", 2)
    again.path.mkdir()
    assert again.copy_source(path).read_bytes() == path.read_bytes()
    assert again.copy_source(path).parent == again.path


def test_what_is_written_is_read_back(run):
    own = psutil.Process()
    supervisor = {"pid": own.pid, "started": own.create_time()}
    run.write({"state": "running", "tasks": {"worker:0": {}}, "supervisor": supervisor})
    run.flush()
    run.event("began", task="worker:0")
    run.event("ended", text="ü\udcff\n")
    run.metric(task="worker:0", attempt=1, step=1, metrics={"loss": 0.5})
    log = run.task(WORKER, 2).log
    log.write_bytes(b"\xff\r\n")
    run.task(WORKER, 1)
    record = read_back(run)
    assert record.info["state"] == record.state == "running"
    assert record.tasks == (WORKER,)
    assert [(event["event"], event.get("text")) for event in record.events()] == [
        ("began", None),
        ("ended", "ü\udcff\n"),
    ]
    assert record.events()[0]["wall"] == pytest.approx(time.time(), abs=60)
    assert record.events()[0]["time"] == pytest.approx(time.monotonic(), abs=60)
    assert [entry["step"] for entry in record.metrics()] == [1]
    assert record.attempts == 2
    assert record.log(0) == record.log("worker:0", 2) == b"\xff\r\n"
    assert record.log_path(WORKER) == log
    assert not list(run.path.glob(".*"))


def test_a_log_that_is_not_there_is_said_to_be(run):
    run.write({"state": "failed", "tasks": {"worker:0": {}, "worker:1": {}}})
    run.flush()
    run.task(WORKER, 1).log.touch()
    record = read_back(run)
    assert record.log(0) == b""
    with pytest.raises(NoRun, match="worker:1 has no log: it was not started"):
        record.log(1)
    with pytest.raises(NoRun, match="worker:0 has no log in attempt 7 of 1"):
        record.log(0, 7)
    with pytest.raises(ClusterError, match="worker:0"):
        record.log("ps")


def test_stacks_that_were_not_collected_are_reported_missing(run):
    run.write({"state": "finished"})
    run.flush()
    with pytest.raises(NoRun, match="no stacks of run 1"):
        read_back(run).stacks()
    found = Examination((Position("worker:0", Whereabouts.IN_USER_CODE, "main.py:1 in f"),), {})
    run.save_stacks(found)
    assert read_back(run).stacks() == found


@pytest.mark.parametrize("text", [None, "", "{", "[1]", '{"state": "run', "\0\0\0"])
def test_a_state_that_cannot_be_read_is_lost(run, text):
    if text is not None:
        (run.path / "run.json").write_text(text)
    record = read_back(run)
    assert (record.info, record.state, record.tasks) == ({}, "lost", ())


@pytest.mark.parametrize(
    ("supervisor", "state"),
    [
        ({}, "lost"),
        ({"pid": -1}, "lost"),
        ({"pid": 2**22 + 1, "started": 0.0}, "lost"),
        ({"pid": os.getpid(), "started": 0.0}, "lost"),  # its number is another's now
    ],
)
def test_a_run_without_its_supervisor_is_lost_unless_it_ended(run, supervisor, state):
    run.write({"state": "running", "supervisor": supervisor})
    run.flush()
    assert read_back(run).state == state
    run.write({"state": "finished", "supervisor": supervisor})
    run.flush()
    assert read_back(run).state == "finished"


@pytest.mark.parametrize(
    "info",
    [
        {"format": 99, "state": ["odd"], "tasks": {"worker:0": {}, "": {}, "who?": 3}},
        {"format": "x", "state": "running", "tasks": ["worker:0"], "supervisor": ["pid"]},
        {"state": "running", "tasks": None, "supervisor": {"pid": "x", "started": None}},
        {"state": "running", "supervisor": {"pid": 10**400, "started": "soon"}},
        {"state": "finished", "tasks": {"worker:0": None}},
    ],
)
def test_a_state_of_another_version_or_none_is_read_as_far_as_it_goes(run, info):
    (run.path / "run.json").write_text(json.dumps(info))
    record = read_back(run)
    assert record.info == info
    assert record.state == ("finished" if info["state"] == "finished" else "lost")
    assert all(task == WORKER for task in record.tasks)


@given(st.binary(max_size=300) | st.builds(lambda value: json.dumps(value).encode(), JSON))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_file_makes_the_reader_raise(run, data):
    for path in (run.paths.state, run.paths.events, run.paths.metrics, run.paths.stacks):
        path.write_bytes(data)
    record = read_back(run)
    assert (record.name, record.number, record.attempts) == ("main", 1, 0)
    assert isinstance(record.info, dict)
    assert isinstance(record.state, str)
    assert all(isinstance(task, Task) for task in record.tasks)
    assert all(isinstance(entry, dict) for entry in [*record.events(), *record.metrics()])
    with suppress(NoRun):
        assert isinstance(record.stacks(), Examination)


def test_the_state_names_its_format_and_is_json_whatever_a_worker_prints(run):
    odd = {"loss": float("nan"), "text": "\udcff", "more": [float("inf"), (1.5,)]}
    run.write({"state": "running", "tasks": {"worker:0": odd}})
    run.flush()
    data = run.paths.state.read_bytes()
    info = json.loads(data, parse_constant=pytest.fail)
    assert info["format"] == FORMAT_VERSION
    assert info["tasks"]["worker:0"] == {
        "loss": "NaN",
        "text": "\udcff",
        "more": ["Infinity", [1.5]],
    }


def test_every_file_is_private(tmp_path):
    mask = os.umask(0)
    try:
        run = RunDirectory.create(tmp_path, "main")
        copied = run.save_source("main.py", None, "code")
        run.copy_source(copied)
        run.task(WORKER, 1)
        run.write({"state": "running"})
        run.flush()
        run.event("one")
        run.metric(step=1)
        run.save_stacks(Examination())
    finally:
        os.umask(mask)
    for path in [tmp_path / ".mwmagic", *(tmp_path / ".mwmagic").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_torn_and_foreign_lines_are_left_out(run):
    run.event("one")
    with (run.path / "events.jsonl").open("ab") as file:
        file.write(b"\n[1]\nnull\n\xff\n" + b'{"event": "torn", "ti')
    assert [event["event"] for event in read_back(run).events()] == ["one"]
    assert read_back(run).metrics() == []


def test_a_record_that_cannot_be_written_is_noted_and_raises_nothing(run):
    shutil.rmtree(run.path)
    run.path.write_text("a file, where the folder was")
    run.write({})
    run.flush()
    run.event("x")
    run.metric(x=1)
    run.task(WORKER, 1)
    run.save_stacks(Examination())
    assert "Not a directory" in run.trouble
    with pytest.raises(NotADirectoryError):
        run.save_source("main.py", None, "code")


def test_a_state_that_cannot_be_put_in_place_leaves_no_draft(run):
    (run.path / "run.json").mkdir()
    run.write({"state": "running"})
    run.flush()
    assert "Is a directory" in run.trouble
    assert [path.name for path in run.path.iterdir()] == ["run.json"]


BUSY = """
import os, sys, time
if os.environ["MWMAGIC_TASK"] == "worker:1" and os.environ["MWMAGIC_ATTEMPT"] != "9":
    time.sleep(0.05)
    sys.exit(1)
for step in range(10**9):
    print(f"epoch {step} loss: {1 / (step + 1):.4f}", flush=True)
"""


@pytest.mark.slow
def test_a_crash_at_any_instant_leaves_a_readable_record(tmp_path, monkeypatch, nothing_survives):
    monkeypatch.chdir(tmp_path)
    moments = random.Random(7)
    for number in range(1, 9):
        cluster = Cluster(2, warm=False, restarts=99)
        with suppress(MwmagicError):
            cluster.run("main.py", source=dedent(BUSY))
            time.sleep(moments.uniform(0, 0.25))
        os.kill(cluster._process.pid, signal.SIGKILL)
        cluster.close()
        [*_, record] = runs(tmp_path)
        assert record.number == number
        assert record.state == "lost"
        assert record.info["state"] in {"forming", "running", "ending", "backoff"}
        whole(record.path / "events.jsonl")
        whole(record.path / "metrics.jsonl")
        assert record.events()[0]["event"] == "created"
        assert record.tasks == (Task("worker", 0), Task("worker", 1))


def whole(path):
    """Hold a file to what appending line by line leaves: only the last may be torn."""
    lines = path.read_bytes().split(b"\n") if path.exists() else [b""]
    for line in lines[:-1]:
        json.loads(line)


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_the_last_state_is_written_where_space_was_kept_for_it(tmp_path, monkeypatch):
    directory = RunDirectory.create(tmp_path, "main")
    directory.write({"state": "running", "more": "x" * 9000})
    directory.flush()
    kept = directory.paths.reserve.stat().st_size
    monkeypatch.setattr("mwmagic.record.writer.replace", full)
    directory.end()
    assert 0 < directory.paths.reserve.stat().st_size < kept
    directory.write({"state": "finished"})
    directory.flush()
    assert json.loads(directory.paths.state.read_text())["state"] == "finished"
    assert not directory.paths.reserve.exists()
    assert directory.trouble is None


def test_a_run_that_ends_at_once_keeps_no_space(tmp_path):
    directory = RunDirectory.create(tmp_path, "main")
    directory.end()
    directory.write({"state": "finished"})
    directory.flush()
    assert directory.trouble is None
    assert not directory.paths.reserve.exists()
