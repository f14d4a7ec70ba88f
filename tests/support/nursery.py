"""Forks processes of one that has imported what each of them imports, which takes most of a start.

`python nursery.py DESCRIPTOR MODULE...` imports modules, and then reads from a socket of packets,
in JSON, what each process is to run. It answers with the process, and tells when one has ended.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

PACKET_BYTES = 2**17


class Nursery:
    """A process that others are forked from, as long as this object is open."""

    def __init__(self, *modules, **env):
        self._socket, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, __file__, str(far.fileno()), *modules]
        with far:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=[far.fileno()],
                env={**os.environ, **env},
            )
        self.pid = self._process.pid
        self._codes = {}

    def close(self):
        self._socket.close()
        self._process.wait()

    def fork(self, argv, cwd, env, out=None):
        """Return a new process, which runs a file, or ``-m`` and a module, with arguments.

        What it prints goes to a file, or else where this process prints.
        """
        if out is not None:
            Path(out).touch()  # so that it can be read from now on
        request = {"argv": argv, "cwd": str(cwd), "env": env, "out": out and str(out)}
        self._socket.send(json.dumps(request).encode())
        while (pid := self._hear()) is None:
            pass
        self._codes.pop(pid, None)  # of an earlier process
        return Forked(self, pid)

    def _hear(self, flags=0):
        """Take what is told next: return a process that was forked, or note the end of one."""
        pid, code = json.loads(self._socket.recv(PACKET_BYTES, flags))
        if code is None:
            return pid
        self._codes[pid] = code
        return None

    def code(self, pid):
        """Return the exit code of a process that is known to have ended."""
        with suppress(BlockingIOError):
            while pid not in self._codes:
                self._hear(socket.MSG_DONTWAIT)
        return self._codes.get(pid)


class Forked:
    """A process that a nursery forked, with what `subprocess.Popen` has of one."""

    stdin = stdout = stderr = None

    def __init__(self, nursery, pid):
        self.pid = pid
        self._nursery = nursery
        self._pidfd = os.pidfd_open(pid)

    def __del__(self):
        os.close(self._pidfd)

    def poll(self):
        return self._nursery.code(self.pid)

    def wait(self, timeout=None):
        if not select.select([self._pidfd], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        while (code := self.poll()) is None:
            pass
        return code

    def send_signal(self, number):
        """Send it a signal, if it still runs."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def terminate(self):
        self.send_signal(signal.SIGTERM)


def requested(connection):
    """Fork a process for each request, and return the request there; return None at their end."""
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([connection, woken], [], [])
        if woken in ready:
            os.read(woken, PACKET_BYTES)
            tell_ends(connection)
        if connection in ready:
            request = connection.recv(PACKET_BYTES)
            if not request:
                return None
            if not (pid := os.fork()):
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for one in (connection.detach(), woken, wakes):
                    os.close(one)
                return json.loads(request)
            lead(pid)
            connection.send(json.dumps([pid, None]).encode())


def tell_ends(connection):
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = found
            connection.send(json.dumps([pid, os.waitstatus_to_exitcode(status)]).encode())


def lead(pid=0):
    """Give a process a group of its own; the process and its parent do, as either may be first."""
    with suppress(OSError):
        os.setpgid(pid, pid)


def begin(argv, cwd, env, out):
    """Run what is wanted in a process that was forked, as if it had been started."""
    lead()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    if out is not None:
        with Path(out).open("wb") as file:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # Python's own generator sees to itself
    if argv[0] == "-m":
        sys.argv[:] = argv[1:]
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = argv
        sys.path.insert(0, str(Path(argv[0]).parent))
        runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__":
    del sys.path[0]
    faulthandler.enable()
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()
    request = requested(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        begin(**request)
