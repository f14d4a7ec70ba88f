"""Environments for what mwmagic is compared with.

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
from pathlib import Path

from .case import Skipped

CACHE = "MWMAGIC_BENCHMARKS"
INSTALL_SECONDS = 1200.0

PINS = {
    "torchrun": ("torch==2.13.0+cpu", "numpy==2.3.5", "ipykernel==7.4.0"),
    "ipyparallel": ("ipyparallel==9.2.0", "ipykernel==7.4.0"),
    "ray": ("ray[train]==2.60.0", "torch==2.13.0+cpu", "ipykernel==7.4.0"),
}
"""What is installed into each. PyTorch's edition for the CPU: the other brings gigabytes."""


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
