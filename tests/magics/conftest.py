"""A real kernel, spoken to through jupyter_client."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty

import pytest
from kernels import execute, plain, started


@dataclass
class Result:
    """What a cell put out."""

    text: str = ""
    shown: dict[str, dict] = field(default_factory=dict)
    value: str | None = None
    error: str | None = None


class Kernel:
    def __init__(self, manager, client):
        self.manager, self.client = manager, client
        self.shown = {}

    def send(self, code):
        return execute(self.client, code)

    def run(self, code, timeout=120):
        return self.collect(self.send(code), timeout)

    def collect(self, request, timeout=120):
        result = Result()
        while True:
            message = self.client.get_iopub_msg(timeout=timeout)
            kind, content = message["msg_type"], message["content"]
            if kind in ("display_data", "update_display_data"):
                self.shown[content.get("transient", {}).get("display_id")] = content["data"]
            if message["parent_header"].get("msg_id") != request:
                continue
            if kind == "stream":
                result.text += content["text"]
            elif kind == "execute_result":
                result.value = content["data"]["text/plain"]
            elif kind == "error":
                result.error = plain(content)
            elif kind == "status" and content["execution_state"] == "idle":
                result.shown = self.shown
                return result

    def printed(self):
        """Return what has been printed until now, while a cell runs."""
        text = ""
        with suppress(Empty):
            while True:
                message = self.client.get_iopub_msg(timeout=0)
                text += message["content"]["text"] if message["msg_type"] == "stream" else ""
        return text

    def restart(self, *, now):
        """Restart it, with or without a word to it before, and load the extension again."""
        if now:  # Jupyter interrupts it even then, which it may still notice
            os.kill(self.manager.provisioner.pid, signal.SIGKILL)
        self.manager.restart_kernel(now=now)
        self.client.wait_for_ready(timeout=120)
        assert self.run("%load_ext mwmagic").error is None

    def complete(self, code, cursor=None):
        reply = self.client.complete(code, cursor or len(code), reply=True, timeout=120)
        return reply["content"]["matches"]


@pytest.fixture
def kernel(nursery, tmp_path):
    """A kernel in an empty directory, with the extension loaded."""
    with started(nursery, tmp_path, Kernel) as kernel:
        assert kernel.run("%load_ext mwmagic").error is None
        yield kernel
