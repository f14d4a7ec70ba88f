# ruff: noqa: ANN401 - Keras has no annotations, and its state in a step is private
"""Reports what Keras computes in `fit`, without parsing text or changing the user's code.

Every backend's `fit` calls `CallbackList` when a batch or an epoch ends, so that class is
observed: the user's callbacks, their order, their logs and Keras's choice to call them
in another thread stay as they are.

Keras gives its callbacks the mean over the epoch so far. Two such means and their sample
counts yield the mean of the steps between them: for two readings in a row, the value of
one step. Metrics that are not means, such as precision, stay as Keras gives them. If workers share
a batch, Keras gives the mean over all of them, but each worker holds the count of its own samples.
A repaired step returns the sums and the counts of all workers.
"""

from __future__ import annotations

import math
import sys
import time
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from mwmagic.errors import MwmagicError
from mwmagic.hooks import METRIC_SUMS, trains_alone
from mwmagic.model.variables import ANNOUNCED

from .reports import Values, is_distributed, number, outbox
from .steps import loop_sampler, sampler
from .task import is_chief

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

    from .steps import StepSampler

    State = Callable[[Any], tuple[float, float]]
    Shared = tuple[tuple[int, ...], Any]

__all__ = ["Means", "observe"]

_LIVE = "mwmagic.worker.live.cells"
"""The module that a task with live cells has imported."""

GIVEN_LIMIT = 50
"""The most variables of live cells that are reported with a `fit`, and the longest list."""

GIVEN_CHARACTERS = 100
"""The longest text among them."""

GIVEN_INTEGER_LIMIT = 2**53
"""Larger integers are none that a person typed."""

HISTORY_VALUES = 1000
"""The values of a history that one packet carries."""

NEWEST_EPOCHS = 10
"""The epochs that one round of packets holds.

If more end within 50 ms, only the newest are kept.
"""

STEP_SECONDS = 0.1
"""About how much time passes between two steps that are reported."""

LATEST_SECONDS = 2.0
"""After how much time a step is reported in any case: steps may have become slow."""

CLOCK_LOOKS = 8
"""How many times the shared clock is read between two steps that are reported, at most."""

STEPS_LIMIT = 2**53
"""More steps than any epoch has."""

SPEED_SECONDS = 0.5
"""The shortest stretch of training over which the pace is measured."""


class Pace:
    """How long a step takes, without validation, callbacks and the first step's compilation."""

    def __init__(self) -> None:
        self.seconds_per_step: float | None = None
        self._seconds = 0.0
        self._steps = 0
        self._compiled = False

    def add(self, seconds: float, steps: int) -> None:
        """Add the time that some steps took."""
        if not self._compiled:
            self._compiled = True
            return
        self._seconds += seconds
        self._steps += steps
        if self._seconds >= SPEED_SECONDS or self.seconds_per_step is None:
            self.seconds_per_step = self._seconds / max(self._steps, 1)
        if self._seconds >= SPEED_SECONDS:
            self._seconds, self._steps = 0.0, 0


class StepChoice:
    """Chooses the steps that are reported: the same on all workers that train together.

    Every so many are, a power of two that follows the pace, by a clock that they share.
    """

    def __init__(self) -> None:
        self._stride = 1
        self._count = 0
        self._chosen = self._seen = 0.0

    def takes(self, now: float, moment: Callable[[], float | None]) -> bool:
        """Return whether to report a step."""
        self._count += 1
        due = self._count % self._stride == 0
        if self._count % max(self._stride // CLOCK_LOOKS, 1) == 0:
            shared = moment()
            due = self._follow(now if shared is None else shared, due=due)
        if due or now - self._seen >= LATEST_SECONDS:
            self._seen = now
            return True
        return False

    def _follow(self, time: float, *, due: bool) -> bool:
        """Choose fewer steps if they come fast, and more if they come slowly."""
        spent = time - self._chosen
        late = spent > 4 * STEP_SECONDS
        if not (due or late):
            return False
        self._chosen = time
        if late:
            self._stride = max(self._stride // 2, 1)
        elif 0 <= spent < STEP_SECONDS:
            self._stride *= 2
        return True


class Fits:
    """All calls of `fit` in this process.

    `depth` counts the active callbacks: a `fit` that one of them calls is not reported.
    """

    def __init__(self, mean: type) -> None:
        self.depth = 0
        self.count = 0
        self._mean = mean

    def watch(self, callbacks: Any) -> Watch:
        """Return a new watch over a list of callbacks."""
        return Watch(self, callbacks, Means(self._mean))


class Watch:
    """Reports the events of one list of callbacks, for as long as it is `awake`."""

    def __init__(self, fits: Fits, callbacks: Any, means: Means) -> None:
        self._fits = fits
        self._callbacks = callbacks
        self._means = means
        self._outbox = outbox()
        self._values = Values()
        self._training = self._validated = False
        self._place: dict[str, Any] = {}
        self._pending: Mapping[str, Any] | None = None
        self._awaited: tuple[int, Any] | None = None
        self._sent = self._resumed = 0.0
        self._choice = StepChoice()
        self._pace = Pace()
        self._sampler: StepSampler | None = None
        self._steps = 0
        self._calls = 0.0
        self.awake = self._outbox is not None

    def train_begin(self, *_: Any, **__: Any) -> None:
        """Report the start of a `fit`, before it prints anything."""
        if self._fits.depth:
            self.awake = False
            return
        self._fits.count += 1
        self._training = True
        self._sampler = sampler(self._outbox, self._callbacks.model)
        self._set_fitting(fitting=True)
        params = getattr(self._callbacks, "params", None) or {}
        totals = {"epochs": params.get("epochs"), "steps": params.get("steps")}
        self._place = {name: int(total) for name, total in totals.items() if total}
        self._put("train", {})
        if self._outbox is not None and _is_outside(self._callbacks.model):
            self._outbox.put(("outside",), {"kind": "outside"}, {})
        if _LIVE in sys.modules and self._outbox is not None and _is_chief():
            key, message = ("given", self._fits.count), {"kind": "given", "fit": self._fits.count}
            self._outbox.put(key, {**message, "given": _given(vars(sys.modules["__main__"]))}, {})

    def epoch_begin(self, epoch: int, *_: Any, **__: Any) -> None:
        """Note which epoch it is, counted from 1 as Keras prints it."""
        self._place.update(epoch=int(epoch) + 1, step=0)
        self._awaited = None
        self._validated = False
        self._means.reset()
        self._resumed = time.monotonic()

    def batch_end(self, batch: int, logs: Any = None, **_: Any) -> None:
        """Report a step if it is the first of its epoch, or if it was chosen."""
        now = time.monotonic()
        first = not self._place.get("step")
        step = min(int(batch) + 1, self._place.get("steps", STEPS_LIMIT))  # the last may be short
        done = step - self._place.get("step", 0)
        self._pace.add(now - self._resumed, done)
        self._steps += done
        self._place["step"] = step
        if _is_remote(logs):
            self._sampler = None
            self._scheduled(now, logs)
            return
        self._pending = None if logs is None else _flat(logs)
        self._means.stepped(self._callbacks.model, done)
        if self._choice.takes(now, self._means.moment) or first:
            self._send_batch()
        self.batch_begin()

    def batch_begin(self, *_: Any, **__: Any) -> None:
        """Note that callbacks are called."""
        self._calls = time.monotonic()
        if self._sampler is not None:
            self._sampler.calling()

    def batch_begun(self, *_: Any, **__: Any) -> None:
        """Note how long they took."""
        if self._sampler is not None:
            self._sampler.called(self._calls)

    def _scheduled(self, now: float, logs: Any) -> None:
        """Report a step that a parameter server's worker has yet to run, once it has run.

        Waiting for it would keep the others from running at the same time.
        """
        if self._awaited is None:
            self._awaited = self._place["step"], logs
        if now - self._sent >= STEP_SECONDS:
            self._send_scheduled(now)

    def _send_scheduled(self, now: float) -> None:
        """Report the step that is awaited, if it has run."""
        if self._awaited is None or not _has_come(self._awaited[1]):
            return
        (step, awaited), self._awaited, self._sent = self._awaited, None, now
        with suppress(Exception):  # the loop will meet the error of a step itself
            self._put("train", _flat(awaited.fetch()), step=step)

    def resume(self, *_: Any, **__: Any) -> None:
        """Note that the callbacks have returned and training continues."""
        self.batch_begun()
        if self._sampler is not None:
            self._sampler.step(self._steps)
        self._resumed = time.monotonic()

    def epoch_end(self, epoch: int, logs: Any = None, **_: Any) -> None:
        """Report an epoch: its training metrics and, separately, its validation metrics.

        A loop may have scheduled all steps of an epoch before the first of them has run.
        """
        self._pause()
        self._send_batch()
        self._send_scheduled(time.monotonic())
        self._place.update(epoch=int(epoch) + 1)
        if self._place.get("step"):
            self._place.setdefault("steps", self._place["step"])
        logs, validated = _flat(logs), self._validated
        validation = {n: value for n, value in logs.items() if validated and n.startswith("val_")}
        training = {name: value for name, value in logs.items() if name not in validation}
        self._put("train", training, final=True)
        if validation:
            self._put("validation", validation, final=True)

    def epoch_completed(self, _: int, logs: Any = None, **__: Any) -> None:
        """Report what callbacks added to an epoch, such as the learning rate."""
        added = {
            name: values[-1]
            for name, values in self._history().items()
            if values and name not in _flat(logs)
        }
        if added:
            self._put("train", _flat(added), final=True)

    def train_end(self, *_: Any, **__: Any) -> None:
        """Report the last step and, from the chief, the history that `fit` returns."""
        self._send_batch()
        self._training = False
        self._set_fitting(fitting=False)
        if not _is_chief() or self._outbox is None:
            return
        for name, values in self._history().items():
            for start in range(0, len(values), HISTORY_VALUES):
                part = self._values.listed(name, values[start : start + HISTORY_VALUES])
                message = {"kind": "history", "fit": self._fits.count, "start": start}
                key = ("history", self._fits.count, name, start)
                self._outbox.put(key, {**message, "name": name, "values": part}, {})

    def test_begin(self, *_: Any, **__: Any) -> None:
        """Report the last step before a validation, which may take long."""
        self._pause()
        self._send_batch()
        self._validated = True

    def test_end(self, logs: Any = None, **_: Any) -> None:
        """Report an evaluation that is not part of a `fit`."""
        if not self._training and logs:
            self._put("evaluate", _flat(logs), final=True)

    def _set_fitting(self, *, fitting: bool) -> None:
        """Let what callbacks report not be taken for a loop's steps."""
        loop = loop_sampler(self._outbox)
        if loop is not None:
            loop.fitting = fitting

    def _pause(self) -> None:
        if self._sampler is not None and self._training:
            self._sampler.pause()

    def _send_batch(self) -> None:
        """Report the newest step, unless that was done."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pace = self._pace.seconds_per_step
            means = self._means.read(self._callbacks.model, pending)
            known = {"seconds_per_step": pace, "samples": self._means.samples}
            self._put("train", means, **{name: one for name, one in known.items() if one})

    def _put(self, kind: str, metrics: Mapping[str, Any], **more: Any) -> None:
        if self._outbox is not None:
            message = {"kind": kind, **self._place, **more}
            epoch = self._place.get("epoch", 0) % NEWEST_EPOCHS
            step = None if "final" in more else self._place.get("step")
            key = (kind, epoch, step, tuple(metrics))
            self._outbox.put(key, message, self._values.read(metrics))

    def _history(self) -> Mapping[str, Any]:
        history = getattr(getattr(self._callbacks, "model", None), "history", None)
        found = getattr(history, "history", None)
        return found if isinstance(found, dict) else {}


def _is_outside(model: Any) -> bool:
    """Return whether a model was created outside the scope of the strategy over all workers."""
    made = "tensorflow" in sys.modules
    return made and trains_alone(getattr(model, "distribute_strategy", None))


def _given(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers, texts and lists of them among the variables of live cells."""
    found: dict[str, Any] = {}
    for name, value in list(names.items()):
        if not name.startswith("_") and len(found) < GIVEN_LIMIT and _is_literal(value):
            found[name] = value
    return found


def _is_literal(value: object) -> bool:
    if isinstance(value, list | tuple):
        return len(value) <= GIVEN_LIMIT and all(map(_is_plain, value))
    return _is_plain(value)


def _is_plain(value: object) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is int:
        return abs(value) < GIVEN_INTEGER_LIMIT
    return type(value) is bool or (type(value) is str and len(value) <= GIVEN_CHARACTERS)


def _flat(logs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return logs without the dicts in them, as Keras gives them to callbacks."""
    flat: dict[str, Any] = {}
    for name, value in (logs or {}).items():
        flat.update(_flat(value) if isinstance(value, dict) else {name: value})
    return flat


def _is_remote(logs: Any) -> bool:
    """Return whether logs are what a ClusterCoordinator returns for a scheduled step."""
    return hasattr(logs, "fetch") and not hasattr(logs, "items")


def _has_come(remote: Any) -> bool:
    """Return whether a remote value can be read without waiting, if TensorFlow says so."""
    event = getattr(remote, "_status_available_event", None)
    return event is not None and bool(event.is_set())


def _is_chief() -> bool:
    try:
        return is_chief()
    except MwmagicError:
        return True  # the environment is malformed, as the framework will say


CALLBACKS: dict[str, tuple[Any, Any]] = {
    "on_train_begin": (Watch.train_begin, None),
    "on_epoch_begin": (None, Watch.epoch_begin),
    "on_train_batch_begin": (Watch.batch_begin, Watch.batch_begun),
    "on_train_batch_end": (Watch.batch_end, Watch.resume),
    "on_epoch_end": (Watch.epoch_end, Watch.epoch_completed),
    "on_train_end": (None, Watch.train_end),
    "on_test_begin": (Watch.test_begin, None),
    "on_test_end": (Watch.test_end, None),
}
"""What a watch does before and after the callbacks get an event."""


_ATTRIBUTE = "_mwmagic_watch"


def observe(keras: ModuleType) -> None:
    """Report each `fit` of Keras or tf-keras from now on."""
    callbacks = getattr(getattr(keras, "callbacks", None), "CallbackList", None)
    if callbacks is None or not all(hasattr(callbacks, name) for name in CALLBACKS):
        return  # an unknown Keras: its progress bars are read instead
    fits = Fits(keras.metrics.Mean)
    for name, (before, after) in CALLBACKS.items():
        _observe(callbacks, name, before, after, fits)
    _hide_from_tracebacks(keras.__name__)


def _observe(callbacks: Any, name: str, before: Any, after: Any, fits: Any) -> None:
    """Notify a watch of an event before the callbacks get it, and again after them."""
    original: Callable[..., Any] = getattr(callbacks, name)

    @wraps(original)
    def observed(self: Any, *args: Any, **kwargs: Any) -> Any:
        watch = vars(self).get(_ATTRIBUTE)
        if watch is None:
            watch = vars(self)[_ATTRIBUTE] = fits.watch(self)
        _notify(watch, before, args, kwargs)
        fits.depth += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            fits.depth -= 1
            _notify(watch, after, args, kwargs)

    setattr(callbacks, name, observed)


def _notify(watch: Watch, method: Any, args: Any, kwargs: Any) -> None:
    """Notify a watch of an event; if that fails, training continues without the watch."""
    if method is None or not watch.awake:
        return
    try:
        method(watch, *args, **kwargs)
    except Exception as error:  # noqa: BLE001 - an unknown Keras may do anything
        watch.awake = False
        text = f"{ANNOUNCED}this fit is no longer reported: {type(error).__name__}: {error}"
        if sys.stderr is not None:
            sys.stderr.write(text[:500] + "\n")


def _hide_from_tracebacks(package: str) -> None:
    """Leave this file's frames out of tracebacks, as Keras leaves out its own."""
    module: Any = sys.modules.get(f"{package}.src.utils.traceback_utils")
    paths = getattr(module, "_EXCLUDED_PATHS", None)
    if isinstance(paths, tuple):
        module._EXCLUDED_PATHS = (*paths, __file__)  # noqa: SLF001 - there is no other way


NOTHING: Shared = ((), ())
"""What no step has left: identities of metrics' state, and its numbers."""

_TOLERANCE_RATIO = 1e-3
"""The largest relative difference between a log and the mean that it comes from."""


class Means:
    """Reads the logs of one `fit`."""

    def __init__(self, mean: type) -> None:
        self._result = mean.result  # type: ignore[attr-defined]
        self._legacy = mean.__module__.startswith("tf_keras")
        self._before: dict[int, tuple[float, float]] = {}
        self._shared = self._earlier = NOTHING
        self._steps = self._last_steps = 0
        self.samples: float | None = None
        self._found: dict[str, list[Any]] | None = None

    def reset(self) -> None:
        """Begin an epoch: the metrics are reset."""
        self._before = {}
        self._shared = self._earlier = NOTHING
        self._steps = 0

    def stepped(self, model: Any, steps: int = 1) -> None:
        """Take in that steps are done, whose numbers may be read."""
        self._steps += steps
        self._last_steps = steps
        self._earlier, self._shared = self._shared, getattr(model, METRIC_SUMS, NOTHING)

    def moment(self) -> float | None:
        """When the step ended, in seconds of the last hour, if all workers agree on it."""
        return _known(self._shared).get(0)

    def read(self, model: Any, logs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the means since the last reading, and what is not a number as it is.

        Workers that share a batch may read after different steps: of them it is the last
        step alone, which is the same on all.
        """
        if self._found is None:
            self._found = self._by_name(model)
        apart = _apart(model)
        own = self._legacy and apart
        state: State = partial(_state, model)
        earlier: State = self._read_before
        if apart and not own:
            state, earlier = _reading(self._shared), _reading(self._earlier)
        steps = self._last_steps if apart else self._steps
        self.samples = None if own else self._samples_of_step(state, earlier, steps)
        self._steps = 0
        means: dict[str, Any] = {}
        for name, value in logs.items():
            try:
                mean = self._since(name, value, state, earlier, own=own)
            except Exception:  # noqa: BLE001, PERF203 - of any type; `Values` refuses it
                means[name] = value
            else:
                means.update({} if mean is None else {name: mean})
        return means

    def _samples_of_step(self, state: State, earlier: State, steps: int) -> float | None:
        """Return how many samples a step had, which Keras weighs its loss by; None if unknown."""
        with suppress(Exception):  # of any type; `Values` refuses the metric
            for metric in (self._found or {}).get("loss", ())[:1]:
                samples = (state(metric)[1] - earlier(metric)[1]) / steps
                return samples if samples > 0 else None
        return None

    def _read_before(self, metric: Any) -> tuple[float, float]:
        return self._before.get(id(metric), (0.0, 0.0))

    def _since(
        self, name: str, value: Any, state: State, earlier: State, *, own: bool
    ) -> float | None:
        """Return one metric's mean; None if Keras gives nothing sensible.

        With several workers tf-keras adds up the workers' values until the epoch ends, so
        in that case this is the mean of this worker's own samples.
        """
        given = 0.0 if own else number(value)
        for metric in (self._found or {}).get(name, ()):
            total, count = state(metric)
            if count > 0 and (own or _are_close(total / count, given)):
                before, count_before = earlier(metric)
                self._before[id(metric)] = total, count
                if count <= count_before:
                    return total / count
                return (total - before) / (count - count_before)
        return None if own else given

    def _by_name(self, model: Any) -> dict[str, list[Any]]:
        """Return the metrics of a model that are plain means."""
        found: dict[str, list[Any]] = {}
        for metric in _leaves(getattr(model, "metrics", ())):
            if getattr(type(metric), "result", None) is self._result:
                found.setdefault(metric.name, []).append(metric)
        return found


def _leaves(metrics: Any) -> Iterator[Any]:
    """Return the metrics within metrics."""
    for metric in metrics:
        inner = getattr(metric, "metrics", None)
        if inner and isinstance(inner, (list, tuple)):  # tf-keras's have an empty one
            yield from _leaves(inner)
        else:
            yield metric


def _apart(model: Any) -> bool:
    """Return whether other workers hold a part of the metrics' state."""
    extended = getattr(getattr(model, "distribute_strategy", None), "extended", None)
    spans = getattr(extended, "_in_multi_worker_mode", None)
    return spans is not None and bool(spans())


def _are_close(mean: float, given: float) -> bool:
    return abs(mean - given) <= _TOLERANCE_RATIO * abs(given) + 1e-9


def _known(shared: Shared) -> dict[int, float]:
    """Return numbers by the identities of what holds them."""
    identities, numbers = shared
    return dict(zip(identities, map(float, numbers), strict=False))


def _reading(shared: Shared) -> State:
    """Return what reads a metric's sum and count over all workers, as a step left them."""
    known = _known(shared)
    return lambda metric: (known.get(id(metric.total), 0.0), known.get(id(metric.count), 0.0))


def _state(model: Any, metric: Any) -> tuple[float, float]:
    """Return the sum and the count that a mean is made of, on this worker."""
    state = getattr(model, "_jax_state", None)  # while JAX trains, variables are not updated
    if not state or "metrics_variables" not in state:
        return _local_sum(metric.total), _local_sum(metric.count)
    indices = {id(variable): at for at, variable in enumerate(model.metrics_variables)}
    values = state["metrics_variables"]
    return number(values[indices[id(metric.total)]]), number(values[indices[id(metric.count)]])


def _local_sum(variable: Any) -> float:
    """Return a variable's sum over this worker's own replicas; it takes no collective."""
    # TensorFlow looks up what its distributed variables lack in their value over all workers.
    value = variable if is_distributed(variable) else getattr(variable, "_value", variable)
    if is_distributed(value):
        return sum(number(part) for part in value.values)
    return number(value)
