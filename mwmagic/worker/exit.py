"""How a worker exits: as the interpreter would, but without tearing the framework down."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys

from mwmagic.model import variables

from . import modules
from .preparation import announce
from .standard import standard

__all__ = ["exit_code", "flush", "is_success", "leave", "send_reports"]

LINGER_SECONDS = 5.0
"""Time limit for exit handlers after a failure.

JAX's and TensorFlow's wait for the other processes, which wait for this one.
"""


_FILE: type = io.IOBase.__mro__[1]
"""The class that all files derive from. To ask `io.IOBase`, which is abstract, takes far longer."""


def exit_code(request: SystemExit) -> int:
    """Return the code that ``sys.exit`` asked for, as the interpreter reads it."""
    if request.code is None:
        return 0
    if isinstance(request.code, int):
        return request.code & 0xFF
    announce(str(request.code))
    return 1


def _dismantle(script: str) -> None:
    """Drop the user's modules, so that the objects they hold are finalized.

    TensorFlow's writers, for example, write out their buffers then.
    """
    # As Python does before: from then on an object comes before what it holds, so that a text
    # file is closed before the file below it, to which it writes the rest.
    gc.collect(0)
    for name in modules.users(script):
        sys.modules.pop(name, None)
    gc.collect()


def flush() -> None:
    """Flush open files, as the interpreter does when it finalizes them."""
    files = [one for one in gc.get_objects() if issubclass(type(one), _FILE)]
    buffers = (io.BufferedWriter, io.BufferedRandom)
    for file in [*sorted(files, key=lambda one: isinstance(one, buffers)), sys.stdout, sys.stderr]:
        try:  # noqa: SIM105 - the user's folder may hold another `contextlib`
            file.flush()
        except Exception:  # noqa: BLE001, PERF203, S110 - it is closed, half made, or the user's
            pass


def _forsake_others() -> None:
    """Drop JAX's exit handler, which would wait for processes that wait for this one."""
    clean_up = getattr(sys.modules.get("jax._src.api"), "clean_up", None)
    if clean_up is not None:
        atexit.unregister(clean_up)


def send_reports() -> None:
    """Send the last reports, if there are any."""
    outbox = sys.modules.get("mwmagic.worker.outbox")
    if outbox is not None:
        outbox.farewell()


def _take_leave() -> None:
    """Let the task that coordinates the others end after them."""
    from . import coordination

    coordination.take_leave()


def is_success(code: object) -> bool:
    """Return whether an exit code means success; a task that asks to be resumed has saved."""
    return code in (None, 0, variables.RESUME_CODE)


def leave(code: int, script: str, process: int) -> None:
    """Exit as the interpreter would, but without tearing the framework down.

    That takes TensorFlow a second or more, and after a failure it may wait forever
    for the other processes.

    Parameters
    ----------
    code : int
        The exit code, or a signal's number with a minus.
    script : str
        The user's file.
    process : int
        The worker's own process; this one may be a fork of it.
    """
    os.sched_yield()  # the gang's last workers may only be starting: they go first
    well = is_success(code)
    if not well:
        _forsake_others()
        last = code if code > 0 else 128 - code
        timer = standard("threading").Timer(LINGER_SECONDS, os._exit, (last,))
        timer.daemon = True
        timer.start()
    send_reports()
    wait = getattr(sys.modules.get("threading"), "_shutdown", None)  # as Py_Exit does
    if wait is not None:
        wait()
    atexit._run_exitfuncs()  # noqa: SLF001 - as Py_Exit does
    if well:
        _dismantle(script)
    flush()
    send_reports()
    if well and os.getpid() == process and "tensorflow" in sys.modules:
        _take_leave()
    if code < 0:
        signal = standard("signal")
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
