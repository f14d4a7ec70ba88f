"""Stacks on request: every thread's, even inside a blocked collective."""

from __future__ import annotations

import faulthandler
import os

from mwmagic.model import variables
from mwmagic.repairs.imports import after_import

TYPE_CHECKING = False  # a worker starts without `typing`, and without `signal`
if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["enable"]


def enable() -> None:
    """Dump every thread's stack on a signal; works inside a blocked collective too."""
    faulthandler.enable()
    path = os.environ.get(variables.STACKS)
    if path:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        faulthandler.register(variables.STACKS_SIGNAL, file=descriptor, all_threads=True)
        file = os.fstat(descriptor)
        after_import("signal", lambda signal: _give_way(signal, descriptor, file))


def _give_way(signal: ModuleType, descriptor: int, file: os.stat_result) -> None:
    """Close the file of stacks when user code takes its signal.

    The open file marks the handler as ours.
    """
    import contextlib
    import functools

    take = getattr(signal, "signal", None)
    if take is None:  # a module of the user's
        return

    @functools.wraps(take)
    def signal_(signalnum: int, handler: object) -> object:
        import threading

        main = threading.current_thread() is threading.main_thread()  # others may set none
        if signalnum == variables.STACKS_SIGNAL and main:
            faulthandler.unregister(signalnum)
            with contextlib.suppress(OSError):  # user code closed it, or has another in its place
                if os.path.samestat(file, os.fstat(descriptor)):
                    os.close(descriptor)
        return take(signalnum, handler)

    vars(signal).update(signal=signal_)
