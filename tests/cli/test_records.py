"""What a shell and a program do with recorded runs: read, wait, note, tag, remove, run again."""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
import time
from dataclasses import replace

import pytest

from mwmagic import runs
from mwmagic.cli import main
from mwmagic.cli.records import TIMEOUT_CODE
from mwmagic.client.planning import new_sweep
from mwmagic.model.findings import Cause, Finding, Location, Symptom
from mwmagic.record import RunDirectory, paths
from mwmagic.record.paths import highest_removed, keep_number, make_private, runs_folder
from mwmagic.record.reader import NOTE_CHARACTERS

PROGRAM = "units = {units}\nlr = 0.1\nprint(units)\n"


def reached(value):
    return {"value": value, "attempt": 1, "epoch": 1, "step": 1}


def state(folder, how="finished", units=64, loss=0.3, **more):
    launch = {"script": "main.py", "source": "main.py", "args": [], "cwd": str(folder), "given": {}}
    metrics = {"val_loss": {"last": reached(loss), "best": reached(loss)}}
    return {
        "state": how,
        "started": 1e9,
        "ended": 1e9 + units,
        "tasks": {"worker:0": {}, "worker:1": {}},
        "launches": {"worker:0": launch, "worker:1": launch},
        "metrics": {"worker:0": metrics},
        **more,
    }


def write(folder, units=64, loss=0.3, *, how="finished", extra="", **more):
    """Write the record of a run."""
    run = RunDirectory.create(folder, "main")
    (run.path / "main.py").write_text(PROGRAM.format(units=units) + extra)
    run.write(state(folder, how, units, loss, **more))
    run.flush()
    return run


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def shell(here, capsys):
    def command(*args):
        code = main([*args])
        out, err = capsys.readouterr()
        return code, out, err

    return command


CAUSE = Cause(
    finding=Finding(task="worker:1", symptom=Symptom.EXITED, code=1),
    exception="ValueError: no",
    where=Location(file="main.py", line=3, source="print(units)"),
)


def test_a_run_is_shown_to_programs(here, shell):
    write(here)
    write(here, how="failed", cause=CAUSE.as_json())
    code, out, _ = shell("show", "--json")
    one = json.loads(out)
    assert (code, one["number"], one["state"], one["over"]) == (0, 2, "failed", True)
    assert one["parameters"] == {"units": 64, "lr": 0.1}
    assert one["directory"] == str(here / ".mwmagic/runs/0002-main")
    assert list(one["workers"]) == ["worker:0", "worker:1"]
    assert "worker:1" in one["why"]
    code, out, _ = shell("show", "1")
    assert (code, out.splitlines()[0]) == (0, "run 1: finished")


def test_a_failure_is_explained_with_its_line(here, shell):
    write(here, how="failed", cause=CAUSE.as_json())
    found = json.loads(shell("explain", "1", "--json")[1])
    assert (found["failed"], found["task"], found["cause"]) == (
        True,
        "worker:1",
        Symptom.EXITED.value,
    )
    assert (found["where"]["file"], found["where"]["line"]) == ("main.py", 3)
    assert found["exception"] == "ValueError: no"
    code, out, _ = shell("explain", "1")
    assert (code, out) == (0, "\n".join(found["text"]) + "\n")
    write(here)
    assert shell("explain")[1] == "run 2 is finished: it did not fail\n"


def test_a_known_failure_is_explained_in_whole_sentences(here, shell):
    cause = replace(CAUSE, known="module-missing", gaps=("helper",))
    write(here, how="failed", cause=cause.as_json())
    found = json.loads(shell("explain", "--json")[1])
    assert "and helper is in neither" in found["meaning"]
    assert "provides helper" in found["remedy"]
    assert f"  {found['meaning']}" in found["text"]


def test_logs_are_objects_for_programs(here, shell):
    run = write(here)
    run.task(runs(here)[0].tasks[0], 1).log.write_bytes(b"a\nb\n")
    one, other = json.loads(shell("logs", "--json")[1])
    assert (one["task"], one["attempt"], one["lines"]) == ("worker:0", 1, ["a", "b"])
    assert one["path"] == str(here / ".mwmagic/runs/0001-main/attempt-1/worker-0.log")
    assert (other["task"], other["path"], other["lines"]) == ("worker:1", None, [])


def test_notes_and_tags_stay_with_the_run(here, shell):
    write(here)
    assert shell("note", "1", "warm-up fixed it") == (0, "run 1: warm-up fixed it\n", "")
    assert shell("tag", "1", "baseline", "v2")[1] == "run 1: baseline, v2\n"
    assert shell("tag", "1", "--remove", "v2")[1] == "run 1: baseline\n"
    assert shell("note", "1")[1] == "warm-up fixed it\n"
    [one] = json.loads(shell("runs", "--json", "--where", "tags==baseline and note~WARM")[1])
    assert (one["tags"], one["note"]) == (["baseline"], "warm-up fixed it")
    assert shell("runs", "--where", "tags!=baseline")[1] == "no run matches the filter\n"
    head, row = shell("runs")[1].splitlines()
    assert head.split()[-2:] == ["tags", "note"]
    assert row.endswith("baseline  warm-up fixed it")
    assert stat.S_IMODE((runs()[0].path / "notes.json").stat().st_mode) == 0o600
    assert (runs()[0].note, runs()[0].tags) == ("warm-up fixed it", ("baseline",))
    assert shell("note", "1", "")[1] == "run 1 has no note\n"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["tag", "1", "two words"], "'two words' cannot be a tag: write one word"),
        (["tag", "1", "--remove", "x"], "run 1 has no tag 'x': it has none"),
        (["note", "1", "x" * (NOTE_CHARACTERS + 1)], "a note may have 2,000 characters, and this"),
        (["note", "7", "x"], "there is no run 7; the recorded runs are 1"),
        (["gc"], "say which runs may go: --keep 50 keeps the latest, --older 30d is an age"),
        (["wait", "1", "--until", "nothing<3"], "no run here has 'nothing'"),
        (["wait", "1", "--until", "val_loss<"], "cannot be read at its end"),
        (["rerun", "1", "-p", "nope=3"], "nope"),
    ],
)
def test_what_cannot_be_done_is_one_line(here, shell, args, said):
    write(here)
    code, out, err = shell(*args)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_damaged_note_is_no_note(here, shell):
    run = write(here)
    run.paths.annotations.write_bytes(b"{\xff")
    assert shell("runs")[0] == 0
    assert shell("note", "1")[1] == "run 1 has no note\n"
    assert shell("note", "1", "new")[1] == "run 1: new\n"
    run.paths.annotations.unlink()
    run.paths.annotations.mkdir()
    assert "the note and tags of run 1 cannot be read from" in shell("tag", "1", "new")[2]


def test_a_wait_ends_with_a_code(here, shell):
    write(here)
    assert shell("wait")[0] == 0
    assert shell("wait", "--until", "val_loss<0.5")[0] == 0
    code, out, _ = shell("wait", "--until", "val_loss<0.2", "--json")
    assert (code, json.loads(out)["number"]) == (1, 1)
    tasks = {"worker:0": {"progress": {"epoch": 4, "step": 20}}, "worker:1": {}}
    write(here, how="stopped", tasks=tasks)
    assert shell("wait", "--until", "epoch>3 and step==20")[0] == 0
    assert shell("wait", "--until", "epoch>4")[0] == 1
    assert shell("wait")[0] == 1
    own = {"pid": os.getpid(), "started": time.time()}
    import psutil

    own["started"] = psutil.Process().create_time()
    run = write(here, how="running", ended=None, supervisor=own)
    code, _, err = shell("wait", "3", "--timeout", "0")
    assert (code, err) == (TIMEOUT_CODE, "mwmagic: run 3 is still going after 0 s\n")

    def improve():
        run.write(state(here, "running", loss=0.1, ended=None, supervisor=own))
        run.flush()

    later = threading.Timer(0.1, improve)
    later.start()
    assert shell("wait", "3", "--until", "val_loss<0.2", "--timeout", "60")[0] == 0
    later.join()


def test_old_runs_are_listed_before_they_go(here, shell):
    for units in (1, 2, 3, 4):
        write(here, units)
    shell("tag", "1", "baseline")
    write(here, how="running", ended=None)
    code, out, _ = shell("gc", "--keep", "2")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["2", "3", "this"]
    assert out.splitlines()[-1].startswith("this would remove 2 runs and free 0.")
    assert len(runs()) == 5, "nothing is removed yet"
    assert shell("gc", "--keep", "2", "--older", "20000d")[1].startswith(
        "nothing to remove: every run"
    )
    assert shell("gc", "--keep", "2", "--older", "30d", "--yes")[1].startswith("removed 2 runs")
    assert [one.number for one in runs()] == [1, 4, 5]
    assert shell("gc", "--keep", "0", "--yes")[1].startswith("removed 1 run and freed ")
    assert [one.number for one in runs()] == [1, 5], "a lost run may go on elsewhere"


def test_runs_that_two_shells_remove_keep_their_numbers(tmp_path, monkeypatch):
    make_private(runs_folder(tmp_path))
    other = threading.Thread(target=keep_number, args=(tmp_path, 5))

    def seen_before_the_other_writes(root):
        found = highest_removed(root)
        if other.ident is None:
            other.start()
            other.join(0.2)  # it ends only where nothing makes it wait
        return found

    monkeypatch.setattr(paths, "highest_removed", seen_before_the_other_writes)
    keep_number(tmp_path, 4)
    other.join()
    assert highest_removed(tmp_path) == 5


def test_a_removed_run_keeps_its_number(here, shell):
    write(here)
    write(here)
    assert shell("gc", "--keep", "0", "--yes")[1].startswith("removed 2 runs")
    assert write(here).number == 3, "sweeps, notes and saved notebooks name runs by their numbers"


def test_a_trial_whose_sweep_is_there_stays_and_does_not_run_again(here, shell):
    (here / "main.py").write_text(PROGRAM.format(units=64))
    sweep = new_sweep(here, "main.py", {"units": "32,64"}, cwd=here)
    for trial in sweep.trials():
        run = write(here, trial.params["units"])
        launch = {"script": "main.py", "cwd": str(here), "trial": sweep.label(trial)}
        run.write({**state(here), "launches": {"worker:0": launch}})
        run.flush()
    write(here)
    assert shell("gc", "--keep", "0", "--yes")[1].startswith("removed 1 run")
    assert [one.number for one in runs()] == [1, 2]
    assert sweep.left() == []
    shutil.rmtree(sweep.path)
    assert shell("gc", "--keep", "0", "--yes")[1].startswith("removed 2 runs")


def test_what_changed_is_said_of_a_finished_run(here, shell):
    write(here, 64, 0.31)
    write(here, 128, 0.27, extra="print(1)\nprint(2)\n")
    assert shell("show", "2")[1].splitlines()[-1] == (
        "changed since run 1: units 64 → 128, 2 lines of code; "
        "best val_loss 0.31 → 0.27 (better), 1 min 4 s → 2 min 8 s"
    ).replace("1 min 4 s", "1:04").replace("2 min 8 s", "2:08")
    write(here, 32, 0.5, how="stopped")
    write(here, 128, 0.28, extra="print(1)\nprint(2)\n")
    assert not shell("show", "4")[1].splitlines()[-1].startswith("changed"), "nothing was"
    shell("tag", "1", "baseline")
    line = shell("show", "4")[1].splitlines()[-1]
    begun = "changed since run 1 (baseline): units 64 → 128, 2 lines of code; best val"
    assert line.startswith(begun)
    assert not any("changed" in line for line in shell("show", "1")[1].splitlines())


@pytest.mark.slow
def test_a_run_is_run_again_with_another_value(here, shell, nothing_survives):
    (here / "problem.py").write_text("name = 'old'\n")
    (here / "main.py").write_text(
        "import argparse, os, problem\n"
        "parser = argparse.ArgumentParser()\n"
        'parser.add_argument("--lr", type=float, default=0.1)\n'
        "units = 64\n"
        "print(units, parser.parse_args().lr, os.environ['A'], problem.name)\n"
    )
    args = ["run", "-n", "2", "--env", "A=1", "-p", "units=8", "-p", "lr=0.2", "main.py"]
    assert shell(*args)[0] == 0
    (here / "main.py").write_text("raise SystemExit(3)\n")
    # Python takes a compiled module of the same second and size for this one.
    (here / "problem.py").write_text("name = 'another'\n")
    code, out, err = shell("rerun", "1", "-p", "lr=0.3")
    assert code == 0
    assert sorted(out.splitlines()) == [f"[worker:{rank}] 8 0.3 1 another" for rank in (0, 1)]
    assert "problem.py has changed since run 1 was launched: the new version is imported" in err
    assert "changed since run 1: lr 0.2 → 0.3" in err
    assert shell("rerun", "2", "--workers", "1")[1] == "[worker:0] 8 0.3 1 another\n"
    assert (here / "main.py").read_text() == "raise SystemExit(3)\n"
    (runs()[0].path / "main.py").unlink()
    assert "the code of run 1 is gone from" in shell("rerun", "1")[2]
