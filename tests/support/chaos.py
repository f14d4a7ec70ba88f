"""Kills and stops each of mwmagic's processes at random moments, and checks what is left.

A round is a separate process that owns a cluster, as a kernel does, with two workers that print
numbered lines. Each worker has a child in its own session that prints too. A signal hits one of the
processes at a random moment. In the end no process may be left, every printed line must be in
the logs, the record must be readable, and the cause must be correct.

The warm process is real and each worker is forked from it, but the framework that it has imported
is an empty module, so that a round takes about a second.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from labels import LABEL, processes

from mwmagic import runs
from mwmagic.model.findings import Cause, Finding, Symptom
from mwmagic.words import headline

WAIT_SECONDS = 120.0
"""How long to wait for anything."""

PIPE_BYTES = 64 << 10
"""The capacity of a pipe: this much output may be lost when the agent itself dies."""

WRITER = """
import os, signal, sys, time
name, sides = sys.argv[1], sys.argv[2]
begun = os.open(f"{sides}/{name}.begun", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
done = os.open(f"{sides}/{name}.done", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
number = 0
while True:
    line = f"{name} {number} {'x' * (number * 37 % 1500)}\\n".encode()
    os.write(begun, b"%d\\n" % number)
    os.write(1, line)
    os.write(done, b"%d\\n" % number)
    number += 1
    time.sleep(0.002)
"""

WORKER = """
import os, subprocess, sys
from pathlib import Path
name = os.environ["MWMAGIC_TASK"] + "-" + os.environ["MWMAGIC_ATTEMPT"]
writer = [sys.executable, "-I", "-S", "writer.py"]
subprocess.Popen([*writer, name + "-child", "sides"], start_new_session=True)
sys.argv = ["writer.py", name, "sides"]
exec(Path("writer.py").read_text())
"""

KERNEL = """
import json, os, sys
from mwmagic import Cluster
from mwmagic.errors import MwmagicError

def say(**words):
    print(json.dumps(words), flush=True)

restarts, warm = json.loads(sys.argv[1])
cluster = Cluster(2, framework="torch", warm=warm, restarts=restarts, grace=0.2)
say(supervisor=cluster._process.pid)
run = cluster.run("main.py")
say(run=run.number)
for line in sys.stdin:
    try:
        if line == "close\\n":
            cluster.close()
            say(closed=True)
            break
        if line == "wait\\n":
            run.wait(120)
        say(status=run.status().as_json(), warm=cluster.machines[0].warm.pid)
    except MwmagicError as error:
        say(status=run.status().as_json(), error=type(error).__name__)
"""


@dataclass
class Round:
    """What is done in a round, and its result."""

    target: str
    signal: signal.Signals
    delay: float
    restarts: int = 0
    warm: bool = True
    seconds: float = 0.0
    written: int = 0
    lost: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def deadly(self):
        return self.signal is not signal.SIGSTOP


def command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def until(condition, seconds=WAIT_SECONDS):
    """Wait until a condition holds; return the seconds that this took, or None."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            return None
        time.sleep(0.002)
    return time.monotonic() - began


class Kernel:
    """A process that owns a cluster and obeys commands."""

    def __init__(self, folder, label, chosen):
        environment = {
            **os.environ,
            LABEL: label,
            "PYTHONPATH": f"{folder}:{Path(__file__).parents[1]}",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", KERNEL, json.dumps([chosen.restarts, chosen.warm])],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "kernel.log").open("wb"),
            text=True,
        )
        self.supervisor = self.hear()["supervisor"]
        self.hear()

    def hear(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {}

    def ask(self, what):
        try:
            self.process.stdin.write(what + "\n")
            self.process.stdin.flush()
        except OSError:
            return {}
        return self.hear()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def find(kernel, target):
    """Return the id of the target process, or None while there is none."""
    if target == "kernel":
        return kernel.process.pid
    if target == "supervisor":
        return kernel.supervisor
    if target == "agent":
        children = Path(f"/proc/{kernel.supervisor}/task/{kernel.supervisor}/children")
        return int(children.read_text().split()[0])
    said = kernel.ask("status")
    if target == "zygote":
        return said.get("warm")
    return said.get("status", {}).get("tasks", {}).get(target, {}).get("pid")


def choose(generator):
    """Choose a random round."""
    target = generator.choice(["worker:0", "worker:1", "agent", "zygote", "supervisor", "kernel"])
    kind = generator.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
    restarts = generator.choice([0, 0, 1]) if target.startswith("worker") else 0
    warm = target == "zygote" or generator.random() < 0.7
    return Round(target, kind, generator.random() * 0.4, restarts, warm)


def play(chosen, folder, label):
    """Run a round."""
    (folder / "sides").mkdir()
    (folder / "torch.py").write_text("")
    (folder / "writer.py").write_text(WRITER)
    (folder / "main.py").write_text(WORKER)
    kernel = Kernel(folder, label, chosen)
    try:
        strike(chosen, kernel)
        settle(chosen, kernel)
    finally:
        kernel.end()
    gone = until(lambda: not processes(label))
    chosen.seconds = gone if gone is not None else float("inf")
    left = [f"{pid} {command(pid)[:80]}" for pid in processes(label)]
    for pid in processes(label):
        os.kill(pid, signal.SIGKILL)
    if left:
        chosen.faults.append(f"left after {WAIT_SECONDS:g} s: {left}")
    check_logs(chosen, folder)
    check_record(chosen, folder)


def strike(chosen, kernel):
    """Send the signal, once the target process exists."""
    found = []
    until(lambda: found.append(find(kernel, chosen.target)) or found[-1])
    time.sleep(chosen.delay)
    try:
        os.kill(found[-1], chosen.signal)
    except (ProcessLookupError, TypeError):
        chosen.faults.append(f"no {chosen.target}")
    if not chosen.deadly:
        time.sleep(0.2)
        if not chosen.target.startswith("worker"):
            os.kill(found[-1], signal.SIGCONT)


def settle(chosen, kernel):
    """Check what the signal did, and end the cluster."""
    fails = chosen.deadly and chosen.target not in ("zygote", "supervisor", "kernel")
    if chosen.deadly and chosen.target in ("supervisor", "kernel"):
        kernel.process.wait() if chosen.target == "kernel" else expect_lost(chosen, kernel)
        return
    if fails and not chosen.restarts:
        answer = kernel.ask("wait")
        check_cause(chosen, answer)
    elif fails:
        until(lambda: kernel.ask("status")["status"]["attempt"] == 2)
    status = kernel.ask("status").get("status", {})
    if not (fails and not chosen.restarts) and status.get("state") not in ("running", "forming"):
        chosen.faults.append(f"the run is {status.get('state')}: {status.get('cause')}")
    if not kernel.ask("close").get("closed"):
        chosen.faults.append("the cluster did not close")


def expect_lost(chosen, kernel):
    answer = kernel.ask("wait")
    wanted = "RunStopped" if chosen.signal is signal.SIGTERM else "SupervisorLost"
    if answer.get("error") not in (wanted, "SupervisorLost"):
        chosen.faults.append(f"the kernel got the error {answer.get('error')}")


def check_cause(chosen, answer):
    cause = Cause.from_json(answer.get("status", {}).get("cause"))
    wanted = [Finding(Symptom.KILLED, chosen.target, signal=chosen.signal)]
    if chosen.target == "agent":
        how = [{"host": "localhost"}]
        if chosen.signal is signal.SIGTERM:
            how.append({"detail": "which got SIGTERM"})
        tasks = ("worker:0", "worker:1")
        wanted = [Finding(Symptom.AGENT_LOST, task, **one) for task in tasks for one in how]
    if cause.finding not in wanted:
        chosen.faults.append(f"the reported cause is: {headline(cause)}")


def numbers(path):
    """Return how many numbers a worker wrote down."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def check_logs(chosen, folder):
    """Compare the logs with what was written."""
    lines = defaultdict(list)
    for log in folder.glob(".mwmagic/runs/*/attempt-*/*.log"):
        for line in log.read_text().splitlines():
            name, _, rest = line.partition(" ")
            lines[name].append(rest)
    for side in sorted(folder.glob("sides/*.begun")):
        name = side.stem
        begun, done = numbers(side), numbers(side.with_suffix(".done"))
        right = [f"{number} {'x' * (number * 37 % 1500)}" for number in range(len(lines[name]))]
        chosen.written += sum(map(len, right))
        if lines[name] != right:
            chosen.faults.append(f"the log of {name} is torn")
        elif not done <= len(right) <= begun:
            missing = [number * 37 % 1500 + 20 for number in range(len(right), done)]
            chosen.lost += sum(missing)
    allowed = 2 * PIPE_BYTES if chosen.target == "agent" and chosen.signal is signal.SIGKILL else 0
    if chosen.lost > allowed:
        chosen.faults.append(f"{chosen.lost} bytes of log are missing")


def check_record(chosen, folder):
    """Read the record back."""
    [record] = runs(folder)
    states = {"stopped", "failed"}
    if chosen.target == "supervisor" and chosen.signal is signal.SIGKILL:
        states = {"lost"}
    if record.state not in states:
        chosen.faults.append(f"the record says {record.state}")
    kinds = [event["event"] for event in record.events()]
    if kinds[:1] != ["created"] or {str(task) for task in record.tasks} != {"worker:0", "worker:1"}:
        chosen.faults.append(f"the record has {record.tasks} and {kinds}")


def rounds(count, seed):
    """Run rounds; yield each."""
    generator = random.Random(seed)
    for index in range(count):
        chosen = choose(generator)
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            play(chosen, Path(folder), f"{os.getpid()}-{seed}-{index}")
        yield chosen


def table(played):
    """Return the results of rounds, one line for each target and signal."""
    kinds = defaultdict(list)
    for one in played:
        kinds[one.target.partition(":")[0], one.signal.name].append(one)
    form = "{:<12}{:<10}{:>7}{:>7}{:>14}{:>11}{:>12}".format
    lines = [form("target", "signal", "rounds", "wrong", "gone after s", "MB of log", "bytes lost")]
    for (target, name), ones in sorted(kinds.items()):
        wrong = sum(bool(one.faults) for one in ones)
        gone = f"{max(one.seconds for one in ones):.3f}"
        written = f"{sum(one.written for one in ones) / 1e6:.1f}"
        lost = sum(one.lost for one in ones)
        lines.append(form(target, name, len(ones), wrong, gone, written, lost))
    return "\n".join(lines)


def played(count, seed):
    """Run rounds; tell of each that went wrong."""
    for number, one in enumerate(rounds(count, seed), 1):
        if one.faults:
            print(f"round {number}: {one}", file=sys.stderr, flush=True)
        yield one
