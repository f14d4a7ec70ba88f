"""Python's hooks for exceptions that nothing catches, with the lines of the code that runs.

Of an exception in a thread, an exit handler or a finalizer the interpreter itself prints the
lines of the file as it is now. These hooks print the same through `traceback`, which shows the
lines that `source` keeps. A hook that user code sets takes their place.
"""

from __future__ import annotations

import sys

from mwmagic.repairs.imports import after_import

from .standard import standard

TYPE_CHECKING = False  # a worker starts without `threading` and `traceback`
if TYPE_CHECKING:
    import threading
    from types import ModuleType

__all__ = ["install"]

_PYTHONS = sys.__unraisablehook__


def install() -> None:
    """Print what nothing catches outside the main thread's code."""
    after_import("threading", _watch_threads)
    sys.unraisablehook = sys.__unraisablehook__ = _unraisable


def _watch_threads(module: ModuleType) -> None:
    hook = getattr(module, "excepthook", None)
    if hook is None:  # a module of the user's
        return
    from functools import update_wrapper

    def thread(args: threading.ExceptHookArgs) -> None:
        error, one = args.exc_value, args.thread
        if isinstance(error, SystemExit) or error is None or one is None or sys.stderr is None:
            hook(args)
        else:
            _print(f"Exception in thread {one.name}:", error, chain=True)

    update_wrapper(thread, hook)
    vars(module).update(excepthook=thread, __excepthook__=thread)  # by which programs restore it


def _unraisable(args: sys.UnraisableHookArgs) -> None:
    """Print what an exit handler or a finalizer raised, as the interpreter does."""
    if args.exc_value is None or sys.stderr is None or sys.is_finalizing():
        _PYTHONS(args)
    else:
        about = "" if args.object is None else f" {_shown(args.object)}"
        title = f"{args.err_msg or 'Exception ignored in'}:{about}"
        _print(title, args.exc_value, chain=False)


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - the user's own `__repr__` may raise anything
        return "<object repr() failed>"


def _print(title: str, error: BaseException, *, chain: bool) -> None:
    """Print in one piece, between the lines of other threads."""
    traceback = standard("traceback")
    lines = traceback.format_exception(type(error), error, error.__traceback__, chain=chain)
    sys.stderr.write("".join([f"{title}\n", *lines]))
    sys.stderr.flush()
