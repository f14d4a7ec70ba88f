"""A sweep of the command line on an engine: two clusters, four trials of plain Python."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

from processes import PATIENCE, eventually

from mwmagic.experiments.runs import indexed
from mwmagic.record import runs

PROGRAM = """
import os, time
from mwmagic.worker import report
units = 1
print("on", os.uname().nodename, flush=True)
while units < 3 and not os.path.exists("go"):
    time.sleep(0.05)
report(val_loss=1 / units)
"""
"""The first two trials wait until they may go on."""


def begun(*words, engine, **options):
    """Start a sweep, or continue one; `go` lets its first trials end."""
    Path("main.py").write_text(PROGRAM)
    given = {"engine": engine, **options}
    typed = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "mwmagic.cli", "sweep", *typed, *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, start_new_session=True, **pipes)


def two_are_going():
    """Wait until the first two trials are on their machines; return where each is."""
    eventually(lambda: len(places()) == 2 and all(places()), lambda: f"two trials ({places()})")
    return places()


def places():
    """Return the hosts that each run's latest attempt has printed."""
    found = []
    for one in runs():
        logs = Path(one.path, f"attempt-{one.attempts}").glob("*.log")
        words = [path.read_text().split() for path in logs]
        found.append({own[1] for own in words if own[:1] == ["on"] and len(own) > 1})
    return found


def ended(process, seen=lambda: ()):
    """Let the first trials end; return what was printed, and all that was seen meanwhile."""
    Path("go").touch()
    found = set(seen())
    while process.poll() is None:
        found |= set(seen())
    text, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, text
    assert "4 trials: 4 finished" in text
    over = Counter(one.trial for one in indexed(runs()) if one.state == "finished")
    assert over == {f"1/{trial}": 1 for trial in (1, 2, 3, 4)}
    return text, found
