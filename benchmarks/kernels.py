"""Real kernels, in any environment, whose cells are timed and whose messages are weighed."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty

from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

CELL_SECONDS = 180.0


class Failed(Exception):
    """A cell raised."""


@dataclass
class Answer:
    """What came of a cell: all that it showed, and whether it raised."""

    seconds: float = 0.0
    text: str = ""
    failed: bool = False


class Kernel:
    """A kernel and what speaks to it."""

    def __init__(self, manager, client):
        self.manager, self.client = manager, client

    @property
    def pid(self):
        return self.manager.provisioner.pid

    def send(self, code):
        return self.client.execute(code, stop_on_error=False, allow_stdin=False)

    def hear(self, request, seconds=CELL_SECONDS):
        """Wait until a cell is done; return what came of it."""
        answer, began = Answer(), time.monotonic()
        while True:
            left = seconds - (time.monotonic() - began)
            try:
                message = self.client.get_iopub_msg(timeout=max(left, 0.0))
            except Empty:
                raise TimeoutError("the cell did not end in time") from None
            kind, content = message["msg_type"], message["content"]
            if kind == "error":
                answer.failed = True
                answer.text += "\n".join(content["traceback"])
            answer.text += content.get("text", "") + content.get("data", {}).get("text/plain", "")
            parent = message["parent_header"].get("msg_id")
            if parent == request and content.get("execution_state") == "idle":
                answer.seconds = time.monotonic() - began
                return answer

    def run(self, code, seconds=CELL_SECONDS):
        """Run a cell; raise if it does."""
        answer = self.hear(self.send(code), seconds)
        if answer.failed:
            raise Failed(f"{code.splitlines()[0]}: {answer.text[-400:]}")
        return answer


@contextmanager
def kernel(python, path, **env):
    """Yield a kernel that runs on a Python, whose programs come first, in a directory."""
    manager = KernelManager()
    argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    manager._kernel_spec = KernelSpec(argv=argv, display_name="", language="python")  # noqa: SLF001
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    path_variable = os.pathsep.join((str(Path(python).parent), os.environ["PATH"]))
    manager.start_kernel(cwd=str(path), env={**os.environ, "PATH": path_variable, **env}, **quiet)
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
