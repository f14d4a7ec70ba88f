# ruff: noqa: ANN401 - Keras has no annotations
"""Measures where the time of training steps goes: input, callbacks, CPUs, and waiting for others.

A few steps are measured now and then, on all workers the same ones. TensorFlow's profiler would
show the collectives themselves, but cannot run unasked in everybody's training: while Python runs
in the input, one of some fifty sessions corrupts the memory (TensorFlow 2.21,
`SplitEventTracker::FindStartAndMerge`).
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

from mwmagic.hooks import INPUT_WAIT, VOTE_SECONDS

from .looks import Collections, ThreadLooks, has_accelerator, links, used

if TYPE_CHECKING:
    from .reports import Outbox

__all__ = ["LoopSampler", "StepSampler", "loop_sampler", "sampler"]

UNMEASURED_COUNT = 3
"""The first steps of a training, in which TensorFlow traces functions and prepares its threads."""

EARLY_COUNT = 6
"""Windows that follow each other quickly, for an answer within seconds."""

EARLY_SECONDS = 0.5
LATER_SECONDS = 2.0
"""The least time between the beginnings of two windows, of the early ones and later."""

MEASURING_RATIO = 0.004
"""The largest part of a CPU that later windows take, by their own account: long steps are measured
at the highest rate of looks, so few of them."""

STRIDE_COUNT = 8
"""Windows begin at multiples of a power of two of steps, at least this one."""

WINDOW_SECONDS = 0.25
WINDOW_STEPS = 3, 20
"""How long a window lasts, and the fewest and the most steps in it."""


class _Windows:
    """Chooses the steps that are measured: windows of some steps in a row."""

    def __init__(self, box: Outbox) -> None:
        self._outbox = box
        self._window: _Window | None = None
        self._number = self._count = 0
        self._stride = STRIDE_COUNT

    def _step(self, number: int, wait: Any = None) -> None:
        """Note that so many steps are done, of which the newest waited so long for input."""
        before, self._number = self._number, number
        if self._window is not None:
            self._window.add(number - before, wait)
            if not self._window.complete():
                return
            self._finish()
        warm = before > 0 and number > UNMEASURED_COUNT
        if warm and number // self._stride > before // self._stride:
            self._window = _Window(number)

    def pause(self) -> None:
        """End a window before something that is no step, such as the end of an epoch."""
        if self._window is not None and self._window.steps >= WINDOW_STEPS[0]:
            self._finish()
        elif self._window is not None:
            self._window.end()
            self._window = None

    def _finish(self) -> None:
        window, self._window = self._window, None
        if window is None:
            return
        means = window.means()
        self._outbox.put(("steps", window.first), {"kind": "steps", **means}, {})
        self._count += 1
        early = self._count < EARLY_COUNT
        apart = EARLY_SECONDS if early else max(LATER_SECONDS, window.cost / MEASURING_RATIO)
        self._stride = max(STRIDE_COUNT, 1 << int(apart / max(means["wall"], 1e-6)).bit_length())


class StepSampler(_Windows):
    """Measures some of the steps of a `fit`."""

    def __init__(self, box: Outbox, model: Any) -> None:
        super().__init__(box)
        self._model = model
        # Keras on JAX does not wait for a step, so its callbacks do: they are code of a loop.
        self._looped = hasattr(model, "_jax_state_synced")

    def calling(self) -> None:
        """Note that callbacks are called."""
        if self._window is not None and not self._looped:
            self._window.looks.aside = True

    def called(self, began: float) -> None:
        """Note that callbacks were called then, and have returned."""
        strategy = getattr(self._model, "distribute_strategy", None)
        waited = vars(strategy).pop(VOTE_SECONDS, 0.0) if strategy is not None else 0.0
        if self._window is not None and not self._looped:
            self._window.looks.aside = False
            self._window.votes += waited
            self._window.callbacks += max(time.monotonic() - began - waited, 0.0)

    def step(self, number: int) -> None:
        """Note that so many steps are done."""
        self._step(number, vars(self._model).get(INPUT_WAIT))


def sampler(box: Outbox | None, model: Any) -> StepSampler | None:
    """Return what measures the steps of a model; None if nothing would receive its numbers."""
    return StepSampler(box, model) if box is not None and box.open else None


class LoopSampler(_Windows):
    """Measures some of the steps of a loop that reports each of them."""

    def __init__(self, box: Outbox) -> None:
        super().__init__(box)
        self.fitting = False
        self._names: tuple[str, ...] | None = None

    def reported(self, names: tuple[str, ...]) -> None:
        """Note a report of metrics with these names; those with the names of the first count."""
        if self._names is None:
            self._names = names
        if names == self._names and not self.fitting:
            self._step(self._number + 1)


@cache
def loop_sampler(box: Outbox | None) -> LoopSampler | None:
    """Return what measures this process's own loops; None if nothing would receive its numbers."""
    return LoopSampler(box) if box is not None and box.open else None


class _Window:
    """Some steps in a row."""

    sees_input = False
    """Whether the main thread was ever seen to get a batch."""

    def __init__(self, first: int) -> None:
        began = time.thread_time()
        self.first = first
        self.callbacks = self.votes = 0.0
        self.steps = 0
        self.looks, self._collections = ThreadLooks(), Collections()
        self._input: list[Any] = []
        self._links, self._used = links(), used()
        self.cost = time.thread_time() - began
        self._began = time.monotonic()

    def add(self, steps: int, wait: Any) -> None:
        """Add an execution of some steps, and how long it waited for input, if that is known."""
        self.steps += steps
        if wait is not None:
            self._input.append(wait)

    def complete(self) -> bool:
        """Return whether it has enough steps."""
        least, most = WINDOW_STEPS
        long = time.monotonic() - self._began >= WINDOW_SECONDS
        return self.steps >= (least if long else most)

    def end(self) -> None:
        """Measure no more."""
        self.looks.end()
        self._collections.end()

    def means(self) -> dict[str, Any]:
        """Return the means of a step, as the model's `Window` has them."""
        self.end()
        began, wall = time.thread_time(), time.monotonic() - self._began
        looks, after = self.looks, used()
        parts = {name: after[name] - self._used[name] for name in after}
        parts |= {"wall": wall, "callbacks": self.callbacks + looks.slept, "held": looks.held}
        parts |= {"queued": looks.queued, "own": looks.own}
        parts["collected"] = self._collections.seconds
        sent, peer = self._sent()
        parts |= sent
        if self._input:
            parts["input"] = sum(float(wait) for wait in self._input)
            parts["waits"] = max(looks.waits - parts["input"], 0.0) + self.votes
        else:
            parts["input"] = looks.input
            parts["waits"] = looks.waits + self.votes
        if not self._sees_waits():
            del parts["waits"]
        means = {name: round(value / self.steps, 6) for name, value in parts.items()}
        lines = looks.lines()
        self.cost += looks.took + time.thread_time() - began
        return {"first": self.first, "steps": self.steps, **means, **peer, **lines}

    def _sees_waits(self) -> bool:
        """Return whether the wait for others is known: neither for input nor an accelerator.

        TensorFlow may get its batches within a function, where no thread of Python is seen to wait.
        """
        if self.looks.input:
            _Window.sees_input = True
        seen = self._input or _Window.sees_input or "tensorflow" not in sys.modules
        return bool(seen) and not has_accelerator()

    def _sent(self) -> tuple[dict[str, float], dict[str, str]]:
        """Return what was sent over the link that took longest, and to whom.

        Several connections to a host may be busy at once: the longest one counts. A host to which
        less than half as much was sent as to another gets no gradients.
        """
        sent: Counter[str] = Counter()
        longest: dict[str, float] = {}
        for end, traffic in links().items():
            before = self._links.get(end)
            if before is not None:
                sent[end[0]] += traffic.sent - before.sent
                longest[end[0]] = max(traffic.seconds - before.seconds, longest.get(end[0], 0.0))
        most = max(sent.values(), default=0)
        much = {peer: seconds for peer, seconds in longest.items() if 2 * sent[peer] >= most}
        peer = max(much, key=much.__getitem__, default="")
        if not (peer and sent[peer] and longest[peer]):
            return {}, {}
        return {"sending": longest[peer], "sent": sent[peer]}, {"peer": peer}
