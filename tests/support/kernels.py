"""Real kernels, spoken to through jupyter_client."""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import contextmanager

from jupyter_client.manager import KernelManager
from jupyter_client.provisioning import LocalProvisioner

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def plain(error):
    """Return the text of a kernel's error message, without its colours."""
    return _ESCAPES.sub("", "\n".join(error["traceback"]))


def execute(client, code):
    """Send a cell, which runs whatever came of the one before; return the request's name.

    By itself a kernel passes over what comes within a moment after a cell that failed.
    """
    return client.execute(code, stop_on_error=False)


class Forking(LocalProvisioner):
    """Has kernels forked, but for those that want another interpreter."""

    def __init__(self, nursery, **options):
        super().__init__(**options)
        self.nursery = nursery

    async def launch_kernel(self, cmd, **kwargs):
        if interpreters(kwargs["env"]) != interpreters(os.environ):
            return await super().launch_kernel(cmd, **kwargs)
        env = {**kwargs["env"], "JPY_PARENT_PID": str(self.nursery.pid)}
        self.process = self.nursery.fork(cmd[cmd.index("-m") :], kwargs["cwd"], env)
        self.pid = self.pgid = self.process.pid
        return self.connection_info


def interpreters(env):
    """Return the variables that Python reads before it runs anything."""
    return {key: value for key, value in env.items() if key.startswith("PYTHON")}


@contextmanager
def started(nursery, directory, speak, **env):
    """Start a kernel in a directory, and yield what speaks to it.

    It is forked, but one that is given variables starts by itself: they show in /proc too. Its
    sockets are files: of hundreds of kernels, one finds that a port chosen for it is taken.
    """
    sockets = tempfile.mkdtemp()  # pytest's own folders have names too long for a socket
    manager = KernelManager(transport="ipc", ip=f"{sockets}/kernel")
    if not env:
        known = {"kernel_id": manager.kernel_id, "kernel_spec": manager.kernel_spec}
        manager.provisioner = Forking(nursery, parent=manager, **known)
    manager.start_kernel(cwd=str(directory), env={**os.environ, **env})
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        yield speak(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
