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


def execute(directory, *arguments, **env):
    """Run a module with this interpreter; return what it said and whether it succeeded."""
    command, env = [sys.executable, "-m", *arguments], {**os.environ, **env}
    done = subprocess.run(
        command, check=False, cwd=directory, capture_output=True, text=True, env=env
    )
    return done.stdout + done.stderr, done.returncode == 0
