"""``mwmagic run --dashboard``, in a terminal and in a pipe."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_survives")]

COMMAND = [sys.executable, "-m", "mwmagic.cli", "run", "-n", "2", "--dashboard", "main.py"]
SCRIPT = """
import json, os
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
for step in range(1, 31):
    print(f"step {step}/30 [bold]loss[/bold]=1 loss={1 / step:.4f}", flush=True)
if index == 1:
    raise SystemExit("out of luck")
import time
time.sleep(600)
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "main.py").write_text(SCRIPT)
    return tmp_path


def test_a_pipe_gets_the_lines_and_the_last_state(script):
    done = subprocess.run(COMMAND, check=False, cwd=script, capture_output=True, text=True)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    lines = [line for line in done.stdout.splitlines() if line.startswith("[worker:1]")]
    assert [line.split()[2] for line in lines[:30]] == [f"{step}/30" for step in range(1, 31)]
    assert lines[30] == "[worker:1] out of luck"
    assert done.stdout.splitlines()[-3].startswith("run 1: failed: worker:1 exited with code 1")
    assert "  worker:1  exited with code 1  step 30/30  " in done.stdout
    assert done.stderr.startswith("mwmagic: run 1 failed: worker:1 exited with code 1")


def test_a_terminal_gets_a_table_that_stays_below(script):
    mine, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    with subprocess.Popen(COMMAND, cwd=script, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(mine), b"")).decode()
        assert process.wait(60) == 1
    os.close(mine)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    assert shown.count("\x1b[2K") > 3, "the table is drawn anew in its place"
    assert "[worker:1] step 30/30 [bold]loss[/bold]=1 loss=0.0333" in plain
    after = plain[plain.rindex("run 1: failed: worker:1 exited with code 1") :].splitlines()
    assert after[1].startswith("worker:1  exited with code 1"), "failures come first"
    assert after[2].split()[:2] == ["worker:0", "ended"]


def _read(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""
