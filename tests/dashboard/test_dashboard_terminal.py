"""The live table: ``mwmagic run --dashboard`` and ``%mw_wait`` in a terminal; what a pipe gets."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from processes import running
from rich.console import Console

from mwmagic.dashboard.static import page
from mwmagic.dashboard.terminal import table
from mwmagic.model.findings import Stall
from mwmagic.model.status import RunState, RunStatus, TaskState, TaskStatus

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_survives")]

COMMAND = [sys.executable, "-m", "mwmagic.cli", "run", "-n", "2", "--dashboard", "main.py"]
SCRIPT = """
import json, os, time
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
for step in range(1, 31):
    print(f"step {step}/30 [bold]loss[/bold]=1 loss={1 / step:.4f}", flush=True)
while index == 1 and "WAITS" in os.environ and not os.path.exists("seen"):
    time.sleep(0.01)
if index == 1:
    raise SystemExit("out of luck")
time.sleep(600)
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "main.py").write_text(SCRIPT)
    return tmp_path


@pytest.mark.parametrize("size", [{}, {"COLUMNS": "0", "LINES": "0"}, {"COLUMNS": "1"}])
def test_a_pipe_gets_the_lines_and_the_last_state(script, size):
    how = {"cwd": script, "capture_output": True, "text": True, "env": {**os.environ, **size}}
    done = subprocess.run(COMMAND, check=False, **how)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    lines = [line for line in done.stdout.splitlines() if line.startswith("[worker:1]")]
    assert [line.split()[2] for line in lines[:30]] == [f"{step}/30" for step in range(1, 31)]
    assert lines[30] == "[worker:1] out of luck"
    assert done.stdout.splitlines()[-3].startswith("run 1: failed: worker:1 exited with code 1")
    assert "  worker:1  exited with code 1  step 30/30  " in done.stdout
    assert done.stderr.startswith("mwmagic: run 1 failed: worker:1 exited with code 1")


def test_a_terminal_gets_a_table_that_stays_below(script):
    code, shown, plain = in_terminal(COMMAND, script)
    assert code == 1
    assert shown.count("\x1b[2K") > 3, "the table is redrawn in its place"
    assert "[worker:1] step 30/30 [bold]loss[/bold]=1 loss=0.0333" in plain
    assert_the_table_ends(plain)


@pytest.mark.parametrize("columns", ["0", "1"])
def test_a_terminal_of_no_size_or_of_one_column_gets_every_line(script, columns):
    code, _, plain = in_terminal(COMMAND, script, COLUMNS=columns, LINES=columns)
    assert code == 1
    assert "[worker:1] out of luck" in plain


HOSTILE = """
import mwmagic.worker
values = {f"binary_accuracy_{number}": 0.5 for number in range(8)}
values["bad\\x1b]0;title\\x1b[2Jname"] = 2.0
mwmagic.worker.report(step=1, steps=2, **values, val_loss=0.75, loss=0.25)
raise SystemExit("detail\\x1b]0;title\\x1b[2J")
"""


def test_a_terminal_gets_every_metric_and_no_commands_of_a_worker(tmp_path):
    (tmp_path / "main.py").write_text(HOSTILE)
    _, shown, plain = in_terminal(COMMAND, tmp_path)
    assert "\x1b]0;" not in shown
    assert "\x1b[2J" not in shown
    table = plain[plain.rindex("run 1: failed") :]
    wanted = {f"binary_accuracy_{number}=0.5" for number in range(8)}
    assert wanted | {"loss=0.25", "val_loss=0.75"} <= set(table.split())


def test_a_stalled_run_looks_stalled():
    tasks = {"worker:0": TaskStatus(TaskState.RUNNING)}
    stalled = RunStatus(1, state=RunState.RUNNING, tasks=tasks, stall=Stall())
    shown = io.StringIO()
    Console(file=shown, force_terminal=True, width=80, color_system="standard").print(
        table(stalled)
    )
    assert shown.getvalue().startswith("\x1b[1;33m⚠ run 1: stalled")
    assert page(stalled, live=True).partition("⚠ <b>run 1: stalled")[1]
    assert "⚠" not in page(replace(stalled, stall=None), live=True)


def test_ipython_in_a_terminal_gets_the_table_while_it_waits(script):
    launch = "get_ipython().run_cell_magic('mw_worker', '', open('main.py').read())"
    declare = "%mw_cluster 2 --no-warm --env WAITS=1"
    cells = ["%load_ext mwmagic", declare, launch, "%mw_wait"]
    ipython = [sys.executable, "-m", "IPython", "--simple-prompt", "--colors=NoColor"]
    code, shown, plain = in_terminal([*ipython, "-c", "\n".join(cells)], script)
    assert code == 1
    assert "\x1b[1A\x1b[2K" in shown, "the table is redrawn in its place"
    assert_the_table_ends(plain)
    assert "WorkerFailed: run 1 failed: worker:1 exited with code 1" in plain


MEASURED = """
from mwmagic.worker import report
units, label = 32, "\\x1b[5m[bold]blinks"
report(epoch=1, loss=1 / units)
report(epoch=2, loss=2 / units)
if units == 8:
    raise ValueError("units are too few for this")
"""


def test_a_terminal_gets_the_table_of_runs_in_colour(tmp_path):
    (tmp_path / "main.py").write_text(MEASURED)
    mwmagic = [sys.executable, "-m", "mwmagic.cli"]
    for units in (64, 32, 8):
        launch = [*mwmagic, "run", "-n", "1", "-p", f"units={units}", "main.py"]
        subprocess.run(launch, cwd=tmp_path, check=False, capture_output=True)
    code, shown, plain = in_terminal([*mwmagic, "runs", "--best", "loss"], tmp_path)
    assert code == 0
    head, best, second, failed, *more = plain.splitlines()
    assert head.split() == [
        "run",
        "began",
        "took",
        "state",
        "units",
        "loss",
        "loss",
        "curve",
        "cause",
    ]
    assert [line.split()[0] for line in (best, second, failed)] == ["1", "2", "3"]
    assert "\x1b[32mfinished" in shown
    assert "\x1b[1;31mfailed" in shown
    assert "\x1b[1m0.03125 (best 0.01562)\x1b[0m" in shown, "the best of all"
    assert "\x1b[5m" not in shown, "a parameter's value does not act on the terminal"
    assert "[bold]" in more[-1]
    _, _, narrow = in_terminal([*mwmagic, "runs"], tmp_path, COLUMNS="85")
    assert "curve" not in narrow
    lines = narrow.splitlines()
    assert max(map(len, lines[:-1])) <= 85
    assert any(line.startswith(" " * 60) for line in lines), "causes take several lines"
    piped = subprocess.run([*mwmagic, "runs"], cwd=tmp_path, check=True, capture_output=True)
    assert b"\x1b" not in piped.stdout


def in_terminal(command, folder, **size):
    """Run a command in a terminal; return its exit code and all that was shown, and its text.

    There is a file `seen` as soon as the last step is shown.
    """
    mine, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30", **size}
    with running(
        command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=env
    ) as process:
        os.close(theirs)
        read = b""
        while chunk := _read(mine):
            read += chunk
            if b"step 30/30" in read:
                (folder / "seen").touch()
        code = process.wait(120)
    os.close(mine)
    shown = read.decode()
    return code, shown, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)


def assert_the_table_ends(plain):
    after = plain[plain.rindex("run 1: failed: worker:1 exited with code 1") :].splitlines()
    assert after[1].startswith("worker:1  exited with code 1"), "failures come first"
    assert after[2].split()[:2] == ["worker:0", "ended"]


def _read(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""
