"""Finds the processes that a test started, and waits for what they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

LABEL = "MWMAGIC_TEST"
PATIENCE = 120.0

# A worker that does not end on SIGTERM until the file `saved` is there.
LINGERS = """
import os, pathlib, signal, sys, time
def save(*_):
    pathlib.Path("saving").touch()
    while not pathlib.Path("saved").exists():
        time.sleep(0.01)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
pathlib.Path("up").touch()
time.sleep(600)
"""


def hear_all_signals():
    """Have what is started from now on ignore no signal, whatever the tests were told to ignore.

    A shell that starts them in the background has them, and all they start, ignore SIGINT, and
    nohup SIGHUP. They still ignore that here, but with a handler, which no new program inherits.
    """
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:  # Python itself ignores those two
            interrupt = signal.default_int_handler
            signal.signal(number, interrupt if number == signal.SIGINT else lambda *_: None)


def kill_all(pids):
    """Kill processes that should have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def labelled(label=None):
    """Return the living processes, but for this one, that inherited this session's label."""
    wanted = f"{LABEL}={label or os.environ[LABEL]}".encode()
    found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in found if pid != os.getpid() and wanted in variables(pid) and alive(pid)]


def variables(pid):
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # gone, or another user's
        return []


def alive(pid):
    """Whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rindex(b")") + 2 : stat.rindex(b")") + 3] not in (b"Z", b"X")


def command(pid):
    """Return a process's command line."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def parent(pid):
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    return int(stat[stat.rindex(b")") + 2 :].split()[1])


def children(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def agents_of(supervisor):
    """Return a supervisor's agents."""
    return [pid for pid in children(supervisor) if "agent/__main__.py" in command(pid)]


@contextmanager
def running(*args, **options):
    """Start a process that does not outlive a block, also where that fails."""
    with subprocess.Popen(*args, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def printed(code, **options):
    """Run code in an interpreter of its own, to a good end, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=270,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def pid_of(run, task):
    """Return a task's process, which a run's status names a moment after its first output."""
    return eventually(lambda: run.status().tasks[task].pid, f"process of {task}")


def eventually(condition, what="what the test waits for"):
    """Wait until something holds and return it; a function may tell what is missing."""
    deadline = time.monotonic() + PATIENCE
    while True:
        began = time.monotonic()
        if result := condition():
            return result
        late = began >= deadline
        assert not late, f"no {what() if callable(what) else what} in {PATIENCE} s"
        # What looks at all processes takes long: it leaves others half of the time.
        time.sleep(max(0.005, time.monotonic() - began))
