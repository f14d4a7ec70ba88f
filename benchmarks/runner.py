"""Runs each case in a process of its own, and watches what else the machine does meanwhile."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from .case import Line, Plan, Skipped
from .catalogue import CASES
from .machine import Load

PR_SET_CHILD_SUBREAPER = 36
CASE_SECONDS = 1800.0
"""How long a case may take."""

END_SECONDS = 15.0
"""How long its processes may take to end after it."""

POLL_SECONDS = 0.02
CRASHED = {"failure": "failed: it crashed or took too long"}
ROOT = Path(__file__).parents[1]


@dataclass
class Result:
    """What came of a case.

    Attributes
    ----------
    name : str
        The case's.
    lines : list of Line
        What it found.
    other : float
        Cores that all else kept busy meanwhile, on average.
    failure : str
        Why it found nothing.
    """

    name: str
    lines: list[Line] = field(default_factory=list)
    other: float = 0.0
    failure: str = ""


def adopt():
    """Become the parent of processes that lose theirs, and end a case that is cut short."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def run(case, plan):
    """Measure a case."""
    with tempfile.TemporaryDirectory(prefix="mwmagic-benchmark-") as folder:
        answer = Path(folder, "answer.json")
        load = Load()
        command = [
            sys.executable,
            "-m",
            "benchmarks.runner",
            case.name,
            json.dumps(asdict(plan)),
            answer,
        ]
        process = subprocess.Popen(command, env=environment())
        ended = False
        try:
            ended = reap(load, process.pid, CASE_SECONDS)
        finally:
            if not ended:
                process.kill()  # its clusters end with it
            left = end(load)
        found = json.loads(answer.read_text()) if answer.exists() else CRASHED
    lines = [Line(**one) for one in found.get("lines", ())]
    failure = found.get("failure", "") or (f"failed: mwmagic left {left}" if left else "")
    return Result(case.name, lines, load.other(), failure)


def environment():
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def reap(load, awaited, seconds):
    """Wait until a process, or with None every process, has ended; return whether it has."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            pid, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid:
            load.add(usage)
        else:
            time.sleep(POLL_SECONDS)
        if pid and pid == awaited:
            return True
    return False


def end(load):
    """Wait for what a case left running, and kill it in the end; return what was mwmagic's."""
    if reap(load, None, END_SECONDS):
        return []
    left = psutil.Process().children(recursive=True)
    commands = [" ".join(one.cmdline()) for one in left if one.is_running()]
    for one in left:
        with suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)
    reap(load, None, END_SECONDS)
    return [command for command in commands if "mwmagic/" in command]


def played(name, plan):
    """Return a case's lines, or why there are none."""
    [case] = [one for one in CASES if one.name == name]
    try:
        return {"lines": [asdict(line) for line in case.measure(plan)]}
    except Skipped as reason:
        return {"failure": f"skipped: {reason}"}
    except Exception as error:  # noqa: BLE001 - the other cases continue
        traceback.print_exc()
        return {"failure": f"failed: {type(error).__name__}: {error}".splitlines()[0]}


if __name__ == "__main__":
    found = played(sys.argv[1], Plan(**json.loads(sys.argv[2])))
    Path(sys.argv[3]).write_text(json.dumps(found))
