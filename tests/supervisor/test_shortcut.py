"""A shorter way to a worker on the supervisor's own machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest
from processes import eventually, running
from test_guard import guarded

from mwmagic import Cluster
from mwmagic.supervisor.shortcut import borrowed

HOLDER = """
import os, socket, sys
near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
print(near.fileno(), os.fstat(near.fileno()).st_ino, flush=True)
print(far.recv(100).decode(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder():
    """A process that has a line, and prints what comes to its other end."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with running([sys.executable, "-c", HOLDER], text=True, **pipes) as one:
        number, inode = map(int, one.stdout.readline().split())
        one.known = {"descriptor": number, "inode": inode}
        yield one
        one.stdin.close()


def test_a_packet_reaches_the_other_end(holder):
    shortcut = borrowed(holder.pid, holder.known)
    assert shortcut.tell(b"hello")
    assert holder.stdout.readline() == "hello\n"
    shortcut.close()


@pytest.mark.parametrize("changes", [{"inode": 1}, {"descriptor": 999}])
def test_another_socket_than_the_one_that_is_meant_is_not_written_to(holder, changes):
    assert borrowed(holder.pid, {**holder.known, **changes}) is None
    assert borrowed(holder.pid, holder.known).tell(b"end")


def test_nothing_is_borrowed_from_what_is_not_known(holder):
    assert borrowed(None, holder.known) is None
    assert borrowed(holder.pid, None) is None
    assert borrowed(2**22 + 1, holder.known) is None
    assert borrowed(holder.pid, holder.known).tell(b"end")


def test_where_there_is_no_room_or_no_other_end_that_is_told():
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    known = {"descriptor": near.fileno(), "inode": os.fstat(near.fileno()).st_ino}
    shortcut = borrowed(os.getpid(), known)
    while shortcut.tell(b"x" * 10_000):
        pass
    far.close()
    assert not shortcut.tell(b"x")
    shortcut.close()
    near.close()


@pytest.mark.slow
def test_a_cell_reaches_its_tasks_without_the_agent(tmp_path, nothing_survives):
    with Cluster(2, directory=tmp_path, warm=False) as cluster, cluster.live() as live:
        live.run("import os, pathlib")
        agent = int(live.run("os.getppid()")["worker:0"].value["text/plain"])
        os.kill(agent, signal.SIGSTOP)
        here = tmp_path / "here"
        cell = live.begin(f"(pathlib.Path({str(here)!r} + str(os.getpid())).touch())")
        eventually(lambda: len(list(tmp_path.glob("here*"))) == 2)
        os.kill(agent, signal.SIGCONT)
        for _ in live.follow(cell):
            pass
        assert len(cell.answers) == 2


@pytest.mark.slow
def test_where_the_kernel_does_not_allow_it_cells_run_all_the_same(
    tmp_path, monkeypatch, nothing_survives
):
    code = "import mwmagic.supervisor.shortcut as s; s._copied = lambda *_: None"
    (tmp_path / "sitecustomize.py").write_text(guarded(code))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    with Cluster(2, directory=tmp_path, warm=False) as cluster, cluster.live() as live:
        answers = live.run("1 + 1")
        assert [one.value["text/plain"] for one in answers.values()] == ["2", "2"]
        cell = live.begin("import time; time.sleep(60)")
        live.interrupt(cell)
        assert cell.over
