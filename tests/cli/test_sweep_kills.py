"""A sweep is killed at random moments and continued: each trial is over exactly once.

``MWMAGIC_KILLS=50 pytest -s --timeout 0 tests/cli/test_sweep_kills.py`` kills it at 50, and prints
a table.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
import pytest
from processes import PATIENCE

from mwmagic.experiments.runs import indexed
from mwmagic.experiments.sweep import TrialState, sweeps
from mwmagic.record import runs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_survives")]

ROUNDS = int(os.environ.get("MWMAGIC_KILLS", "6"))

PROGRAM = """\
import time
from mwmagic.worker import report
units = 1
for epoch in range(1, 4 if units < 100 else 10_000):
    report(val_loss=1 / units, epoch=epoch)
    time.sleep(0.05)
"""

NEW = ["--framework", "torch", "main.py", "units=1,2,200,4", "--stop-when", "units>99 and epoch>2"]
WHERE = (["-n", "2"], ["-n", "1", "--parallel", "2"])

VICTIMS = ("client", "supervisor", "all")


@dataclass
class Round:
    """What is killed and when, in seconds after the start; how far the sweep was, and faults."""

    victim: str
    where: list[str]
    seconds: float
    over: int = 0
    again: int = 0
    faults: list[str] = field(default_factory=list)


def begun(folder, *words):
    command = [sys.executable, "-m", "mwmagic.cli", "sweep", "--grace", "0.5", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=folder, start_new_session=True, **pipes)


def frozen(process):
    """Stop a process and all that it has started, and return them."""
    found = [process]
    for one in found:
        with suppress(psutil.NoSuchProcess):
            one.suspend()
            found += one.children()
    return found


def kill(process, victim):
    """Kill the client, a supervisor, or at one moment all that runs."""
    with suppress(psutil.NoSuchProcess):
        client = psutil.Process(process.pid)
        struck = {
            "client": lambda: [client],
            "supervisor": lambda: client.children()[-1:],
            "all": lambda: frozen(client),
        }[victim]()
        for one in struck:
            with suppress(psutil.NoSuchProcess):
                one.kill()


def play(one, folder):
    """Begin a sweep, kill it, and continue it; note what is wrong."""
    (folder / "main.py").write_text(PROGRAM)
    process = begun(folder, *one.where, *NEW)
    time.sleep(one.seconds)
    kill(process, one.victim)
    text, _ = process.communicate(timeout=PATIENCE)
    if not sweeps(folder):  # it was killed before there was anything to continue
        return
    [sweep] = sweeps(folder)
    one.over = sum(each.state.over for each in sweep.outcomes())
    process = begun(folder, "--resume", *one.where)
    more, _ = process.communicate(timeout=PATIENCE)
    check(one, sweep, process.returncode, text + more)


def check(one, sweep, code, text):
    """Note what is wrong in the end; `text` is all that was printed."""
    states = [each.state for each in sweep.outcomes()]
    wanted = [TrialState.FINISHED] * 4
    wanted[2] = TrialState.PRUNED
    if code or states != wanted:
        one.faults.append(f"code {code}, {states}: {text}")
    if "4 trials: 3 finished, 1 pruned" not in text:
        one.faults.append(f"the count is wrong: {text}")
    records = runs(sweep.root)
    pruned = sweep.pruned()
    over, broken = Counter[str](), Counter[str]()
    for record, facts in zip(records, indexed(records), strict=True):
        done = facts.state == "finished" or record.path.name in pruned
        (over if done else broken)[facts.trial] += 1
    broken.pop("", None)  # it was killed before it was written for which trial it is
    one.again = broken.total()
    if over != {f"1/{trial}": 1 for trial in (1, 2, 3, 4)}:
        one.faults.append(f"trials are over so often: {over}")
    for trial, times in broken.items():
        said = text.count(f"trial {trial.partition('/')[2]} begins again")
        if said != times:
            one.faults.append(f"trial {trial} began again {times} times, and {said} were said")
    if sweep.orphaned:
        one.faults.append("it counts as interrupted")


def table(played):
    """Return a line for each victim."""
    form = "{:<12}{:>8}{:>7}{:>14}{:>14}".format
    lines = [form("killed", "moments", "wrong", "trials over", "began again")]
    for victim in VICTIMS:
        ones = [one for one in played if one.victim == victim]
        wrong = sum(bool(one.faults) for one in ones)
        over, again = sum(one.over for one in ones), sum(one.again for one in ones)
        lines.append(form(victim, len(ones), wrong, over, again))
    return "\n".join(lines)


def test_after_a_kill_at_any_moment_each_trial_is_over_exactly_once(tmp_path):
    generator, took, played = random.Random(7), 0.0, []
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        if not took:  # how long a sweep takes here that is not killed
            began = time.monotonic()
            (folder / "main.py").write_text(PROGRAM)
            begun(folder, *WHERE[0], *NEW).communicate(timeout=PATIENCE)
            took = time.monotonic() - began
            folder = tmp_path / "first"
            folder.mkdir()
        one = Round(VICTIMS[number % 3], WHERE[number // 3 % 2], generator.uniform(0.3, took))
        play(one, folder)
        played.append(one)
    print(f"\n{table(played)}")
    assert not [one for one in played if one.faults]
