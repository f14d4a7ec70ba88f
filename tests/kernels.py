"""Real kernels, spoken to through jupyter_client."""

from __future__ import annotations

import re
from contextlib import contextmanager

from jupyter_client.manager import start_new_kernel

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def plain(error):
    """Return the text of a kernel's error message, without its colours."""
    return _ESCAPES.sub("", "\n".join(error["traceback"]))


@contextmanager
def started(directory, speak):
    """Start a kernel in a directory, and yield what speaks to it."""
    manager, client = start_new_kernel(cwd=str(directory))
    try:
        yield speak(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
