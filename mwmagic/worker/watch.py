# ruff: noqa: ANN401 - Keras has no annotations
"""Reports the progress of one `fit` or `evaluate`, as its callbacks receive it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mwmagic.errors import MwmagicError

from .means import Means
from .outbox import outbox
from .task import is_chief
from .values import Values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["CALLBACKS", "Fits", "Watch"]

HISTORY_VALUES = 1000
"""The values of a history that one packet carries."""

EPOCHS_KEPT = 10
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

    Attributes
    ----------
    depth : int
        How many callbacks are active: a `fit` called by one is not reported.
    """

    def __init__(self, mean: type) -> None:
        self.depth = 0
        self.count = 0
        self._mean = mean

    def watch(self, callbacks: Any) -> Watch:
        """Return a new watch over a list of callbacks."""
        return Watch(self, callbacks, Means(self._mean))


class Watch:
    """Reports the events of one list of callbacks.

    Attributes
    ----------
    awake : bool
        Whether it still takes events.
    """

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
        self.awake = self._outbox is not None

    def train_begin(self, *_: Any, **__: Any) -> None:
        """Report the start of a `fit`, before it prints anything."""
        if self._fits.depth:
            self.awake = False
            return
        self._fits.count += 1
        self._training = True
        params = getattr(self._callbacks, "params", None) or {}
        totals = {"epochs": params.get("epochs"), "steps": params.get("steps")}
        self._place = {name: int(total) for name, total in totals.items() if total}
        self._put("train", {})

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
        self._pace.add(now - self._resumed, step - self._place.get("step", 0))
        self._place["step"] = step
        if _is_remote(logs):
            self._scheduled(now, logs)
            return
        self._pending = None if logs is None else _flat(logs)
        self._means.take(self._callbacks.model)
        if self._choice.takes(now, self._means.moment) or first:
            self._send_batch()

    def _scheduled(self, now: float, logs: Any) -> None:
        """Report a step that a parameter server's worker has yet to run, once it has run.

        Waiting for it would keep the others from running at the same time.
        """
        if self._awaited is None:
            self._awaited = self._place["step"], logs
        step, awaited = self._awaited
        if _has_come(awaited) and now - self._sent >= STEP_SECONDS:
            self._awaited, self._sent = None, now
            with suppress(Exception):  # the loop will meet the error of a step itself
                found = _flat(awaited.fetch())
                self._put("train", found, step=step)

    def resume(self, *_: Any, **__: Any) -> None:
        """Note that the callbacks have returned and training continues."""
        self._resumed = time.monotonic()

    def epoch_end(self, epoch: int, logs: Any = None, **_: Any) -> None:
        """Report an epoch: its training metrics and, separately, its validation metrics."""
        self._send_batch()
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
        self._send_batch()
        self._validated = True

    def test_end(self, logs: Any = None, **_: Any) -> None:
        """Report an evaluation that is not part of a `fit`."""
        if not self._training and logs:
            self._put("evaluate", _flat(logs), final=True)

    def _send_batch(self) -> None:
        """Report the newest step, unless that was done."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pace = self._pace.seconds_per_step
            more = {} if pace is None else {"seconds_per_step": pace}
            self._put("train", self._means.read(self._callbacks.model, pending), **more)

    def _put(self, kind: str, metrics: Mapping[str, Any], **more: Any) -> None:
        if self._outbox is not None:
            message = {"kind": kind, **self._place, **more}
            epoch = self._place.get("epoch", 0) % EPOCHS_KEPT
            step = None if "final" in more else self._place.get("step")
            key = (kind, epoch, step, tuple(metrics))
            self._outbox.put(key, message, self._values.read(metrics))

    def _history(self) -> Mapping[str, Any]:
        history = getattr(getattr(self._callbacks, "model", None), "history", None)
        found = getattr(history, "history", None)
        return found if isinstance(found, dict) else {}


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
    """Return whether a remote value can be read without waiting, if TensorFlow tells."""
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
    "on_train_batch_end": (Watch.batch_end, Watch.resume),
    "on_epoch_end": (Watch.epoch_end, Watch.epoch_completed),
    "on_train_end": (None, Watch.train_end),
    "on_test_begin": (Watch.test_begin, None),
    "on_test_end": (Watch.test_end, None),
}
"""What a watch does before and after the callbacks get an event."""
