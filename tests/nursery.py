"""Forks kernels of a process that has imported what every kernel imports.

That takes longer than all else a kernel does to start. `python nursery.py DESCRIPTOR` reads a line
of JSON for each kernel from a socket, and answers with the kernel's process.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress

from jupyter_client.provisioning import LocalProvisioner


class Nursery:
    """A process that kernels are forked from, as long as this object is open."""

    def __init__(self):
        self._socket, far = socket.socketpair()
        command = [sys.executable, __file__, str(far.fileno())]
        with far:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[far.fileno()]
            )
        self._answers = self._socket.makefile()
        self.variables = interpreters(os.environ)

    def close(self):
        self._answers.close()
        self._socket.close()
        self._process.wait()

    def fork(self, argv, cwd, env):
        """Return a new kernel's process."""
        request = {"argv": argv, "cwd": cwd, "env": env}
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        return Forked(int(self._answers.readline()))


def interpreters(env):
    """Return the variables that Python reads before it runs anything."""
    return {key: value for key, value in env.items() if key.startswith("PYTHON")}


class Forked:
    """A process that another forked and waits for, with what `subprocess.Popen` has of one."""

    stdin = stdout = stderr = None

    def __init__(self, pid):
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)

    def __del__(self):
        os.close(self._pidfd)

    def poll(self):
        """Return None while it runs, and then a number that says nothing of how it ended."""
        return 0 if select.select([self._pidfd], [], [], 0)[0] else None

    def wait(self, timeout=None):
        if not select.select([self._pidfd], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return 0

    def send_signal(self, number):
        """Send it a signal, if it still runs."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def terminate(self):
        self.send_signal(signal.SIGTERM)


class Forking(LocalProvisioner):
    """Has kernels forked, but for those that want another interpreter."""

    def __init__(self, nursery, **options):
        super().__init__(**options)
        self.nursery = nursery

    async def launch_kernel(self, cmd, **kwargs):
        if interpreters(kwargs["env"]) != self.nursery.variables:
            return await super().launch_kernel(cmd, **kwargs)
        argv = cmd[cmd.index("-m") + 1 :]
        self.process = self.nursery.fork(argv, str(kwargs["cwd"]), dict(kwargs["env"]))
        self.pid = self.pgid = self.process.pid
        return self.connection_info


def requested(connection):
    """Fork a process for each request, and return the request there; return None at their end."""
    with connection, connection.makefile() as requests:
        for line in requests:
            pid = os.fork()
            if not pid:
                return json.loads(line)
            connection.sendall(b"%d\n" % pid)
    return None


def begin(argv, cwd, env):
    """Become a kernel."""
    from ipykernel import kernelapp

    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env, JPY_PARENT_PID=str(os.getppid()))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.argv[:] = argv
    kernelapp.launch_new_instance()


if __name__ == "__main__":
    del sys.path[0]
    import ipykernel.ipkernel
    import ipykernel.kernelapp
    import ipykernel.zmqshell  # noqa: F401 - for kernels

    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # kernels that end leave no zombies
    if request := requested(socket.socket(fileno=int(sys.argv[1]))):
        begin(**request)
