"""A client in a process of its own: it declares a cluster, runs code, and then does as told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from processes import eventually

CLIENT = """
import json, os, signal, sys, time
from mwmagic import Cluster
cluster = Cluster(2, warm=False, grace=60, detach="--detach" in sys.argv)
run = cluster.run("main.py")
print(json.dumps([os.getpid(), cluster._process.pid]), flush=True)
exec(sys.stdin.readline())
"""

FAMILY = """
import os, subprocess, sys, time
sleeper = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
helper = subprocess.Popen(sleeper, start_new_session=True)
hidden = subprocess.Popen(sleeper, start_new_session=True, env={})
print(os.getpid(), helper.pid, hidden.pid, flush=True)
time.sleep(600)
"""
"""A worker with helpers in sessions of their own, one of which has no environment."""


class Owner:
    """The client, its supervisor, and what its workers started."""

    def __init__(self, *options):
        Path("main.py").write_text(FAMILY)
        self.child = subprocess.Popen(
            [sys.executable, "-c", CLIENT, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid, self.supervisor = json.loads(self.child.stdout.readline())

    def workers(self):
        """Wait until the workers have told who they and their helpers are."""
        logs = [Path(f".mwmagic/runs/0001-main/attempt-1/worker-{index}.log") for index in (0, 1)]
        texts = eventually(lambda: all(log.exists() and "\n" in log.read_text() for log in logs))
        texts = [log.read_text() for log in logs]
        return [int(word) for text in texts for word in text.split()]

    def does(self, code):
        """Have it do something; its process ends after that."""
        self.child.stdin.write(code + "\n")
        self.child.stdin.flush()

    def close(self):
        self.child.kill()
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()
