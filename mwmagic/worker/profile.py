# ruff: noqa: ANN401 - frameworks have no annotations
"""Profiles this process for some seconds, with the profiler of its framework.

A file beside its log asks for it, which is looked for whenever something is reported: nothing waits
in a process that is not asked. The profiler runs on a thread of its own, and training continues.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from .line import replace_file

if TYPE_CHECKING:
    from collections.abc import Callable

    _Switch = tuple[Callable[[str], Any], Callable[[], Any]]

__all__ = ["begin"]

_PROFILING = threading.Lock()


def begin(request: str) -> None:
    """Answer a request, which is a file, unless another one is being answered."""
    if _PROFILING.acquire(blocking=False):
        thread = threading.Thread(
            target=_answer, args=(request,), name="mwmagic-profile", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # there are too many threads; the request expires
            _PROFILING.release()


def _answer(request: str) -> None:
    try:
        with open(request, encoding="utf-8") as file:  # noqa: PTH123 - a string
            asked = json.load(file)
        os.unlink(request)  # noqa: PTH108 - the same
        if time.time() < asked["until"]:
            replace_file(f"{request}d", json.dumps({**asked, **_profiled(asked)}))
    except (OSError, ValueError, KeyError):
        pass  # it was withdrawn, or is not ours
    finally:
        _PROFILING.release()


def _profiled(asked: dict[str, Any]) -> dict[str, Any]:
    """Profile this process; return how long that took, or what went wrong."""
    try:
        start, stop = _profiler()
        start(asked["folder"])
        began = time.monotonic()
        try:
            time.sleep(asked["seconds"])
            took = time.monotonic() - began
        finally:
            stop()
    except Exception as error:  # noqa: BLE001 - of any framework; the program continues
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    return {"took": took}


def _profiler() -> _Switch:
    """Return what starts and stops the profiler of the framework that trains here."""
    keras: Any = sys.modules.get("keras")
    backend = [keras.backend.backend()] if hasattr(keras, "backend") else []
    for name in (*backend, *_PROFILERS):
        if name in _PROFILERS and name in sys.modules:
            return _PROFILERS[name](sys.modules[name])
    raise RuntimeError("it has imported neither TensorFlow nor JAX")


def _of_tensorflow(tensorflow: Any) -> _Switch:
    own = tensorflow.profiler.experimental
    options = own.ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=1)
    return lambda folder: own.start(folder, options), own.stop


def _of_jax(jax: Any) -> _Switch:
    return jax.profiler.start_trace, jax.profiler.stop_trace


_PROFILERS: dict[str, Callable[[Any], _Switch]] = {"tensorflow": _of_tensorflow, "jax": _of_jax}
