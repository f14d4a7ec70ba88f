"""Executes notebooks as those do that test or print them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
NBVAL = ("pytest", "--nbval-lax", "--nbval-cell-timeout=300", "-p", "no:cacheprovider")

SHARING = (
    "custom_training_loop",
    "fault_tolerance",
    "from_the_tutorial",
    "multi_worker_keras",
    "tensorboard_and_profile",
)
"""Notebooks with two workers, which are executed one after another on one warm cluster."""


PORT_TAKEN = "Kernel died before replying to kernel_info"
"""What nbval says if another process has bound one of the kernel's ports: jupyter_client chooses
free ones, and the kernel binds them a second later. nbval has no option for unix sockets."""


def execute(directory, *arguments, **env):
    """Run a module with this interpreter; return what it said and whether it succeeded."""
    command, env = [sys.executable, "-m", *arguments], {**os.environ, **env}
    for _ in range(2):
        done = subprocess.run(
            command, check=False, cwd=directory, capture_output=True, text=True, env=env
        )
        said = done.stdout + done.stderr
        if PORT_TAKEN not in said:
            break
    return said, done.returncode == 0
