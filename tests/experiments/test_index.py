"""The index beside the runs, which may be stale, damaged, missing or written by two at once."""

from __future__ import annotations

import json
import os
import time
from multiprocessing import get_context

import pytest
from test_runs import record

import mwmagic
from mwmagic.experiments import runs as facts
from mwmagic.experiments.runs import facts_of, indexed
from mwmagic.record import RunDirectory, runs
from mwmagic.record.reader import annotate


def age(folder):
    """Have all records look as if nothing had changed for a minute."""
    for one in runs(folder):
        os.utime(one.path, (time.time() - 60,) * 2)


@pytest.fixture
def reads(monkeypatch):
    """Return the numbers of the runs whose records are read."""
    seen = []
    real = facts.facts_of
    monkeypatch.setattr(facts, "facts_of", lambda one: seen.append(one.number) or real(one))
    return seen


@pytest.fixture
def folder(tmp_path):
    record(tmp_path, 64, loss=(0.2, 0.1))
    record(tmp_path, "(1, 2)", val_loss=(0.31, 0.3))
    record(tmp_path, 32, state="running")
    age(tmp_path)
    return tmp_path


def files(folder):
    return sorted((folder / ".mwmagic/runs/index").glob("*"))


def test_runs_that_are_over_are_read_once(folder, reads):
    first = indexed(runs(folder))
    assert reads == [1, 2, 3]
    assert indexed(runs(folder)) == first == [facts_of(one) for one in runs(folder)]
    assert reads == [1, 2, 3, 3], "a run that may go on is always read"
    assert [oct(one.stat().st_mode & 0o777) for one in files(folder)] == ["0o600"]


def test_a_change_is_seen(folder, reads):
    indexed(runs(folder))
    reads.clear()
    annotate(runs(folder)[0], note="warm-up", add=["baseline"])
    assert indexed(runs(folder))[0].tags == ("baseline",)
    (folder / ".mwmagic/runs/0002-main/run.json").unlink()
    assert indexed(runs(folder))[1].state == "lost"
    assert reads == [1, 3, 1, 2, 3], "what has just changed may change again at the same time"


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.unlink(),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(file.read_bytes()[:-20]),
        lambda file: file.write_bytes(file.read_bytes().replace(b"finished", b"finis\xff\xfed")),
        lambda file: file.write_bytes(file.read_bytes().replace(b'"0.1.0"', b'"9.9.9"')),
        lambda file: file.write_bytes(json.dumps({"0001-main": [1]}).encode()),
    ],
)
def test_a_damaged_or_foreign_index_is_made_anew(folder, reads, damage):
    whole = indexed(runs(folder))
    [file] = files(folder)
    damage(file)
    assert indexed(runs(folder)) == whole
    assert indexed(runs(folder)) == whole
    assert reads == [1, 2, 3, 1, 2, 3, 3]


def test_a_folder_that_cannot_be_written_has_no_index(folder, reads, monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(facts, "replace", refuse)
    assert [one.number for one in indexed(runs(folder))] == [1, 2, 3]
    assert files(folder) == []


def test_runs_that_are_gone_leave_the_index(folder):
    indexed(runs(folder))
    RunDirectory(folder / ".mwmagic/runs/0001-main", 1).discard()
    record(folder, 16)
    age(folder)
    assert [one.number for one in indexed(runs(folder))] == [2, 3, 4]
    [file] = files(folder)
    assert b"0001-main" not in file.read_bytes()


def launch_and_look(folder):
    for _ in range(10):
        record(folder, 8)
        indexed(runs(folder))


@pytest.mark.slow
def test_two_that_launch_and_look_at_once_lose_nothing(tmp_path):
    context = get_context("spawn")
    both = [context.Process(target=launch_and_look, args=(tmp_path,)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(120)
    assert [one.exitcode for one in both] == [0, 0]
    age(tmp_path)
    assert [one.number for one in indexed(runs(tmp_path))] == list(range(1, 21))
    assert indexed(runs(tmp_path)) == [facts_of(one) for one in runs(tmp_path)]


def test_python_gets_a_list_or_a_frame(folder):
    assert [one.number for one in mwmagic.runs(folder)] == [1, 2, 3]
    frame = mwmagic.runs(folder, frame=True)
    assert list(frame["units"]) == [64, [1, 2], 32]
    assert next(iter(frame["best loss"])) == 0.1
