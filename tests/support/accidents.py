"""Accidents on several hosts, and what must hold after each, whatever engine there is."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil
from processes import alive, command, eventually, running, variables

from mwmagic.errors import NoRun
from mwmagic.model.findings import Symptom
from mwmagic.record import runs

MARK = "MWMAGIC_TEST_ACCIDENT"

LEASE_SECONDS = 5.0
"""The lease of hosts that have accidents: a busy machine lets an agent wait for a second."""

LOST = (Symptom.HOST_LOST, Symptom.AGENT_LOST)
"""What is told of a lost host; an agent that hears nothing may still tell so."""

# It prints its host, and how many processes of an earlier attempt there are on all hosts.
PROGRAM = f"""
import os, time
from pathlib import Path
own = {{name: os.environ[name].encode() for name in ("{MARK}", "MWMAGIC_ATTEMPT")}}
def value(held, name):
    return next((one.partition(b"=")[2] for one in held if one.startswith(name.encode())), b"")
earlier = 0
for entry in Path("/proc").glob("[0-9]*"):
    try:
        held = (entry / "environ").read_bytes().split(b"\\0")
    except OSError:
        continue
    same = value(held, "{MARK}=") == own["{MARK}"]
    earlier += same and value(held, "MWMAGIC_ATTEMPT=") < own["MWMAGIC_ATTEMPT"]
print("on", os.uname().nodename, earlier, flush=True)
time.sleep(600)
"""

OWNER = """
import json, sys, time
from mwmagic import Cluster
options, program, mark = json.loads(sys.argv[1])
cluster = Cluster(2, warm=False, **options)
run = cluster.run("main.py", source=program, env=mark)
time.sleep(600)
"""
"""The process of a notebook's kernel, as far as a cluster is concerned."""


def marked(mark, host):
    """Return the workers that have a mark and are on a host."""
    found = host.processes()
    return [one.pid for one in found if f"{MARK}={mark}".encode() in variables(one.pid)]


def kill(found):
    """Kill processes of which there must be some."""
    assert found
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def agents(host):
    """Return the agents on a host."""
    pids = [one.pid for one in host.processes()]
    return [pid for pid in pids if " -I -S " in command(pid) and "mwmagic" in command(pid)]


def clients(program, host):
    """Return the processes of a program here that reach a host."""
    said = [(one.pid, one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"])]
    return [
        pid for pid, words in said if words[:1] == [program] and any(host.name in w for w in words)
    ]


# What may happen to a host; `mended` undoes what can be.


def worker(host, mark):
    kill(marked(mark, host))


def agent(host, mark):
    kill(agents(host))


def link(host, mark):
    host.cut()


def way_there(host, mark):
    host.deafen()


def way_back(host, mark):
    host.mute()


def mended(host):
    host.mend()
    host.heal()


@dataclass
class Told:
    """What became of a run that had an accident: the failure, and what was noticed besides."""

    finding: object
    remarks: list
    hosts: dict
    seconds: float

    @property
    def cut(self):
        """The tasks whose logs may lack lines."""
        return [one.task for one in self.remarks if one.symptom is Symptom.LOG_CUT]


def placed(run, attempt):
    """Return the host of each task in an attempt, or nothing until all have begun."""
    try:
        lines = {str(task): run.logs(task, attempt).decode() for task in run.cluster.tasks}
    except NoRun:
        return {}
    if not all(text.startswith("on ") and "\n" in text for text in lines.values()):
        return {}
    for text in lines.values():
        assert text.split()[2] == "0", "a task of an earlier attempt is beside it"
    return {task: text.split()[1] for task, text in lines.items()}


def had(cluster, hosts, accident):
    """Have an accident on the host of the last task; return what was told after the restart."""
    mark = uuid.uuid4().hex
    run = cluster.run("main.py", source=PROGRAM, env={MARK: mark})
    before = eventually(lambda: placed(run, 1), "first attempt")
    host = next(one for one in hosts if one.name == before["worker:1"])
    began = time.monotonic()
    accident(host, mark)
    try:
        again = lambda: run.status().attempt == 2 and placed(run, 2)  # noqa: E731 - read with its use
        after = eventually(again, lambda: f"second attempt: {run.status()}")
        seconds = time.monotonic() - began
        [setback] = run.status().setbacks
        remarks = [one.finding for one in run.status().remarks]
    finally:
        mended(host)
    run.stop(grace=0.0)
    whole(run.record, attempts=2)
    where = {"before": before, "after": after, "struck": host.name}
    told = Told(setback.cause.finding, remarks, where, seconds)
    note(accident, told)
    return told


def note(accident, told):
    """Say what was seen, for `pytest -rP`."""
    finding = told.finding
    moved = told.hosts["before"] != told.hosts["after"]
    print(
        "|",
        accident.__name__,
        "|",
        finding.symptom.value,
        finding.detail or "",
        "|",
        "moved" if moved else "same hosts",
        "|",
        f"{told.seconds:.1f} s",
    )


def whole(record, attempts):
    """Check that all of a record can be read."""
    eventually(lambda: record.state in ("stopped", "failed"), "final state")
    assert record.status.over
    assert [one["attempt"] for one in record.events("setback")] == list(range(1, attempts))
    assert record.events("ended")
    for task in record.known_tasks():
        for attempt in range(1, attempts + 1):
            assert record.log(task, attempt).startswith(b"on ")


def around():
    """Say which processes there are below this one, when what should have come does not."""
    found = psutil.Process().children(recursive=True)
    return "".join(f"\n{one.pid} {command(one.pid)}" for one in found)


@contextmanager
def owned(hosts, options):
    """Yield a kernel's process whose workers run, and check that nothing outlives it."""
    mark = uuid.uuid4().hex
    given = json.dumps([options, PROGRAM, {MARK: mark}])
    with running([sys.executable, "-c", OWNER, given]) as kernel:
        eventually(
            lambda: sum(len(marked(mark, host)) for host in hosts) >= 2,
            lambda: f"two workers: {around()}",
        )
        yield kernel.pid
        eventually(
            lambda: not any(marked(mark, host) for host in hosts),
            lambda: f"end of the workers: {around()}",
        )
        eventually(
            lambda: not any(alive(pid) for host in hosts for pid in agents(host)),
            lambda: f"end of the agents: {around()}",
        )
    [record] = runs()
    eventually(lambda: record.state != "running", "final state")
    assert record.status.over
