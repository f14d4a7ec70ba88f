"""`mwmagic sweep`: trials run, fail, are ended early and killed, and each is over exactly once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter

import psutil
import pytest
from processes import PATIENCE, eventually

from mwmagic.cli import main
from mwmagic.cli.sweep import imports_packages
from mwmagic.experiments.runs import indexed
from mwmagic.experiments.sweep import sweeps
from mwmagic.record import runs

PROGRAM = """\
import time
from pathlib import Path

from mwmagic.worker import report

units = 1
seed = 3
if units == 13:
    raise ValueError("unlucky")
for epoch in range(1, 4 if units < 100 else 10_000):
    report(val_loss=1 / units, epoch=epoch)
    time.sleep(0.02)
while Path("hold").exists():
    time.sleep(0.05)
print("units", units, "seed", seed)
"""

MANY = ",".join(map(str, range(1000)))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "main.py").write_text(PROGRAM)
    return tmp_path


def begun(folder, *words):
    """Start the command in a session of its own; it has no warm process to wait for."""
    options = ["--grace", "1", *([] if "--resume" in words else ["--framework", "torch"])]
    options = [] if {"--show", "--export"} & {*words} else options
    command = [sys.executable, "-m", "mwmagic.cli", "sweep", *options, *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=folder, start_new_session=True, **pipes)


def sweep(folder, *words):
    process = begun(folder, *words)
    text, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, text


def finished(folder):
    """Return how many runs of each trial have finished."""
    found = indexed(runs(folder))
    return Counter(one.trial for one in found if one.state == "finished")


@pytest.mark.slow
def test_a_sweep_tries_all_explains_failures_and_says_what_is_best(folder):
    code, text = sweep(folder, "main.py", "units=2,13,4", "seed=1,2")
    assert code == 1, text
    assert "mwmagic: trial 1 (units 2, seed 1) of 6 is run 1" in text
    assert "6 trials: 4 finished, 2 failed" in text
    assert "2 trials failed alike (3, 4): " in text
    assert "ValueError: unlucky" in text
    assert "best: trial 5 (run 5; units 4, seed 1), val_loss 0.25; as good: 6\n" in text
    assert finished(folder) == {f"1/{one}": 1 for one in (1, 2, 5, 6)}
    code, shown = sweep(folder, "--show")
    assert code == 0
    assert text.endswith(shown), "what the sweep said at its end"
    assert sweep(folder, "--export", "csv")[1].startswith("trial,repeat,trial state,number,")
    assert "leave out main.py" in sweep(folder, "main.py", "--show")[1]
    assert "leave out --grace" in sweep(folder, "--grace", "1", "--show")[1]
    # The program is mended, and what failed runs again with it.
    (folder / "main.py").write_text(PROGRAM.replace("units == 13", "units == 14"))
    code, text = sweep(folder, "--resume", "--retry", "failed")
    assert code == 0, text
    assert "6 trials: 6 finished" in text
    assert finished(folder) == {f"1/{one}": 1 for one in range(1, 7)}
    code, text = sweep(folder, "--resume")  # of which nothing is left
    assert code == 0, text
    code, text = sweep(folder, "--extend", "1", "units=8")
    assert code == 2, text
    assert "main.py has changed since sweep 1 began: add --code recorded" in text
    code, text = sweep(folder, "--extend", "1", "units=8", "--code", "today")
    assert (code, len(runs(folder))) == (0, 10)
    assert "8 trials: 8 finished" in text


@pytest.mark.slow
def test_failed_trials_alone_run_again_with_other_code_unasked(folder):
    (folder / "hold").touch()
    process = begun(folder, "main.py", "units=13,2,3")
    eventually(lambda: len(runs(folder)) == 2, "second trial")
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    (folder / "hold").unlink()
    (folder / "main.py").write_text(PROGRAM.replace("units == 13", "units == 14"))
    code, text = sweep(folder, "--resume", "--retry", "failed")
    assert code == 2, text
    assert "since sweep 1 began, and 2 other trials would run with it too" in text
    assert "add --code today" in text
    assert sweep(folder, "--resume", "--code", "recorded")[0] == 1
    code, text = sweep(folder, "--resume", "--retry", "failed")
    assert code == 0, text
    assert finished(folder) == {f"1/{one}": 1 for one in range(1, 4)}


@pytest.mark.slow
def test_a_trial_gets_the_values_that_were_typed(folder):
    (folder / "main.py").write_text('lr = 0.5\nname = "a"\nany = None\nprint((lr, name, any))\n')
    names = ["'q'", "NaN", "x y", "None"]
    typed = ["lr=inf,-inf,nan", "name=\"'q'\",NaN,x y,None", "any='1'"]
    code, text = sweep(folder, "main.py", *typed)
    assert code == 0, text
    printed = [one.log(0).decode().strip() for one in runs(folder)]
    numbers = map(float, ("inf", "-inf", "nan"))
    wanted = [(lr, name, "1") for lr in numbers for name in names]
    assert printed == [str(one) for one in wanted]
    code, text = sweep(folder, "--extend", "1", "lr=inf,2")
    assert code == 0, text
    assert len(runs(folder)) == len(wanted) + len(names), "inf is there already"


@pytest.mark.slow
def test_repetitions_have_other_seeds_and_draws_continue(folder):
    code, text = sweep(folder, "main.py", "units=uniform(2,90)", "--random", "2", "--repeat", "2")
    assert code == 0, text
    printed = [one.log(0).decode().split() for one in runs(folder)]
    assert [one[3] for one in printed] == ["3", "3", "4", "4"]
    assert printed[0][1] == printed[2][1]
    assert " over 2 repetitions" in text
    assert "no parameter `seed`" not in text
    code, text = sweep(folder, "--extend", "1", "--random", "2")
    assert "sweep 1 has 2 combinations already: say how many" in text
    code, text = sweep(folder, "--extend", "1", "--random", "+1")
    assert code == 0, text
    assert len({one.log(0).decode().split()[1] for one in runs(folder)}) == 3
    assert len(runs(folder)) == 6
    code, text = sweep(folder, "--extend", "1", "--random", "4")
    assert (code, len(runs(folder))) == (0, 8), text


@pytest.mark.slow
def test_a_trial_is_ended_early_and_the_others_run_beside_each_other(folder):
    how = ["--parallel", "2", "--stop-when", "units>99 and epoch>=3 and nothing<3"]
    process = begun(folder, "main.py", "units=200,2,3,4", *how[:3], "units>99 and epoch>=3")
    text, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, text
    assert "trial 1: ended early because units>99 and epoch>=3" in text
    assert "4 trials: 3 finished, 1 pruned" in text
    # While the first went on, on one of two clusters, the others ran on the other one.
    assert {one.cluster for one in runs(folder)} == {"cluster", "cluster-trials-2"}
    code, text = sweep(folder, "--resume")
    assert (code, len(runs(folder))) == (0, 4)
    for one in runs(folder):  # as if they had used much memory
        state = json.loads(one.paths.state.read_text())
        state["tasks"]["worker:0"]["memory"] = 2**40
        one.paths.state.write_text(json.dumps(state))
    code, text = sweep(folder, "--extend", "1", "units=300", "--parallel", "8")
    assert "1 worker at once may need 1024.0 GB: one used up to 1024.0 GB in run 4" in text
    (folder / "main.py").write_text(PROGRAM.replace("seed", "drawn"))
    code, text = sweep(folder, "main.py", "units=5", "--repeat", "2", *how[2:])
    assert "the program has no parameter `seed`, so its repetitions differ only if" in text
    assert "--stop-when names nothing, which no trial had" in text


@pytest.mark.slow
def test_ctrl_c_asks_nothing_and_loses_nothing(folder):
    (folder / "hold").touch()
    process = begun(folder, "--stall-timeout", "0.5", "main.py", "units=2,3")
    assert any("trial 1: stalled: " in line for line in process.stdout)  # and it waits
    os.killpg(process.pid, signal.SIGINT)
    text, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "sweep 1 is not over: 0 of 2 trials are; `mwmagic sweep --resume 1` runs" in text
    (folder / "hold").unlink()
    code, text = sweep(folder, "--resume")
    assert code == 0, text
    assert "trial 1 begins again: run 1 was interrupted" in text
    assert finished(folder) == {"1/1": 1, "1/2": 1}


@pytest.mark.slow
def test_a_detached_sweep_outlives_its_terminal_until_it_is_killed(folder):
    (folder / "hold").touch()
    code, text = sweep(folder, "--detach", "main.py", "units=2,3")
    assert code == 0, text
    [found] = sweeps(folder)
    pid = int(text.partition("it continues as process ")[2].partition(",")[0])
    assert f"0001/messages.txt; `kill {pid}` stops it" in text
    eventually(lambda: any(one.metrics() for one in runs(folder)))
    assert os.getsid(pid) == pid
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: not psutil.pid_exists(pid))
    assert "0 of 2 trials are; `mwmagic sweep --resume 1` runs" in found.messages.read_text()
    (folder / "hold").unlink()
    assert sweep(folder, "--resume", "--detach")[0] == 0
    eventually(lambda: "best: trial 2 (" in found.messages.read_text())
    assert finished(folder) == {"1/1": 1, "1/2": 1}


@pytest.mark.parametrize(
    ("source", "packages"),
    [
        ("import os, time\nfrom mwmagic.worker import report\n", False),
        ("def main():\n    import tensorflow.keras as k\n", True),
        ("from keras import layers", True),
        ("import helper", True),
        ("from . import helper", True),
        ("import", False),
    ],
)
def test_a_program_without_packages_needs_no_warm_process(source, packages):
    assert imports_packages(source) is packages


@pytest.mark.slow
def test_two_processes_do_not_run_one_sweep(folder):
    (folder / "hold").touch()
    process = begun(folder, "main.py", "units=2")
    eventually(lambda: sweeps(folder) and (sweeps(folder)[0].path / "writer.json").exists())
    code, text = sweep(folder, "--resume")
    assert code == 2
    assert text.startswith(f"mwmagic: sweep 1 is being run by process {process.pid}: ")
    assert text.count("\n") == 1, "no cluster was declared for it"
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "there is no script to run: mwmagic sweep -n 2 main.py units=32,64"),
        (["main.py"], "a sweep needs parameters with values to try"),
        (["main.py", "units=1", "--random", "0"], "--random 0 would try nothing"),
        (["main.py", "units=1", "--random", "+3"], "add --extend SWEEP, or leave out the plus"),
        (["main.py", "units=uniform(1,9)", "--random", "1000000"], "a sweep of 1,000,000 trials"),
        (["main.py", f"units={MANY}", f"seed={MANY}"], "1,000,000 trials, and one may have 10,000"),
        (["main.py", "unit=1"], "did you mean units?"),
        (["other.py", "units=1"], "other.py to run"),
        (["main.py", "seed=1,2", "--repeat", "2"], "seed is varied, and --repeat"),
        (["--resume"], "there are no sweeps in "),
        (["main.py", "--resume"], "a sweep that continues keeps its script"),
        (["--resume", "1", "--extend", "1"], "leave out --resume"),
        (["--resume", "1", "--metric", "loss"], "a sweep that continues keeps its --metric"),
        (["--extend", "1"], "--extend needs more values"),
        (["main.py", "units=1", "--retry", "failed"], "add --resume"),
        (["main.py", "units=1", "--code", "today"], "add --resume or --extend"),
        (["main.py", "units=1,2", "--stop-when", "a>"], "the filter 'a>' cannot be read"),
        (["main.py", "units=1", "--parallel", "0"], "0 clusters run nothing"),
        (["main.py", "units=1", "--parallel", "auto", "--engine", "slurm"], "a scheduler gives"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_written(
    folder, words, message, monkeypatch, capsys
):
    monkeypatch.chdir(folder)
    try:
        code = main(["sweep", *words])
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert message in capsys.readouterr().err
    assert not sweeps(folder)
