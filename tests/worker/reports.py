"""A worker of which the private line is read."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager

from mwmagic.worker import bootstrap

KERAS = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_NUM_INTRAOP_THREADS": "1"}


@contextmanager
def worker(tmp_path, code, *, room=None, **env):
    """Start a script as a worker; yields the process and the line's other end."""
    script = tmp_path / "main.py"
    script.write_text(code)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if room is not None:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
    with ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, bootstrap.__file__, str(script)],
                env={**os.environ, **KERAS, **env, "MWMAGIC_LINE": str(theirs.fileno())},
                pass_fds=[theirs.fileno()],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        with process:
            yield process, ours
            process.kill()


def packets(ours):
    """Return all that a program reports over a line, to its end."""
    found = []
    while data := ours.recv(1 << 17):
        packet = json.loads(data, parse_constant=lambda name: 1 / 0)
        if "over" not in packet:  # which says that the program has ended
            found.append(packet)
    return found


def run(tmp_path, code, **options):
    """Run a script as a worker, and return what it reported, printed and said of errors."""
    with worker(tmp_path, code, **options) as (process, ours):
        found = packets(ours)
        out, err = process.communicate()
    return found, out, err
