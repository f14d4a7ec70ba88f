"""What grows with the number of tasks and hosts: how soon the owner of a cluster has its news.

The tasks are `fakes` on hosts in the supervisor's own process, so that what fake agents and tasks
cost is counted as the supervisor's. A larger cluster is compared with a smaller one.
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

from fakes import FakeEngine, FakeMachine

from mwmagic.engines.link import within
from mwmagic.model.messages import MESSAGE_BYTES, VERSION, Launch, Start, decode, encode
from mwmagic.model.options import ClusterOptions
from mwmagic.supervisor.supervisor import Supervisor

from .case import Case, Line
from .ratio import alternated

SLOTS = 8
"""Tasks on each fake host."""

PRINT_SECONDS = 1.0
CLICKS = 20
POLL_SECONDS = 0.02


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
        launch = Launch("main.py", env=dict(os.environ), cwd=str(folder))
        order = {"tasks": [], "source": "", "draft": "", "options": {}}
        await self.ask("launch", **order, **launch.as_json())


async def fake_task(worker, folder):
    """Print progress once a second while all print; the second task fails when it is to."""
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


def started(folder, hosts):
    """Start a supervisor."""
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.scale", str(folder), str(hosts)])
    while not (folder / "s").exists():
        time.sleep(POLL_SECONDS)
    return process


@asynccontextmanager
async def cluster(folder, hosts):
    """Yield a client and the process of its supervisor."""
    process, path = started(folder, hosts), folder / "s"
    client = Client(*await asyncio.open_unix_connection(path, limit=MESSAGE_BYTES))
    await client.ask("hello", version=VERSION, owner=True)
    await client.until(lambda news: news["cluster"]["placing"]["state"] == "placed")
    yield client
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
    """Whether it is reported that a task failed: of a restart that comes at once, only what is
    kept."""
    return news["run"]["tasks"]["worker:1"]["finding"] or news["run"]["setbacks"]


async def clicks(client):
    """Return how long answers take, in seconds: the median, and the longest."""
    times = []
    for _ in range(CLICKS):
        await client.listen(PRINT_SECONDS / 10)
        began = time.monotonic()
        await client.ask("snapshot")
        times.append(time.monotonic() - began)
    return statistics.median(times), max(times)


async def measured(hosts):
    """Return the seconds of one cluster, in the order of `WHAT`."""
    with tempfile.TemporaryDirectory(prefix="mw-") as name:
        folder = Path(name)
        async with cluster(folder, hosts) as client:
            began = time.monotonic()
            await client.launch(folder)
            await client.until(trained(1))
            launch = time.monotonic() - began
            (folder / "print").touch()
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
        return [launch, told, again, stop, *answers]


WHAT = (
    "launch until all tasks have printed",
    "failure until its owner knows of it",
    "failure until all tasks print again",
    "stop without grace until the run is over",
    "answer to a click while all print",
    f"the slowest of {CLICKS} answers",
)
"""Times are from the request, or from the failure, until the owner has the news."""


def name(hosts):
    return f"{hosts * SLOTS:,} tasks on {hosts} hosts"


def measure(large, small, plan):
    calls = {
        "ours": lambda: asyncio.run(measured(large)),
        "theirs": lambda: asyncio.run(measured(small)),
    }
    found = alternated(plan.rounds(3, 1), **calls)
    for at, what in enumerate(WHAT):
        ours, theirs = ([values[at] for values in found[side]] for side in ("ours", "theirs"))
        yield Line(f"{what}, {name(large)}", "s", ours, name(small), theirs)


CASES = [
    Case(
        f"scale-{label}-hosts",
        f"{name(hosts)}: launch, failure, restart, stop and clicks, against {name(1)}",
        partial(measure, hosts, 1),
        slow=True,
    )
    for label, hosts in (("64", 8), ("1000", 125))
]

if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
