# ruff: noqa: ANN401 - Keras has no annotations
"""Measures what training steps take besides the step: waiting for input, callbacks, CPU time.

A few steps are measured now and then, on all workers the same ones. TensorFlow's profiler would
show the collectives too, but cannot run unasked in everybody's training: while Python runs in the
input, one of some fifty sessions corrupts the memory (TensorFlow 2.21,
`SplitEventTracker::FindStartAndMerge`).
"""

from __future__ import annotations

import resource
import sys
import threading
import time
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mwmagic.hooks import INPUT_WAIT, VOTE_SECONDS
from mwmagic.model.ownership import is_users

from .reports import outbox

if TYPE_CHECKING:
    from types import FrameType

    from .reports import Outbox

__all__ = ["StepSampler", "sampler"]

UNMEASURED_COUNT = 3
"""The first steps of a training, in which TensorFlow traces functions and prepares its threads."""

EARLY_COUNT = 6
"""Windows that follow each other quickly, for an answer within seconds."""

EARLY_SECONDS = 0.5
LATER_SECONDS = 2.0
"""The least time between the beginnings of two windows, of the early ones and later."""

STRIDE_COUNT = 8
"""Windows begin at multiples of a power of two of steps, at least this one."""

WINDOW_SECONDS = 0.25
WINDOW_STEPS = 3, 20
"""How long a window lasts, and the fewest and the most steps in it."""

STACKS_SECONDS = 0.01
"""The pause between two looks at which lines threads are at."""

SEEN_RATIO = 0.25
"""In how many of the looks a line is seen that takes a noticeable part of the time."""

FRAMES_LIMIT = 80
"""The frames of a thread that one look goes through."""

CALLERS = ("/tensorflow/", "/keras/", "/tf_keras/")
"""The folders of what calls the user's input pipeline and callbacks."""

PLACE_CHARACTERS = 200
"""The longest description of a line."""


class StepSampler:
    """Measures some of the steps of a `fit`."""

    def __init__(self, box: Outbox, model: Any) -> None:
        self._outbox = box
        self._model = model
        self._window: _Window | None = None
        self._number = self._seen = self._windows = 0
        self._stride = STRIDE_COUNT
        self._moment: float | None = None
        self._pace = 0.0

    def called(self, began: float) -> None:
        """Note that callbacks were called then, and have returned."""
        waited = vars(self._model.distribute_strategy).pop(VOTE_SECONDS, 0.0)
        if self._window is not None:
            self._window.callbacks += max(time.monotonic() - began - waited, 0.0)

    def step(self, number: int) -> None:
        """Note that so many steps are done."""
        now = time.monotonic()
        done, before = number - self._number, self._number
        self._number, moment, self._moment = number, self._moment, now
        self._seen += 1
        if self._window is not None:
            self._window.add(done, vars(self._model).get(INPUT_WAIT))
            if self._window.complete(now):
                self._finish()
        elif done > 0 and self._seen > UNMEASURED_COUNT and moment is not None:
            self._pace += ((now - moment) / done - self._pace) / min(self._seen, 8)
            if number // self._stride != before // self._stride:
                self._window = _Window(number)

    def pause(self) -> None:
        """End a window before something that is no step, such as the end of an epoch."""
        self._moment = None
        if self._window is not None and self._window.looks >= WINDOW_STEPS[0]:
            self._finish()
        elif self._window is not None:
            self._window.lines.end()
            self._window = None

    def _finish(self) -> None:
        window, self._window = self._window, None
        if window is None:
            return
        self._outbox.put(("steps", window.first), {"kind": "steps", **window.means()}, {})
        self._windows += 1
        apart = EARLY_SECONDS if self._windows < EARLY_COUNT else LATER_SECONDS
        self._stride = max(STRIDE_COUNT, 1 << int(apart / max(self._pace, 1e-6)).bit_length())


def sampler(model: Any) -> StepSampler | None:
    """Return what measures the steps of a model; None if nothing would receive its numbers.

    Only TensorFlow's models have a strategy, and only a repaired step says how long it waits.
    """
    box = outbox()
    spans = hasattr(model, "distribute_strategy")
    return StepSampler(box, model) if spans and box is not None and box.open else None


class _Window:
    """Some steps in a row."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.callbacks = 0.0
        self.looks = 0
        self.lines = _Lines()
        self._steps = 0
        self._waits: list[Any] = []
        self._before = _usage()
        self._began = time.monotonic()

    def add(self, steps: int, wait: Any) -> None:
        """Add an execution of some steps, and how long it waited for input, if that is known."""
        self.looks += 1
        self._steps += steps
        if wait is not None:
            self._waits.append(wait)

    def complete(self, now: float) -> bool:
        """Return whether it has enough steps."""
        least, most = WINDOW_STEPS
        long = self.looks >= least and now - self._began >= WINDOW_SECONDS
        return long or self.looks >= most

    def means(self) -> dict[str, Any]:
        """Return the means of a step, as the model's `Window` has them."""
        self.lines.end()
        wall, after = time.monotonic() - self._began, _usage()
        used = {name: after[name] - self._before[name] for name in after}
        waited = sum(float(wait) for wait in self._waits)
        parts = {"wall": wall, "input": waited, "callbacks": self.callbacks, **used}
        means = {name: round(value / self._steps, 6) for name, value in parts.items()}
        return {"first": self.first, "steps": self._steps, **means, **self.lines.found()}


def _usage() -> dict[str, float]:
    """Return what this process has used of CPUs, and has read of pages from disks."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu": used.ru_utime + used.ru_stime, "faults": used.ru_majflt}


class _Lines:
    """Looks at which of the user's lines threads are in, while a framework calls them."""

    def __init__(self) -> None:
        self._main = threading.get_ident()
        self._seen: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
        self._looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mwmagic-steps", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop looking."""
        self._over.set()

    def found(self) -> dict[str, str]:
        """Return the lines that were seen most often."""
        found = {}
        for main, name in ((False, "at_input"), (True, "at_main")):
            seen = dict(self._seen[main])  # in one go: the other thread may just add to it
            line = max(seen, key=seen.__getitem__, default="")
            if line and seen[line] >= SEEN_RATIO * self._looks:
                found[name] = line
        return found

    def _run(self) -> None:
        own = threading.get_ident()
        while not self._over.wait(STACKS_SECONDS):
            self._looks += 1
            for thread, frame in sys._current_frames().items():  # noqa: SLF001 - there is no other
                line = None if thread == own else _called_line(frame)
                if line:
                    self._seen[thread == self._main][line] += 1


def _called_line(frame: FrameType | None) -> str:
    """Return the user's line that a framework has called in a thread; nothing without one."""
    found = ""
    for _ in range(FRAMES_LIMIT):
        if frame is None:
            break
        code = frame.f_code
        kind = _kind(code.co_filename)
        if kind == "framework" and found:
            return found
        if kind == "user" and not found:
            name = code.co_filename.rpartition("/")[2]
            found = f"{name}:{frame.f_lineno} in {code.co_name}"[:PLACE_CHARACTERS]
        frame = frame.f_back
    return ""


@lru_cache(maxsize=1000)
def _kind(file: str) -> str:
    """Return whose code a file is."""
    if any(folder in file for folder in CALLERS):
        return "framework"
    main = getattr(sys.modules.get("__main__"), "__file__", "") or ""
    return "user" if is_users(file, main) else ""
