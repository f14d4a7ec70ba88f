"""Environments for what mwmagic is compared with, and for mwmagic beside TensorFlow alone.

Each is made once below ``~/.cache/mwmagic-benchmarks`` (or ``$MWMAGIC_BENCHMARKS``), with pinned
versions. Delete the folder to have them made again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from .case import Skipped

CACHE = "MWMAGIC_BENCHMARKS"
INSTALL_SECONDS = 1200.0

ALONE = "tensorflow"
"""The environment without the packages that TensorFlow imports only where they are installed."""

WHERE_ALONE = ", where TensorFlow alone is installed"
"""What is said of a row that is measured there."""

PINS = {
    ALONE: (
        "tensorflow==2.21.0",
        "ipykernel==7.4.0",
        "ipywidgets==8.1.9",
        "anywidget==0.11.0",
        "psutil==7.2.2",
        "rich==15.0.0",
        "nbconvert==7.17.2",
    ),
    "torchrun": ("torch==2.13.0+cpu", "numpy==2.3.5", "ipykernel==7.4.0"),
    "ipyparallel": ("ipyparallel==9.2.0", "ipykernel==7.4.0"),
    "ray": ("ray[train]==2.60.0", "torch==2.13.0+cpu", "ipykernel==7.4.0"),
    "monarch": ("torchmonarch==0.7.0", "numpy==2.3.5", "ipykernel==7.4.0"),
    "jupyter-distributed": ("jupyter-distributed==0.1.1", "torch==2.13.0+cpu", "ipykernel==7.4.0"),
    "nbdistributed": (
        "nbdistributed==0.1.0",
        "torch==2.13.0+cpu",
        "numpy==2.3.5",
        "ipykernel==7.4.0",
    ),
}
"""What is installed into each. PyTorch's edition for the CPU: the other brings gigabytes."""


def alone(case):
    """Return a case that measures the same in the environment of TensorFlow alone."""
    about = case.about + WHERE_ALONE
    name = f"{case.name}-alone"
    return replace(case, name=name, about=about, slow=True, environment=ALONE)


def cache():
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(CACHE) or default / "mwmagic-benchmarks")


def place(name):
    """Return where an environment belongs: other pins make another one."""
    pins = " ".join((*PINS[name], sys.version))
    return cache() / f"{name}-{hashlib.sha256(pins.encode()).hexdigest()[:8]}"


def python(name):
    """Return the Python of an environment, which is made if there is none yet."""
    path = place(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (path / "complete").exists():
            make(name, path)
    return str(path / "bin" / "python")


def make(name, path):
    """Make an environment; what could not be made once is not tried again."""
    why = path.with_suffix(".failed")
    if not why.exists():
        print(f"installing {', '.join(PINS[name])} into {path}", file=sys.stderr, flush=True)
        shutil.rmtree(path, ignore_errors=True)
        failure = install(path, PINS[name])
        if not failure:
            (path / "complete").touch()
            return
        shutil.rmtree(path, ignore_errors=True)
        why.write_text(failure)
    raise Skipped(f"{name} cannot be installed here: {why.read_text()} (delete {why} to try again)")


def install(path, pins):
    """Make a virtual environment and install into it; return what went wrong."""
    pip = [path / "bin" / "python", "-m", "pip", "install", "--quiet", *pins]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command in ([sys.executable, "-m", "venv", path], pip):
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=INSTALL_SECONDS,
                env=clean,
            )
        except subprocess.TimeoutExpired:
            return f"it took more than {INSTALL_SECONDS:.0f} s"
        if done.returncode:
            return (done.stderr.strip() or "pip says nothing").splitlines()[-1][:200]
    return ""
