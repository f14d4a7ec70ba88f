"""Real kernels, spoken to through jupyter_client."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager

from jupyter_client.manager import start_new_kernel

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def plain(error):
    """Return the text of a kernel's error message, without its colours."""
    return _ESCAPES.sub("", "\n".join(error["traceback"]))


def execute(client, code):
    """Send a cell, which runs whatever came of the one before; return the request's name.

    By itself a kernel passes over what comes within a moment after a cell that failed.
    """
    return client.execute(code, stop_on_error=False)


@contextmanager
def started(directory, speak, **env):
    """Start a kernel in a directory, with further variables, and yield what speaks to it."""
    manager, client = start_new_kernel(cwd=str(directory), env={**os.environ, **env})
    try:
        yield speak(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
