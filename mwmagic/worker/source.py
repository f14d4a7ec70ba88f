"""The code that runs: the copy in the record, under the name of the user's file.

In the code, ``__file__`` is the user's file, as under ``python main.py``, so that
``Path(__file__).parent`` finds the files next to it. But that file may already hold the code
of another launch. Whatever reads the code again therefore gets the copy: tracebacks, `inspect`
and TensorFlow's AutoGraph, which read its lines, and the children of `multiprocessing`'s
``spawn`` and ``forkserver``, and of loky's ``loky_init_main``, which run the main module again.
The interpreter's own tracebacks, of what nothing catches in a thread, an exit handler or a
finalizer, show the lines of the file as it is now; hooks print the same through `traceback`, unless
user code sets others.
"""

from __future__ import annotations

import os
import sys

from mwmagic.hooks.imports import after_import
from mwmagic.model import variables

from .standard import standard

TYPE_CHECKING = False  # a worker starts without `threading` and `traceback`
if TYPE_CHECKING:
    import threading
    from types import ModuleType
    from typing import Any

__all__ = ["read"]

SPAWNED = f"{os.path.dirname(__file__)}/spawned.py"  # noqa: PTH120 - as above
"""What runs as the main module of a child, and becomes the code."""

_SPAWNERS = ("multiprocessing.spawn", "loky.backend.spawn", "joblib.externals.loky.backend.spawn")
"""The modules that tell a child which file its main module is."""


def read(script: str) -> bytes:
    """Return the code to run, and make whatever reads it again get the same."""
    copy = os.environ.get(variables.SOURCE)
    with open(copy or script, "rb") as file:  # noqa: PTH123 - as above
        source = file.read()
    after_import("linecache", lambda module: _keep_lines(script, source, module))
    if copy:
        os.environ[variables.SCRIPT] = script
        _hook_exceptions()
        for name in _SPAWNERS:
            after_import(name, lambda module: _hand_down(script, module))
    return source


def _keep_lines(script: str, source: bytes, linecache: ModuleType) -> None:
    """Serve later reads of source lines from the copy, since the file may have changed.

    TensorFlow's AutoGraph reads them again before it transforms a function.
    """
    import functools

    update, size, lines = getattr(linecache, "updatecache", None), len(source), _lines(source)
    if update is None:
        return  # a module of the user's own that has this name

    @functools.wraps(update)
    def updatecache(filename: str, module_globals: dict[str, object] | None = None) -> list[str]:
        if filename != script:
            found: list[str] = update(filename, module_globals)
            return found
        linecache.cache[script] = (size, None, lines, script)
        return lines

    vars(linecache).update(updatecache=updatecache)
    updatecache(script)


def _lines(source: bytes) -> list[str]:
    """Return the lines of a source file, in the encoding that it declares."""
    import io
    import tokenize

    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    except SyntaxError:  # which the compiler reports
        encoding = "utf-8"
    end = b"" if source.endswith((b"\n", b"\r")) else b"\n"  # as `linecache` has it
    return list(io.TextIOWrapper(io.BytesIO(source + end), encoding, errors="replace"))


def _hand_down(script: str, spawn: ModuleType) -> None:
    """Make children import the copy as their main module instead of the file."""
    import functools

    prepare, main = spawn.get_preparation_data, os.path.normpath(script)

    @functools.wraps(prepare)
    def get_preparation_data(*args: object, **kwargs: object) -> dict[str, Any]:
        data: dict[str, Any] = prepare(*args, **kwargs)
        known = {variables.SOURCE, variables.SCRIPT} <= os.environ.keys()
        if known and data.get("init_main_from_path") == main:
            data["init_main_from_path"] = SPAWNED
        return data

    vars(spawn).update(get_preparation_data=get_preparation_data)


_PYTHONS = sys.__unraisablehook__


def _hook_exceptions() -> None:
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
