"""Live cells in a terminal: IPython, at a real one."""

from __future__ import annotations

import os
import pty
import sys
from contextlib import contextmanager
from select import select

import IPython
import pytest

IPYTHON = [sys.executable, "-m", "IPython", "--no-banner"]
COMPLETION = "\t" if IPython.version_info >= (8,) else "d"
"""What completes a name at a dumb terminal, at which IPython 7 completes nothing."""


class Terminal:
    """The other end of a terminal at which IPython runs."""

    def __init__(self, process, descriptor):
        self.process, self._descriptor, self._seen = process, descriptor, ""

    def until(self, *texts):
        """Read until one of the texts comes, and forget what came before its end."""
        while not (found := [text for text in texts if text in self._seen]):
            assert select([self._descriptor], [], [], 120.0)[0], self._seen
            data = os.read(self._descriptor, 65536)
            assert data, self._seen
            self._seen += data.decode()
        self._seen = self._seen.partition(found[0])[2]

    def type(self, text):
        os.write(self._descriptor, text.encode())


@contextmanager
def terminal(folder):
    """Run IPython at a terminal of its own, of which it is the foreground job."""
    pid, descriptor = pty.fork()
    if not pid:
        os.chdir(folder)
        os.execve(IPYTHON[0], IPYTHON, {**os.environ, "TERM": "dumb", "IPYTHONDIR": str(folder)})
    try:
        yield Terminal(pid, descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.slow
def test_live_cells_run_ask_and_are_interrupted_at_a_terminal(tmp_path, nothing_survives):
    def cell(one, *lines):
        one.type("".join(f"{line}\r" for line in [*lines, "", ""]))

    with terminal(tmp_path) as one:
        one.until("In [1]: ")
        one.type("%load_ext mwmagic\r")
        one.until("In [2]: ")
        one.type("%mw_cluster 2 --no-warm\r")
        one.until("In [3]: ")
        cell(one, "%%mw_live", "import os; os.environ['MWMAGIC_TASK']")
        one.until("live interpreters on 2 tasks")
        one.until("'worker:1'")
        one.until("In [4]: ")
        cell(one, "%%mw_live --tasks 1", "input('name? ')")
        one.until("[1] name? ")
        one.type("Ada\r")
        one.until("'Ada'")
        one.until("In [5]: ")
        cell(one, "%%mw_live", "import time; print('i' + 'n'); time.sleep(600)")
        # Equal lines are one line, unless a busy machine has them far apart.
        one.until("[0-1] in", "[0] in", "[1] in")
        one.type("\x03")
        one.until("interrupted")
        one.until("In [6]: ")
        cell(one, "%%mw_live --tasks 0", "1 / 0")
        one.until("worker:0 raised ZeroDivisionError: division by zero")
        one.until("In [7]: ")
        one.type(f"%%mw_live --tasks 0\ros.getpi{COMPLETION}")
        one.until("os.getpid")
        cell(one, "() * 0 + 7")
        one.until("\n7\r")
        one.until("In [8]: ")
        one.type("exit\r")
        _, status = os.waitpid(one.process, 0)
    assert os.waitstatus_to_exitcode(status) == 0
