"""Executes notebooks as those do that test or print them."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tempfile
from functools import partialmethod
from pathlib import Path

from jupyter_client.manager import KernelManager

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
NBVAL = (
    "pytest",
    "--nbval-lax",
    "--nbval-cell-timeout=300",
    "--nbval-kernel-startup-timeout=300",
    "-p",
    "no:cacheprovider",
)

SHARING = (
    "custom_training_loop",
    "fault_tolerance",
    "from_the_tutorial",
    "multi_worker_keras",
    "tensorboard_and_profile",
)
"""Notebooks with two workers, which are executed one after another on one warm cluster."""


def execute(directory, *arguments, **env):
    """Run a module with this interpreter; return what it said and whether it succeeded."""
    command, env = [sys.executable, __file__, *arguments], {**os.environ, **env}
    done = subprocess.run(
        command, check=False, cwd=directory, capture_output=True, text=True, env=env
    )
    return done.stdout + done.stderr, done.returncode == 0


def main():
    """Run a module as ``python -m`` does; the kernels that it starts listen at files.

    jupyter_client chooses free ports, which a kernel binds when it has imported what it needs, a
    second or more later; it dies if another process has one of them by then. nbval and papermill
    have no option for files.
    """
    sys.path[0] = ""
    del sys.argv[0]
    with tempfile.TemporaryDirectory(prefix="mw-", dir="/tmp") as sockets:
        at = {"transport": "ipc", "ip": f"{sockets}/kernel"}
        KernelManager.__init__ = partialmethod(KernelManager.__init__, **at)
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
