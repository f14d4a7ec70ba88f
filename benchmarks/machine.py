"""The shape of the machine that figures come from."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("mwmagic", "tensorflow", "keras", "ipykernel")


def model():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")


def versions():
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            yield f"{name} {version(name)}"


def shape():
    """Return one line about this machine: processors, memory, system and versions."""
    gigabytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    cores = f"{len(os.sched_getaffinity(0))} processors ({model() or platform.machine()})"
    system = f"Linux {platform.release().partition('-')[0]}, Python {platform.python_version()}"
    return ", ".join((cores, f"{gigabytes:.0f} GB", system, *versions()))
