"""The code that runs: the copy in the record, under the name of the user's file.

In the code, ``__file__`` is the user's file, as under ``python main.py``, so that
``Path(__file__).parent`` finds the files next to it. But that file may already hold the code
of another launch. Whatever reads the code again therefore gets the copy: tracebacks, `inspect`
and TensorFlow's AutoGraph, which read its lines, and the children of `multiprocessing`'s
``spawn`` and ``forkserver``, and of loky's ``loky_init_main``, which run the main module again.
`hooks` has the interpreter's own tracebacks do so too.
"""

from __future__ import annotations

import os

from mwmagic.model import variables
from mwmagic.repairs.imports import after_import

from . import hooks

TYPE_CHECKING = False  # a worker starts without `typing`, `linecache` and `pathlib`
if TYPE_CHECKING:
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
        hooks.install()
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
