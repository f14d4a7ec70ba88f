"""Runs the real agent, speaks its protocol, and holds it to what it says."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager
from pathlib import Path

from processes import PATIENCE

AGENT = Path(__file__).parents[2] / "mwmagic" / "agent" / "__main__.py"
ZYGOTE = [str(AGENT), "zygote"]
PYTHON = [sys.executable, "-I", "-S"]
LINES = "import sys; sys.stdout.reconfigure(line_buffering=True)\n"  # a print is one write
HELPER = """
import os, subprocess, sys
command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(1000)"]
quiet = {"stdin": -3, "stdout": -3, "stderr": -3}
helper = subprocess.Popen(command, env={}, start_new_session=True, **quiet)
os.write(1, f"helper={helper.pid}\\n".encode())
os._exit(0)
"""
"""What it starts last has neither its session nor its environment nor a moment to be seen."""


class Speaker:
    """One agent, and everything that it has said."""

    def __init__(self, folder, *, parent=None, silence=0, sample=0, greet=True, program=AGENT):
        self.folder = folder
        self.child = subprocess.Popen(
            [*PYTHON, str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        os.set_blocking(self.child.stdout.fileno(), False)
        self.pid = self.child.pid
        self.events = []
        self.rest = b""
        self.over = False
        if greet:
            self.say(
                "hello", version=1, parent=parent, silence=silence, sample=sample, inherit=False
            )
            self.hello = self.wait("hello")

    def say(self, kind, **fields):
        self.write(json.dumps({"type": kind, **fields}).encode() + b"\n")

    def write(self, data):
        self.child.stdin.write(data)

    @contextmanager
    def together(self):
        """Write what is said meanwhile in one piece, which the agent reads in one turn."""
        pieces = []
        self.write = pieces.append
        try:
            yield
        finally:
            del self.write
        self.write(b"".join(pieces))

    def start(self, name, code="", *, argv=None, **fields):
        command = {
            "process": name,
            "argv": argv if argv is not None else [*PYTHON, "-c", LINES + textwrap.dedent(code)],
            "env": dict(os.environ),
            "cwd": str(self.folder),
            "attributes": {},
            "log": str(self.log(name)),
            "report": None,
            "zygote": None,
            "credit": 1 << 20,
            "grace": 0,
        }
        self.say("start", **{**command, **fields})

    def log(self, name):
        return self.folder / f"{name.replace(':', '-')}.log"

    def hear(self, timeout=0.05):
        """Take what the agent says within a time."""
        if self.over or not select.select([self.child.stdout], [], [], timeout)[0]:
            return
        data = os.read(self.child.stdout.fileno(), 1 << 20)
        self.over = not data
        *lines, self.rest = (self.rest + data).split(b"\n")
        self.events += [json.loads(line) for line in lines]

    def until(self, condition, what="what the test waits for"):
        """Listen until something holds."""
        deadline = time.monotonic() + PATIENCE
        while not (result := condition()):
            assert time.monotonic() < deadline, f"no {what} in {PATIENCE} s: {self.events[-5:]}"
            self.hear()
        return result

    def all(self, kind, **fields):
        return [
            event
            for event in self.events
            if event["type"] == kind and fields.items() <= event.items()
        ]

    def wait(self, kind, **fields):
        """Return the first event of a kind, past or future."""
        return self.until(lambda: self.all(kind, **fields), f"{kind} {fields}")[0]

    def printed(self, name):
        """Return the bytes that were forwarded of a log."""
        pieces = self.all("output", process=name)
        return b"".join(one["data"].encode("utf-8", "surrogateescape") for one in pieces)

    def says(self, name, text):
        """Wait until a worker has printed something."""
        return self.until(lambda: text.encode() in self.printed(name), f"{text!r} from {name}")

    def number(self, name, word):
        """Return the number that a worker printed after a word."""
        self.says(name, "\n")
        self.until(lambda: f"{word}=".encode() in self.printed(name), word)
        return int(self.printed(name).split(f"{word}=".encode())[1].split()[0])

    def close(self):
        if self.child.poll() is None:
            self.child.stdin.close()
            try:
                self.child.wait(120)
            except subprocess.TimeoutExpired:
                os.kill(self.pid, signal.SIGKILL)
                self.child.wait()
                raise
        self.child.stdout.close()


def state(pid):
    """Return the state of a process as the kernel's letter, or an empty text if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return stat[stat.rindex(b")") + 2 :].split()[0].decode()


def gone(pids):
    """Whether processes have ended, reaped or not."""
    return all(state(pid) in ("", "Z") for pid in pids)
