# ruff: noqa: ANN401 - frameworks have no annotations
"""Reports numbers from any code, beside what it prints, and profiles this process if it is asked.

If values come too fast, the newest are sent. A file beside the log asks for a profile, which
is looked for whenever something is reported: nothing waits in a process that is not asked. The
framework's profiler runs on a thread of its own, and training continues.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from functools import cache
from typing import TYPE_CHECKING, Any

from mwmagic.model import variables
from mwmagic.model.values import METRICS_LIMIT, NAME_CHARACTERS, REPORT_BYTES, counted, encoded
from mwmagic.model.variables import ANNOUNCED

from .line import line, replace_file
from .steps import loop_sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from .line import Line

    _Switch = tuple[Callable[[str], Any], Callable[[], Any]]

__all__ = ["GAP_SECONDS", "Outbox", "Values", "is_distributed", "number", "outbox", "report"]


@cache
def _values() -> Values:
    return Values()


def report(
    *,
    step: int | None = None,
    epoch: int | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    **metrics: Any,
) -> None:
    """Report where training is, and what it measures.

    The dashboard shows it, ``run.metrics()`` returns it and the record keeps it. A call
    takes a few microseconds, so call it in every step: calls are throttled to some tens
    a second, of which the newest with the same names counts, and the last one is always
    sent. Without a cluster it does nothing.

    Parameters
    ----------
    step, epoch : int, optional
        The step or epoch that was done, counted as you like.
    steps, epochs : int, optional
        How many there are: steps in an epoch, epochs in all.
    **metrics : float
        Anything that ``float`` accepts, such as a NumPy, TensorFlow, JAX or PyTorch scalar.
        If a value is distributed over replicas, this worker's first part counts.

    Examples
    --------
    >>> from mwmagic.worker import report
    >>> for step in range(3):
    ...     report(step=step, steps=3, loss=1 / (step + 1))
    """
    box = outbox()
    if box is None or not box.open:
        return
    values = _values()
    message: dict[str, Any] = {"kind": "report"}
    for name, given in (("step", step), ("epoch", epoch), ("steps", steps), ("epochs", epochs)):
        if given is not None:
            message[name] = given if type(given) is int else _count(values, name, given)
    box.put(tuple(metrics), message, values.held(_bounded(values, metrics)))
    loop = loop_sampler(box)
    if loop is not None:
        loop.reported(tuple(metrics))


def _count(values: Values, name: str, given: Any) -> int | None:
    try:
        return int(number(given))
    except Exception as error:  # noqa: BLE001 - a user's type may raise anything
        values.refuse(name, f"{type(given).__name__} is not a whole number ({error})"[:200])
        return None


def _bounded(values: Values, metrics: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics without those that are too many, or whose name is too long."""
    if len(metrics) <= METRICS_LIMIT and max(map(len, metrics), default=0) <= NAME_CHARACTERS:
        return metrics
    kept: dict[str, Any] = {}
    for name, value in metrics.items():
        if len(name) > NAME_CHARACTERS:
            values.refuse(name, f"its name has more than {NAME_CHARACTERS} characters")
        elif len(kept) == METRICS_LIMIT:
            values.refuse(name, f"one report holds {counted(METRICS_LIMIT, 'metric')}")
        else:
            kept[name] = value
    return kept


GAP_SECONDS = 0.05
"""Seconds between two rounds of packets."""

LAST_SECONDS = 0.5
"""Time limit for sending what is left at the end."""

WAITING_LIMIT = 500
"""The most messages that wait; beyond that the oldest are dropped."""

Outgoing = tuple["Mapping[str, Any]", "Mapping[str, Any]"]


class Outbox:
    """Messages on their way out.

    A message that comes within `GAP_SECONDS` of the last round waits for the next one, and
    a newer message with the same key replaces it. A thread sends what waits: the last value
    of a fast loop must not wait for the end of a slow validation. The thread also reads
    tensors, so that the training loop need not wait for their values.
    """

    def __init__(self, to: Line) -> None:
        self._line = to
        self._process = os.getpid()
        self._values = Values()
        self._waiting: dict[Hashable, Outgoing] = {}
        self._adding = threading.RLock()  # a signal's handler may report, too
        self._sending = threading.RLock()
        self._due = threading.Event()
        self._thread: threading.Thread | None = None
        self._sent = 0.0
        stacks = os.environ.get(variables.STACKS, "")
        self._request = stacks and f"{stacks.removesuffix('.stacks')}.profile"

    @property
    def open(self) -> bool:
        """Whether anything reaches the supervisor from this process."""
        return self._line.open and os.getpid() == self._process

    def due(self) -> bool:
        """Return whether a message would be sent at once."""
        return time.monotonic() - self._sent >= GAP_SECONDS

    def put(self, key: Hashable, message: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
        """Send a message, or let it wait."""
        if not self.open:
            return
        with self._adding:
            self._waiting.pop(key, None)  # the newest goes last
            self._waiting[key] = (message, metrics)
            if len(self._waiting) > WAITING_LIMIT:
                del self._waiting[next(iter(self._waiting))]
        if self.due() and all(type(value) in (int, float) for value in metrics.values()):
            self.flush()
        if self._waiting and not self._due.is_set():
            self._wake()

    def flush(self, seconds: float = 0.0) -> None:
        """Send what waits, unless another thread is doing so; wait that long for room in total."""
        if not self.open or not self._sending.acquire(timeout=seconds):
            return
        try:
            with self._adding:
                waiting, self._waiting = self._waiting, {}
            self._sent = time.monotonic()
            if self._request and os.path.exists(self._request):  # noqa: PTH110 - a string
                _begin_profile(self._request)
            for key, message in waiting.items():
                left = self._sent + seconds - time.monotonic()
                self._send(key, message, max(left, 0.0))
        finally:
            self._sending.release()

    def _send(self, key: Hashable, message: Outgoing, seconds: float) -> None:
        said, metrics = message
        packet = _packet({**said, "metrics": self._values.numbers(metrics)})
        if len(packet) > REPORT_BYTES:
            self._refuse(len(metrics), len(packet))
        elif not self._line.send(packet, seconds):
            with self._adding:
                self._waiting.setdefault(key, message)  # unless there is a newer one by now

    def _refuse(self, count: int, size: int) -> None:
        self._values.refuse(
            f"a set of {counted(count, 'metric')}",
            f"they take {size} bytes, and a report holds {REPORT_BYTES}; shorten their names, "
            "or report fewer at once",
        )

    def _wake(self) -> None:
        self._due.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mwmagic-report", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self.open:
            self._due.wait()
            time.sleep(max(0.0, self._sent + GAP_SECONDS - time.monotonic()))
            self._due.clear()
            self.flush()
            if self._waiting:  # the line was full
                time.sleep(GAP_SECONDS)
                self._due.set()


def _packet(message: Mapping[str, Any]) -> bytes:
    """Return a message as one packet."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode()


@cache
def outbox() -> Outbox | None:
    """Return this process's outbox; None if it has no line."""
    to = line()
    return None if to is None else Outbox(to)


def farewell() -> None:
    """Send what still waits, at the end of a worker."""
    one = outbox()
    if one is not None:
        one.flush(LAST_SECONDS)


def is_distributed(value: Any) -> bool:
    """Return whether TensorFlow holds a value on several replicas."""
    return type(value).__module__.startswith("tensorflow.python.distribute")


def _local(value: Any) -> Any:
    """Return this process's part of a value, or of a Keras variable.

    TensorFlow would sum or average a distributed variable over all workers, in a
    collective in which the others do not take part.
    """
    if type(value).__module__.startswith("keras.src.backend"):
        value = getattr(value, "_value", value)
    if is_distributed(value) and getattr(value, "values", None):
        return value.values[0]
    return value


def number(value: Any) -> float:
    """Return a value as a number."""
    part = _local(value)
    try:
        return float(part)
    except TypeError:
        if not hasattr(part, "numpy"):
            raise
        return float(part.numpy())  # TensorFlow's variables


def _held(value: Any) -> Any:
    """Return the form in which a value is kept until it is sent.

    A tensor is kept as it is, since reading takes long and most are never sent; a
    NumPy array is read at once, since the loop may change it in place later.
    """
    if type(value) in (int, float):
        return value
    if type(value).__module__.partition(".")[0] == "numpy":
        return float(value)
    part = _local(value)
    if hasattr(part, "assign"):  # a variable
        return number(part)
    detach = getattr(part, "detach", None)  # PyTorch's would keep the graph
    return part if detach is None else detach()


class Values:
    """Reads metrics; a bad one is dropped, with one line on standard error."""

    def __init__(self) -> None:
        self._refused: set[str] = set()

    def held(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metrics as they are kept until they are sent."""
        return self._each(metrics, _held)

    def read(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics' numbers, read now."""
        return self._each(metrics, number)

    def listed(self, name: str, values: Sequence[Any]) -> list[float | str]:
        """Return the numbers of one metric, as JSON values; NaN for a bad one."""
        return [self.numbers({name: value}).get(name, "NaN") for value in values]

    def numbers(self, metrics: Mapping[str, Any]) -> dict[str, float | str]:
        """Return the metrics' numbers, as JSON values."""
        return self._each(metrics, lambda value: encoded(number(value)))

    def _each(self, metrics: Mapping[str, Any], of: Any) -> dict[str, Any]:
        found = {}
        for name, value in metrics.items():
            try:
                found[name] = of(value)
            except Exception as error:  # noqa: BLE001, PERF203 - a user's type may raise anything
                self.refuse(name, f"{type(value).__name__} is not a number ({error})"[:200])
        return found

    def refuse(self, name: str, why: str) -> None:
        """Say, once for each name, that something is not reported."""
        name = name[:NAME_CHARACTERS]
        if name in self._refused or len(self._refused) > NAME_CHARACTERS:
            return
        self._refused.add(name)
        if sys.stderr is not None:
            sys.stderr.write(f"{ANNOUNCED}{name} is not reported: {why}\n")


_PROFILING = threading.Lock()


def _begin_profile(request: str) -> None:
    """Answer a request, which is a file, unless another one is being answered."""
    if _PROFILING.acquire(blocking=False):
        thread = threading.Thread(
            target=_profile, args=(request,), name="mwmagic-profile", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # there are too many threads; the request expires
            _PROFILING.release()


def _profile(request: str) -> None:
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
