"""Of two workers that fail shortly after one another the first is blamed, every time."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from functools import partial
from itertools import cycle, islice, product

import pytest
from processes import alive, eventually

from mwmagic.errors import WorkerFailed
from mwmagic.words import headline

PAIRS = 50
GAPS = (0.005, 0.02, 0.1)
WAYS = ("SIGKILL", "raise", "exit", "vanish")

FRAGILE = """
import os, signal, sys, time
task = os.environ["MWMAGIC_TASK"]

def fail(number, frame):
    open(f"{task}-failed", "w").close()
    if number == signal.SIGUSR2:
        raise ValueError("on purpose")
    if number == signal.SIGTERM:
        sys.exit(3)
    os._exit(4)

for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGQUIT):
    signal.signal(number, fail)
open(f"{task}-up", "w").close()
while True:
    time.sleep(600)
"""
SIGNALS = {
    "SIGKILL": signal.SIGKILL,
    "raise": signal.SIGUSR2,
    "exit": signal.SIGTERM,
    "vanish": signal.SIGQUIT,
}
ENDS = {
    "SIGKILL": "killed by SIGKILL",
    "raise": "exited with code 1",
    "exit": "exited with code 3",
    "vanish": "exited with code 4",
}


def both(run, folder):
    """Return the processes of a run, once both are up."""
    pids = [task.pid for task in run.status().tasks.values()]
    return pids if len(list(folder.glob("*-up"))) == 2 and None not in pids else None


def failed(folder, index, pid, way):
    """Whether a worker has failed: it is gone, or has raised what it cannot survive."""
    raises = way in ("raise", "exit") and (folder / f"worker:{index}-failed").exists()
    return raises or not alive(pid)


def strike(folder, pids, first, gap, ways):
    """Make both fail, the second some time after the first has failed; return when."""
    os.kill(pids[first], SIGNALS[ways[0]])
    eventually(lambda: failed(folder, first, pids[first], ways[0]))
    time.sleep(gap)
    struck = time.monotonic()
    with suppress(ProcessLookupError):  # mwmagic has ended it because of the first
        os.kill(pids[1 - first], SIGNALS[ways[1]])
    return struck


def known(run, first):
    """Return when it was known that the first had failed.

    A death that reports nothing is known once the agent has run, which a busy machine may put off.
    """
    exits = run.record.events("exited")
    return next(end["moment"] for end in exits if end["task"] == f"worker:{first}")


@pytest.mark.slow
def test_the_first_of_two_is_blamed_every_time(tmp_path, cluster):
    (tmp_path / "main.py").write_text(FRAGILE)
    gang = cluster(2, grace=0.1)
    kinds = random.Random(1).sample([*product(GAPS, (0, 1), product(WAYS, WAYS))], PAIRS)
    causes, expected = [], []
    for gap, first, ways in islice(cycle(kinds), 5 * PAIRS):
        for path in tmp_path.glob("worker:*"):
            path.unlink()
        run = gang.run("main.py")
        pids = eventually(partial(both, run, tmp_path))
        struck = strike(tmp_path, pids, first, gap, ways)
        with pytest.raises(WorkerFailed):
            run.wait(120)
        if known(run, first) > struck:
            continue
        causes.append((gap, first, ways, headline(run.cause)))
        expected.append((gap, first, ways, f"worker:{first} {ENDS[ways[0]]}"))
        if len(causes) == PAIRS:
            break
    assert causes == expected
    assert len(causes) == PAIRS
