"""What a cluster costs while nothing happens: processor time, and memory."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager

import psutil

from . import environments
from .case import Case, Line
from .clusters import cluster, folder
from .kernels import kernel

SLEEPS = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
PLAIN = "import {}\nprint('up', flush=True)\nimport time\ntime.sleep(600)\n"
LAUNCH = "%%mw_worker --overwrite --quiet\nprint('well')\n"
PERIOD_SECONDS = 4.0


@contextmanager
def sleeping(size):
    """Yield the supervisor of a cluster whose tasks sleep."""
    with folder(SLEEPS) as path, cluster(size, path) as one:
        run = one.run("main.py", cwd=path)
        while not all(run.logs(task) for task in one.tasks):
            time.sleep(0.05)
        time.sleep(1.0)  # what the launch left to do
        yield psutil.Process(one._process.pid)  # noqa: SLF001 - no user needs it
        run.stop(grace=0)


def share(*processes):
    """Return the percentage of a core that processes use."""
    before = sum(sum(one.cpu_times()[:2]) for one in processes)
    time.sleep(PERIOD_SECONDS)
    return 100 * (sum(sum(one.cpu_times()[:2]) for one in processes) - before) / PERIOD_SECONDS


def processor(plan):
    with sleeping(2) as few, sleeping(64) as many:
        found = [(share(many) / 64, share(few) / 2) for _ in range(plan.rounds(7, 1))]
    ours, theirs = map(list, zip(*found, strict=True))
    yield Line("supervisor at rest, for each of 64 tasks", "% of a core", ours, "of 2", theirs, 1.0)


def own(pid):
    """Return the megabytes that no other process shares."""
    return psutil.Process(pid).memory_full_info().uss / 2**20


def resident(pid):
    return psutil.Process(pid).memory_info().rss / 2**20


@contextmanager
def plain(*modules):
    """Yield the id of a plain process that has imported modules."""
    words = [sys.executable, "-c", PLAIN.format(", ".join(modules))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as one:
        one.stdout.readline()
        yield one.pid
        one.kill()


def warm(plan):
    ours, theirs = [], []
    for _ in range(plan.rounds(3, 1)):
        with folder() as path, cluster(2, path, warm=True) as one, plain("tensorflow") as other:
            time.sleep(PERIOD_SECONDS)  # it gives memory back once nothing is asked of it
            ours.append(resident(one.machines[0].warm.pid))
            theirs.append(resident(other))
    against = "plain import of TensorFlow"
    yield Line("memory of the warm process", "MB", ours, against, theirs, note="aim 250 MB")


def worker(plan):
    ours, theirs = [], []
    for _ in range(plan.rounds(5, 2)):
        with folder(SLEEPS) as path, cluster(1, path) as one, plain("sys") as other:
            run = one.run("main.py", cwd=path)
            while not (run.logs(one.tasks[0]) and run.status().tasks["worker:0"].pid):
                time.sleep(0.05)
            ours.append(own(run.status().tasks["worker:0"].pid))
            theirs.append(own(other))
            run.stop(grace=0)
    more = [f"{own - other:.1f}" for own, other in zip(ours, theirs, strict=True)]
    note = f"{', '.join(more)} MB more; aim 5"
    yield Line("memory of a worker's own", "MB", ours, "a plain process", theirs, note=note)


def runs(plan):
    """Compare what runs leave in memory with what IPython keeps of any cell with a value."""
    count = plan.rounds(1000, 100)
    with folder() as path, kernel(sys.executable, path) as notebook:
        [plain] = growth(notebook, count, [notebook.pid], ["[*range(99)]", "[*range(99)]"])
    with folder() as path, kernel(sys.executable, path) as notebook:
        notebook.run("%load_ext mwmagic\n%mw_cluster 2 --no-warm")
        pids = [notebook.pid, *(one.pid for one in psutil.Process(notebook.pid).children())]
        found = growth(notebook, count, pids, [LAUNCH, "%mw_wait --quiet"])
    for name, ours in zip(("kernel", "supervisor"), found, strict=True):
        what = f"memory that the {name} keeps of each of {count:,} runs"
        yield Line(what, "kB", [ours], "a kernel, of two cells with a value", [plain])


def growth(notebook, count, pids, cells):
    """Run cells so often; return how many kilobytes each time adds to processes."""

    def after(times):
        for cell in cells * times:
            notebook.run(cell)
        return [resident(pid) for pid in pids]

    before = after(count // 10)
    return [1024 * (now - old) / count for old, now in zip(before, after(count), strict=True)]


WARM = Case("rest-warm", "memory of the warm process, against a plain import", warm)
CASES = [
    Case("rest-processor", "supervisor at rest, 64 tasks against 2", processor),
    WARM,
    environments.alone(WARM),
    Case("rest-runs", "memory that 1,000 runs leave, against cells with a value", runs),
    Case("rest-worker", "memory of a worker's own, against a plain process", worker),
]
