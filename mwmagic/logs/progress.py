"""Reads the start-up, training progress and metrics from what a worker prints.

It reads the bars of Keras 3 and of tf_keras, with and without a heading, verbose or
terse, and the pairs of names and numbers that a custom loop prints. The bars are those of
``keras/src/utils/progbar.py`` and ``tf_keras/src/utils/generic_utils.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Literal

from mwmagic.frameworks import Milestone, frameworks

from .loops import TqdmBar, clock, printed_metrics, tqdm_bar
from .noise import NATIVE
from .terminal import plain
from .tracebacks import HEAD

if TYPE_CHECKING:
    from collections.abc import Callable

    from mwmagic.model.status import PhaseName, UpdateKind

    from . import Guard

_DRAWN = re.compile(r"[\r\b\x1b]")
_DRAFT_CHARACTERS = 10_000  # how much of one draft is kept


class Drafts:
    """Follows one stream, whose text may be split anywhere."""

    def __init__(self) -> None:
        self._first = ""  # first draft of the line that has not ended
        self._last = ""  # last complete draft of it
        self._rest = ""  # the draft that is being written

    @property
    def current(self) -> str:
        """The current draft of the line that has not ended, without ANSI codes."""
        return _clean(self._rest) or self._last

    def write(self, text: str) -> list[tuple[str, str]]:
        """Take the next text and return the first and last draft of each line it ended."""
        *ended, tail = text.split("\n")
        drawn = len(ended) if _DRAWN.search(text) else min(1, len(ended))
        lines = [self._end(piece) for piece in ended[:drawn]]
        lines += [(piece, piece) for piece in ended[drawn:]]
        self._draw(tail)
        return lines

    def _end(self, piece: str) -> tuple[str, str]:
        self._draw(piece)
        last = self.current
        line = (self._first or last, last)
        self._first = self._last = self._rest = ""
        return line

    def _draw(self, piece: str) -> None:
        *drawn, rest = (self._rest + piece).split("\r")
        for draft in filter(None, map(_clean, drawn)):
            self._first = self._first or draft
            self._last = draft
        self._rest = rest[:_DRAFT_CHARACTERS]


def _clean(draft: str) -> str:
    text = plain(draft.replace("\b", ""))
    return text if text.strip() else ""


_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|nan|inf)"
_BAR = re.compile(
    r"\s*(?P<step>\d{1,12})/(?:(?P<steps>\d{1,12}) (?:"
    r"━+ (?P<left3>[\d:]{1,20}s?)"  # Keras 3
    r"|\[[=>.]+\] - (?:ETA: (?P<left2>[\d:]{1,20}s?)|\d+s)"  # tf_keras
    r"|- \d+s(?= -))"  # both with verbose=2
    r"|Unknown (?:- )?\d+s(?= ))"
)
_SPEED = re.compile(r" (\d{1,12})(us|ms|s)/(?!epoch)\w+")
_TIME = re.compile(r"\d+(?:us|ms|s)/\w+ *$")
_METRIC = re.compile(rf"([^:]{{1,100}}): ({_NUMBER}) *$")
_WHOLE = re.compile(r".*(?:\.\d{4}(?:e[-+]\d\d)?|nan|inf) *$", re.DOTALL)
_HEADING = re.compile(r"Epoch (\d{1,9})/(\d{1,9}) *$")
_UNITS = {"s": 1, "ms": 1000, "us": 1_000_000}  # in one second


@dataclass(frozen=True)
class Update:
    """What one line shows of a worker's training, as printed; times are in seconds.

    Keras counts epochs from 1, custom loops from any number. Steps are batches in this epoch or
    bar. tf_keras under MultiWorkerMirroredStrategy sums metrics over the workers; only the last
    line of an epoch is correct. A `final` line ends its epoch or bar.
    """

    kind: UpdateKind
    epoch: int | None = None
    epochs: int | None = None
    step: int | None = None
    steps: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    final: bool = False
    seconds_per_step: float | None = None
    samples: float | None = None
    """The samples of a step, of all workers together."""
    eta: float | None = None


class Progress:
    """Follows the progress of one worker through its lines, in order.

    `write` takes raw text and reads each draft of a bar; `line` is for callers that only
    have the lines that a `Terminal` shows.
    """

    def __init__(self) -> None:
        self._drafts = Drafts()
        self._current: Update | None = None  # of the line that has not ended
        self._epoch: tuple[int, int] | None = None  # of Keras, from its heading to its end
        self._steps: int | None = None  # of that epoch, once a bar has shown it
        self._announced: tuple[int | None, int | None] | None = None  # by a custom loop
        self._failing = False  # inside a traceback

    def write(self, text: str, guard: Guard) -> list[Update]:
        """Take the next text of the log."""
        ended = self._drafts.write(text)
        updates = [guard.call("progress", None, self.line, last, first) for first, last in ended]
        self._current = None if ended else self._current
        current = self._bar(self._drafts.current, finished=False)
        if current != self._current:
            updates.append(current)
        self._current = current
        return [update for update in updates if update is not None]

    def line(self, text: str, first: str = "") -> Update | None:
        """Read a finished line."""
        text = plain(text)
        if self._skips(text):
            return None
        self._learn(first)
        update = self._bar(text, finished=True) or self._heading(text)
        if update is None:
            return self._print(text)
        if update.kind == "train":
            self._steps = update.steps
            self._epoch = None if update.final else self._epoch
        return update

    def _learn(self, first: str) -> None:
        if self._epoch and self._steps is None:
            match = _BAR.match(first)
            self._steps = _int(match["steps"]) if match else None

    def _skips(self, text: str) -> bool:
        """Return whether `text` is a notice or part of a traceback, including source lines."""
        if self._failing:
            self._failing = text[:1] in {" ", ""} or NATIVE.match(text) is not None
            return True
        self._failing = HEAD in text
        return self._failing or NATIVE.match(text) is not None

    def _heading(self, text: str) -> Update | None:
        match = _HEADING.match(text) if text.startswith("Epoch ") else None
        if match is None:
            return None
        self._epoch = (int(match[1]), int(match[2]))
        self._steps = None
        return Update("train", *self._epoch)

    def _bar(self, text: str, *, finished: bool) -> Update | None:
        match = _BAR.match(text) if "/" in text[:24] else None
        if match is None:
            bar = tqdm_bar(text)
            return None if bar is None else self._tqdm(bar, finished=finished)
        rest = text[match.end() :]
        metrics, whole = _metrics(rest, finished=finished)
        step, steps = int(match["step"]), _int(match["steps"])
        kind = self._kind(steps, metrics)
        epoch, epochs = (self._epoch if kind == "train" else None) or (None, None)
        final = finished and whole and step == steps
        left = None if finished else match["left2"] or match["left3"]
        speed = _SPEED.search(rest)
        return Update(
            kind=kind,
            epoch=epoch,
            epochs=epochs,
            step=step,
            steps=steps,
            metrics=metrics,
            final=final,
            seconds_per_step=int(speed[1]) / _UNITS[speed[2]] if speed else None,
            eta=clock(left) if left else None,
        )

    def _tqdm(self, bar: TqdmBar, *, finished: bool) -> Update:
        epoch, epochs = bar.epoch or self._announced or (None, None)
        return Update(
            kind="bar" if bar.aside else "print",
            epoch=epoch,
            epochs=epochs,
            step=bar.step,
            steps=bar.steps,
            metrics=bar.metrics,
            final=finished and bar.step == bar.steps,
            seconds_per_step=bar.seconds_per_step,
            eta=None if finished else bar.eta,
        )

    def _kind(self, steps: int | None, metrics: dict[str, float]) -> Literal["train", "bar"]:
        if any(name.startswith("val_") for name in metrics):
            return "train"
        same = self._steps is None or steps is None or steps == self._steps
        return "train" if self._epoch and same else "bar"

    def _print(self, text: str) -> Update | None:
        words = printed_metrics(text)
        if words is None:
            return None
        final = not words.herald and words.epoch is not None and words.step is None
        epoch, epochs = words.epoch, words.epochs
        if epoch is None:
            epoch, epochs = self._announced or self._epoch or (None, None)
        if words.herald:
            self._announced = (epoch, epochs)
        elif final:
            self._announced = None  # what follows is the next epoch
        return Update("print", epoch, epochs, words.step, words.steps, words.metrics, final)


def _metrics(rest: str, *, finished: bool) -> tuple[dict[str, float], bool]:
    """Return the metrics after a bar, and whether the line has nothing else."""
    metrics = {}
    for part in rest.split(" - ")[1:]:
        if match := _METRIC.match(part):
            metrics[match[1]] = float(match[2])
        elif not _TIME.match(part):
            return metrics, False
    if metrics and not finished and not _WHOLE.match(rest):
        metrics.popitem()  # its last digits are still to come
    return metrics, True


def _int(text: str | None) -> int | None:
    return int(text) if text else None


@dataclass(frozen=True)
class Phase:
    """Which milestones of a start-up one worker has passed."""

    server: bool = False
    """It listens for the others."""
    joined: bool = False
    """It reached the leader's coordination service."""
    missing: int = 0
    """How many tasks the leader waits for; 0 for all other tasks."""
    waiting: tuple[str, ...] = ()
    """The tasks that it waits for, such as ``worker:1``; of many, TensorFlow names a few."""
    connected: bool = False
    """All have met. A TensorFlow worker that is not the leader does not log this, so it is set with
    the worker's first progress.
    """
    training: bool = False
    """It has made progress."""

    @property
    def name(self) -> PhaseName:
        """The furthest milestone."""
        if self.training:
            return "training"
        if self.connected:
            return "connected"
        if self.missing or self.waiting:
            return "waiting"
        return "server" if self.server else "starting"


def _server(phase: Phase, _: re.Match[str]) -> Phase:
    return replace(phase, server=True)


def _joined(phase: Phase, _: re.Match[str]) -> Phase:
    return replace(phase, joined=True)


def _connected(phase: Phase, _: re.Match[str] | None = None) -> Phase:
    return replace(phase, joined=True, missing=0, waiting=(), connected=True)


def _missing(phase: Phase, found: re.Match[str]) -> Phase:
    count = int(found["count"])
    return replace(phase, missing=count, waiting=()) if count else _connected(phase)


def _stragglers(phase: Phase, _: re.Match[str]) -> Phase:
    return phase


def _straggler(phase: Phase, found: re.Match[str]) -> Phase:
    waiting = dict.fromkeys([*phase.waiting, f"{found['job']}:{found['index']}"])
    return replace(phase, waiting=tuple(waiting))


def _arrived(phase: Phase, found: re.Match[str]) -> Phase:
    task = f"{found['job']}:{found['index']}"
    return replace(phase, waiting=tuple(name for name in phase.waiting if name != task))


_STEPS: dict[str, Callable[[Phase, re.Match[str]], Phase]] = {
    "server": _server,
    "joined": _joined,
    "connected": _connected,
    "missing": _missing,
    "stragglers": _stragglers,
    "straggler": _straggler,
    "arrived": _arrived,
}
"""How each kind of `mwmagic.frameworks.Milestone` changes a phase."""


@cache
def _milestones() -> tuple[tuple[Milestone, re.Pattern[str]], ...]:
    """Return the milestones of all frameworks, with their compiled patterns."""
    every = dict.fromkeys(milestone for one in frameworks() for milestone in one.milestones)
    return tuple((milestone, re.compile(milestone.pattern)) for milestone in every)


def _find(line: str, native: re.Match[str] | None) -> tuple[str, re.Match[str] | None]:
    """Return the kind of milestone in a line, if any, and the match."""
    for milestone, pattern in _milestones():
        if not milestone.native:
            found = pattern.search(line)
        else:
            found = pattern.match(line, native.end()) if native else None
        if found is not None:
            return milestone.kind, found
    return "", None


class Phases:
    """Reads the lines of one worker in order, up to its first progress."""

    def __init__(self) -> None:
        self.phase = Phase()
        self._listing = False  # inside the list of stragglers

    def feed(self, line: str) -> Phase:
        """Take the next finished line, without ANSI codes, and return the worker's phase."""
        if not self.phase.training:
            self._read(line)
        return self.phase

    def train(self) -> Phase:
        """Note that the worker made progress, according to its log or a report."""
        self.phase = replace(_connected(self.phase), training=True)
        return self.phase

    def _read(self, line: str) -> None:
        native = NATIVE.match(line)
        kind, found = _find(line, native)
        if found is not None and (self._listing or kind != "straggler"):
            self.phase = _STEPS[kind](self.phase, found)
        if native is not None or kind == "stragglers":
            self._listing = kind == "stragglers"
