"""Processes known by a variable that all of them inherit."""

from __future__ import annotations

import os
from pathlib import Path

LABEL = "MWMAGIC_BENCHMARK_LABEL"


def processes(label):
    """Return the ids of the living processes with a label, without this one."""
    wanted = f"{LABEL}={label}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes().split(b"\0")
                state = (entry / "stat").read_bytes().rpartition(b") ")[2][:1]
            except OSError:
                continue
            if wanted in environment and state not in (b"Z", b"X"):
                found.append(int(entry.name))
    return found
