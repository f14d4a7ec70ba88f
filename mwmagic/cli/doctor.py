"""``mwmagic doctor``: what works on this machine, what does not, and what to do about it.

The last check is the main job itself: two workers start, reach each other and train, so whatever
breaks a training here is found, and is explained as any run is.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.client.cluster import Cluster
from mwmagic.client.records import explained
from mwmagic.errors import MwmagicError, RunFailed
from mwmagic.frameworks import frameworks
from mwmagic.model.values import counted
from mwmagic.record.paths import runs_folder
from mwmagic.record.provenance import versions
from mwmagic.words.file import size_words

from .output import add_json, say, show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from mwmagic.model.machine import Machine

__all__ = ["Check", "Verdict", "add"]

PACKAGES = (
    *("tensorflow", "keras", "tf_keras", "jax", "torch", "numpy"),
    *("IPython", "ipykernel", "ipywidgets", "anywidget", "jupyterlab", "notebook", "nbval"),
    *("ray", "optuna", "tensorboard", "mlflow"),
)
"""The packages whose versions matter to a report of a problem."""

SHARED_MEMORY_BYTES = 64 << 20
"""Containers have this much by default; arrays of live cells and data loaders need more."""

DISK_BYTES = 1 << 30
"""The free space below which a checkpoint and the logs of a long training may fill a disk."""

OPEN_FILES_COUNT = 1024
"""How many files a supervisor with some dozens of tasks may have open."""

NEEDED_INSTRUCTION = "avx"
"""What a CPU of x86-64 must have for TensorFlow's wheels; see its page on installing with pip."""

INSTRUCTIONS = (NEEDED_INSTRUCTION, "avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16")
"""Those that TensorFlow uses where they are."""

SLURM_SECONDS = 10.0
"""How long a Slurm controller may take to list its nodes."""

PROBE_SECONDS = 240.0
"""How long the two workers may take: the first import of TensorFlow may read a slow disk."""


class Verdict(str, Enum):
    """What a check has found."""

    GOOD = "ok"
    ABSENT = "absent"
    """Not there, and needed only by who wants it."""
    DOUBTFUL = "doubtful"
    BAD = "bad"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""
    """What to do; empty if nothing is to be done."""


def add(command: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_json(command)
    what = "Leave out the two workers that are started to see whether they reach each other."
    command.add_argument("--no-run", action="store_true", help=what)
    command.set_defaults(action=_doctor)


def _doctor(given: argparse.Namespace) -> int:
    checks = []
    for one in _checks(run=not given.no_run):
        checks.append(one)
        if not given.json:
            show(_line(one))
    wrong = [one for one in checks if one.verdict is Verdict.BAD]
    if given.json:
        found = [asdict(one) for one in checks]
        print(json.dumps({"versions": versions(PACKAGES), "checks": found}))
    elif wrong:
        say(f"trainings fail here until this works: {', '.join(one.name for one in wrong)}")
    return 1 if wrong else 0


def _line(one: Check) -> str:
    text = f"{one.verdict.value:<9}{one.name}: {one.found}"
    return f"{text}\n{'':<9}{one.remedy}" if one.remedy else text


def _checks(*, run: bool) -> Iterator[Check]:
    known = versions(PACKAGES)
    places = f"mwmagic in {Path(__file__).parents[1]}, Python at {sys.executable}"
    yield Check("installation", Verdict.GOOD, places)
    yield Check("system", Verdict.GOOD, platform.platform())
    texts = ", ".join(f"{name} {found}" for name, found in known.items() if found)
    yield Check("versions", Verdict.GOOD, texts)
    yield _framework(known)
    yield _widget(known)
    yield _folder(Path.cwd())
    yield _shared_memory(Path("/dev/shm"))  # noqa: S108 - only looked at
    yield _open_files()
    yield _processes()
    yield _instructions(_text("/proc/cpuinfo"), platform.machine())
    yield _cpu_time(_text("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    yield _variables()
    yield from _engines()
    if run:
        yield from _probe(tensorflow=bool(known["tensorflow"]))


def _framework(known: dict[str, str | None]) -> Check:
    there = [one.name for one in frameworks() if known.get(one.name)]
    if there:
        return Check("framework", Verdict.GOOD, ", ".join(there))
    remedy = 'pip install "mwmagic[tensorflow]"'
    return Check("framework", Verdict.DOUBTFUL, "none is installed here", remedy)


def _widget(known: dict[str, str | None]) -> Check:
    """Look for the files that a browser loads; they belong to the Python that serves Jupyter."""
    if not (known["jupyterlab"] or known["notebook"]):
        found = "JupyterLab is not in this environment; the widget belongs where Jupyter runs"
        remedy = 'pip install "mwmagic[lab]" if Jupyter is to run from this environment'
        return Check("widget", Verdict.ABSENT, found, remedy)
    folders = [
        Path(sys.prefix, "share", "jupyter", "labextensions", name)
        for name in ("anywidget", "@jupyter-widgets/jupyterlab-manager")
    ]
    missing = [str(one) for one in folders if not one.is_dir()]
    if not missing:
        return Check("widget", Verdict.GOOD, "JupyterLab can show the dashboard")
    remedy = "pip install --force-reinstall anywidget jupyterlab_widgets, then reload the page"
    return Check("widget", Verdict.BAD, f"missing: {', '.join(missing)}", remedy)


def _folder(here: Path) -> Check:
    records = runs_folder(here)
    there = next(one for one in (records, *records.parents) if one.exists())
    if not os.access(there, os.W_OK):
        remedy = "start in a folder that you may write, or give --directory"
        return Check("folder", Verdict.BAD, f"{there} cannot be written", remedy)
    free = shutil.disk_usage(there).free
    found = f"{records} has {size_words(free)} free"
    if free < DISK_BYTES:
        return Check("folder", Verdict.DOUBTFUL, found, "`mwmagic gc` lists old runs to remove")
    return Check("folder", Verdict.GOOD, found)


def _shared_memory(path: Path) -> Check:
    if not path.is_dir():
        remedy = "give the container one, as `docker run --shm-size=2g`"
        return Check("shared memory", Verdict.DOUBTFUL, f"there is no {path}", remedy)
    free = shutil.disk_usage(path).free
    found = f"{path} has {size_words(free)} free"
    if free <= SHARED_MEMORY_BYTES:
        remedy = "large arrays do not fit: in a container, `docker run --shm-size=2g`"
        return Check("shared memory", Verdict.DOUBTFUL, found, remedy)
    return Check("shared memory", Verdict.GOOD, found)


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES_COUNT:
        most = 4 * OPEN_FILES_COUNT
        remedy = f"`ulimit -n {min(most, hard) if hard > 0 else most}`"
        return Check("open files", Verdict.DOUBTFUL, f"at most {soft} for a process", remedy)
    return Check("open files", Verdict.GOOD, f"{soft} for a process")


def _processes() -> Check:
    """Try what the agent watches and ends processes with."""
    try:
        os.close(os.pidfd_open(os.getpid()))
        Path("/proc/self/stat").read_bytes()
    except OSError as error:
        remedy = "Linux 5.3 or later with /proc; a container must allow the call pidfd_open"
        return Check("processes", Verdict.BAD, f"cannot be watched: {error}", remedy)
    return Check("processes", Verdict.GOOD, "pidfd and /proc can be used")


def _text(path: str) -> str:
    """Return what a file of the kernel's says; nothing if this kernel has none."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _instructions(cpuinfo: str, architecture: str) -> Check:
    """Look for what TensorFlow's wheels are built with, and for what makes it fast."""
    flags = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "").split()
    if architecture != "x86_64":
        found = f"TensorFlow needs none beyond those of every {architecture}"
        return Check("instructions", Verdict.GOOD, found)
    if not flags:
        return Check("instructions", Verdict.ABSENT, "/proc/cpuinfo does not list the CPU's")
    there = [name for name in INSTRUCTIONS if name in flags]
    if NEEDED_INSTRUCTION not in there:
        found = f"this CPU has no {NEEDED_INSTRUCTION}: importing TensorFlow ends with SIGILL"
        remedy = "another machine, or a virtual one that passes the CPU's instructions on"
        return Check("instructions", Verdict.BAD, found, remedy)
    return Check("instructions", Verdict.GOOD, ", ".join(there))


def _cpu_time(groups: str, top: Path) -> Check:
    """Look for the limit that a container or a scheduler sets for the CPU time of its processes."""
    count = len(os.sched_getaffinity(0))
    limit = min(_cpu_limits(groups, top), default=float(count))
    if limit >= count:
        return Check("CPU time", Verdict.GOOD, f"not limited below {counted(count, 'CPU')}")
    found = f"limited to {limit:.2g} of {counted(count, 'CPU')}, which programs do not see"
    most = max(int(limit), 1)
    remedy = f"a higher limit, or `--threads`: all workers together at most {most}"
    return Check("CPU time", Verdict.DOUBTFUL, found, remedy)


def _cpu_limits(groups: str, top: Path) -> Iterator[float]:
    """Yield each limit of this process's control groups, in CPUs: of version 2, and of 1.

    A group is limited by those that contain it, too; a container sees its own as the top one.
    """
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        folder = top / "cpu" if controllers else top
        inner = Path(path.lstrip("/"))
        for one in (inner, *inner.parents):
            with suppress(OSError, ValueError):  # not there, or "max"
                if controllers:
                    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                    quota, period = (int((folder / one / name).read_text()) for name in names)
                else:
                    quota, period = map(int, (folder / one / "cpu.max").read_text().split())
                if quota > 0:
                    yield quota / period


def _variables() -> Check:
    """Look for variables that surprise people in workers."""
    found = [name for name in ("TF_CONFIG", "PYTHONPATH", "PYTHONHOME") if os.environ.get(name)]
    if not found:
        return Check("variables", Verdict.GOOD, "none that changes workers")
    means = {
        "TF_CONFIG": "each worker gets its own instead",
        "PYTHONPATH": "workers import from it before what is installed",
        "PYTHONHOME": "workers look for the standard library there",
    }
    texts = "; ".join(f"{name} is set: {means[name]}" for name in found)
    remedy = f"`unset {' '.join(found)}` if that is not what you want"
    return Check("variables", Verdict.DOUBTFUL, texts, remedy)


def _engines() -> Iterator[Check]:
    yield _slurm()
    there = {"ssh": bool(shutil.which("ssh")), "ray": find_spec("ray") is not None}
    for name, found in there.items():
        text = f"--engine {name} can be used" if found else f"no {name} here"
        yield Check(name, Verdict.GOOD if found else Verdict.ABSENT, text)


def _slurm() -> Check:
    """Ask for the nodes: Slurm's programs may be installed on a machine of no cluster."""
    if not shutil.which("salloc"):
        return Check("slurm", Verdict.ABSENT, "no salloc here")
    try:
        asked = subprocess.run(
            ["sinfo", "--noheader"],  # noqa: S607 - as the engine finds it
            capture_output=True,
            text=True,
            timeout=SLURM_SECONDS,
            check=False,
        )
        why = asked.stderr.strip() or "sinfo failed" if asked.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    if why:
        found = f"salloc is here, but no cluster answers: {why.splitlines()[-1]}"
        remedy = "for --engine slurm, start where `sinfo` lists nodes, such as a login node"
        return Check("slurm", Verdict.DOUBTFUL, found, remedy)
    return Check("slurm", Verdict.GOOD, "--engine slurm can be used")


_PLAIN = """
import json, os, socket
config = json.loads(os.environ["TF_CONFIG"])
workers, index = config["cluster"]["worker"], config["task"]["index"]
host, _, port = workers[index].rpartition(":")
with socket.create_server((host, int(port))) as server:
    if index:
        print(server.accept()[0].recv(5).decode())
    else:
        while True:
            try:
                other = socket.create_connection(workers[1].rsplit(":", 1), 5)
                break
            except ConnectionRefusedError:
                pass
        other.sendall(b"hello")
"""

_TENSORFLOW = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
assert strategy.num_replicas_in_sync >= 2
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
ones = tf.ones((64, 1))
model.fit(tf.data.Dataset.from_tensor_slices((ones, ones)).batch(32), verbose=0)
"""


def _probe(*, tensorflow: bool) -> Iterator[Check]:
    """Start two workers here, and let them train or connect."""
    what = "trained together" if tensorflow else "reached each other, without TensorFlow"
    with tempfile.TemporaryDirectory(prefix="mwmagic-doctor-") as name:
        folder = Path(name)
        script = folder / "doctor.py"
        script.write_text(_TENSORFLOW if tensorflow else _PLAIN)
        try:
            with Cluster.declare(say, workers=2, warm=False, directory=folder) as cluster:
                machine = cluster.machines[0].machine
                run = cluster.run(script, cwd=folder)
                try:
                    run.wait(PROBE_SECONDS)
                except RunFailed:
                    yield Check("two workers", Verdict.BAD, "\n".join(explained(run.record)[1]))
                else:
                    yield Check("two workers", Verdict.GOOD, what)
        except MwmagicError as error:
            yield Check("two workers", Verdict.BAD, str(error))
            return
    if machine is not None:
        yield from _machine(machine)


def _machine(machine: Machine) -> Iterator[Check]:
    memory = f", {size_words(machine.memory)} of memory" if machine.memory else ""
    yield Check("machine", Verdict.GOOD, f"{machine.processors} CPUs{memory}")
    if machine.gpus:
        names = ", ".join(one.name for one in machine.gpus)
        yield Check("GPUs", Verdict.GOOD, names)
    else:
        yield Check("GPUs", Verdict.ABSENT, machine.why or "the driver lists none")
