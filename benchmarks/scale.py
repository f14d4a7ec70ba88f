"""What grows with the number of tasks and hosts: the supervisor's answers, memory and CPU time.

Tasks "here" are plain Python processes on this machine. The others are tasks of `fakes`
on hosts in the supervisor's own process, so that what fake agents and tasks cost is counted as the
supervisor's. Every task prints its progress once a second while all print. A larger cluster is
compared with a smaller one of the same kind; `gang` is the state machine alone.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import psutil

from mwmagic.client.starting import declared, start_supervisor
from mwmagic.engines.link import within
from mwmagic.model.messages import MESSAGE_BYTES, VERSION, Start, decode, encode
from mwmagic.model.options import ClusterOptions
from mwmagic.supervisor.supervisor import Supervisor

from .case import Case, Line
from .ratio import alternated

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from fakes import FakeEngine, FakeMachine

SLOTS = 8
"""Tasks on each fake host."""

PRINT_SECONDS = 1.0
CPU_SECONDS = 4.0
"""How long CPU time is measured."""

CLICKS = 20
POLL_SECONDS = 0.02

TASK = f"""
import os, pathlib, sys, time
step, printed = 0, 0.0
last = int(os.environ["MWMAGIC_TASK"].partition(":")[2])
while True:
    if time.monotonic() - printed >= {PRINT_SECONDS} and (step == 0 or os.path.exists("print")):
        step, printed = step + 1, time.monotonic()
        print(f"step {{step}}/1000 loss={{1 / step}}", flush=True)
    if last == 1 and os.environ["MWMAGIC_ATTEMPT"] == "1" and os.path.exists("fail"):
        pathlib.Path("failed").write_text(str(time.time()))
        raise ValueError("made on purpose")
    time.sleep(0.1)
"""


class Client:
    """The owner of a cluster, which reads every snapshot."""

    def __init__(self, reader, writer):
        self.reader, self.writer, self.number = reader, writer, 0
        self.news = {}

    async def ask(self, kind, **fields):
        self.number += 1
        self.writer.write(encode({"type": kind, "id": self.number, **fields}))
        while (await self.next()).get("id") != self.number:
            pass

    async def next(self):
        message = decode(await self.reader.readline())
        if message["type"] == "error":
            raise SystemExit(message["error"])
        self.news = message.get("result", message)
        return message

    async def until(self, wanted):
        while not wanted(self.news):
            await self.next()

    async def listen(self, seconds):
        """Read what comes, as a notebook does."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            with suppress(asyncio.TimeoutError):
                await within(left, self.next())

    async def launch(self, folder):
        order = {"script": "main.py", "source": TASK, "args": [], "env": dict(os.environ)}
        order |= {"given": {}, "draft": "", "cell": "", "notebook": [], "options": {}}
        order |= {"live": False, "keep": False, "answered": False, "attributes": {}}
        await self.ask("launch", tasks=[], cwd=str(folder), **order)


async def fake_task(worker, folder):
    """Do what `TASK` does."""
    fails = worker.task == "worker:1" and worker.attempt == 1
    step = 0
    while True:
        if step == 0 or (folder / "print").exists():
            step += 1
            worker.print(f"step {step}/1000 loss={1 / step}")
        for _ in range(10 if fails else 1):
            await worker.sleep(PRINT_SECONDS / (10 if fails else 1))
            if fails and (folder / "fail").exists():
                (folder / "failed").write_text(str(time.time()))
                raise ValueError("made on purpose")


def serve(folder, hosts):
    """Be the supervisor of a cluster on fake hosts."""
    machines = [
        FakeMachine(f"n{at}", address=f"10.0.{at >> 8}.{at & 255}", slots=SLOTS)
        for at in range(hosts)
    ]
    options = ClusterOptions(hosts * SLOTS, name="c", directory=str(folder), restarts=1)

    async def run():
        engine = FakeEngine(machines, lambda worker: fake_task(worker, folder))
        one = Supervisor(Start(options), folder / "s", engine)
        await one.open()
        await one.serve()

    asyncio.run(run())


def started(folder, tasks, hosts):
    """Start a supervisor."""
    if not hosts:
        start = declared(workers=tasks, directory=str(folder), restarts=1, warm=False)
        return start_supervisor(start, folder / "s")
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.scale", str(folder), str(hosts)])
    while not (folder / "s").exists():
        time.sleep(POLL_SECONDS)
    return process


@asynccontextmanager
async def cluster(folder, tasks, hosts):
    """Yield a client and the process of its supervisor."""
    process, path = started(folder, tasks, hosts), folder / "s"
    client = Client(*await asyncio.open_unix_connection(path, limit=MESSAGE_BYTES))
    await client.ask("hello", version=VERSION, owner=True)
    await client.until(lambda news: news["cluster"]["placing"]["state"] == "placed")
    yield client, psutil.Process(process.pid)
    await client.ask("close")
    client.writer.close()
    await client.writer.wait_closed()
    process.wait()


def trained(attempt):
    """Whether every task of an attempt has printed."""

    def all_did(news):
        run = news["run"]
        tasks = run["tasks"].values() if run and run["attempt"] == attempt else ()
        return bool(tasks) and all((task["progress"] or {}).get("step") for task in tasks)

    return all_did


def tells(news):
    """Whether it is told that a task failed: of a restart that comes at once, only what is kept."""
    return news["run"]["tasks"]["worker:1"]["finding"] or news["run"]["setbacks"]


async def share(client, process):
    """Return the percentage of a processor that a process uses."""
    before, began = sum(process.cpu_times()[:2]), time.monotonic()
    await client.listen(CPU_SECONDS)
    used = sum(process.cpu_times()[:2]) - before
    return 100 * used / (time.monotonic() - began)


async def clicks(client):
    """Return how long answers take, in seconds: the median, and the longest."""
    times = []
    for _ in range(CLICKS):
        await client.listen(PRINT_SECONDS / 10)
        began = time.monotonic()
        await client.ask("snapshot")
        times.append(time.monotonic() - began)
    return statistics.median(times), max(times)


async def measured(tasks, hosts):
    """Return the figures of one cluster, in the order of `COLUMNS`."""
    with tempfile.TemporaryDirectory(prefix="mw-") as name:
        folder = Path(name)
        async with cluster(folder, tasks, hosts) as (client, process):
            began = time.monotonic()
            await client.launch(folder)
            await client.until(trained(1))
            launch = time.monotonic() - began
            rest = await share(client, process)
            (folder / "print").touch()
            printing = await share(client, process)
            answers = await clicks(client)
            (folder / "fail").touch()
            await client.until(tells)
            told = time.time() - float((folder / "failed").read_text())
            await client.until(trained(2))
            again = time.time() - float((folder / "failed").read_text())
            began = time.monotonic()
            await client.ask("stop", task=None, grace=0.0)
            await client.until(lambda news: news["run"]["state"] == "stopped")
            stop = time.monotonic() - began
            memory = process.memory_info().rss / 2**20
        return [launch, told, again, stop, *answers, rest, printing, memory]


COLUMNS = {
    "launch": "s",
    "told": "s",
    "restart": "s",
    "stop": "s",
    "click": "s",
    "slowest": "s",
    "rest": "%",
    "printing": "%",
    "memory": "MB",
}
"""The figures and their units. Times are from the request, or from the failure, until the owner
has the news that all tasks print (again), that one failed, or that the run is over; `click` is the
median time of an answer while all print."""


WHAT = {
    "launch": "launch until all tasks have printed",
    "told": "failure until its owner knows of it",
    "restart": "failure until all tasks print again",
    "stop": "stop without grace until the run is over",
    "click": "answer to a click while all print",
    "slowest": f"the slowest of {CLICKS} answers",
    "rest": "supervisor at rest",
    "printing": "supervisor while all print",
    "memory": "supervisor's memory",
}


def name(tasks, hosts):
    return f"{tasks:,} tasks on {hosts} hosts" if hosts else f"{tasks} tasks here"


def measure(large, small, plan):
    calls = {
        "ours": lambda: asyncio.run(measured(*large)),
        "theirs": lambda: asyncio.run(measured(*small)),
    }
    found = alternated(plan.rounds(3, 1), **calls)
    for at, (column, unit) in enumerate(COLUMNS.items()):
        ours, theirs = ([values[at] for values in found[side]] for side in ("ours", "theirs"))
        yield Line(f"{WHAT[column]}, {name(*large)}", unit, ours, name(*small), theirs)


SHAPES = {
    "scale-16": ((16, 0), (2, 0)),
    "scale-64": ((64, 0), (2, 0)),
    "scale-64-hosts": ((64, 8), (8, 1)),
    "scale-1000-hosts": ((1000, 125), (8, 1)),
}
CASES = [
    Case(
        label,
        f"{name(*large)}: launch, failure, restart, clicks, memory, against {name(*small)}",
        partial(measure, large, small),
        slow=label != "scale-16",
    )
    for label, (large, small) in SHAPES.items()
]

if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
