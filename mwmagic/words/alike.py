"""Which trials of a sweep failed alike: one sentence for each kind of failure.

Two failures are alike if their texts are, or differ by numbers, addresses or the values that their
trials tried. An exit code is no such number: programs tell kinds of failure apart by it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mwmagic.experiments.trials import TrialState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mwmagic.experiments.runs import Facts
    from mwmagic.experiments.trials import TrialStatus

__all__ = ["failure_lines"]

_VARYING = (
    r"0x[0-9a-fA-F]+",
    # Of `dense_1` and `(3, 4)`, not of `float32`, `10.0.0.1` or an exit code.
    r"(?<!exited with code )(?<![A-Za-z\d.])-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![A-Za-z\d])(?!\.\d)",
)
"""What differs between failures that are alike, wherever it stands in their texts."""

CHOICES_COUNT = 2
"""How many different values are all shown; of more numbers the range is."""


def failure_lines(outcomes: Iterable[TrialStatus], why_failed: Callable[[Facts], str]) -> list[str]:
    """Return one line for each kind of failure, however many trials had it."""
    same: dict[str, list[TrialStatus]] = {}
    for one in outcomes:
        if one.state is TrialState.FAILED and one.facts is not None:
            # The same error in any task of any trial.
            text = re.sub(r"^\w+:\d+ ", "a task ", why_failed(one.facts))
            same.setdefault(text, []).append(one)
    alike: dict[tuple[str, ...], list[tuple[list[str], list[int]]]] = {}
    for text, trials in same.items():
        parts = _varying(trials[0]).split(text)
        numbers = [one.trial.number for one in trials]
        alike.setdefault(tuple(parts[::2]), []).append((parts[1::2], numbers))
    return [_line(fixed, found) for fixed, found in alike.items()]


def _varying(one: TrialStatus) -> re.Pattern[str]:
    """Return what may differ in another trial's text, with the texts that this one tried."""
    tried = [re.escape(repr(text)) for text in one.trial.params.values() if isinstance(text, str)]
    return re.compile(f"({'|'.join([*tried, *_VARYING])})")


def _line(fixed: Sequence[str], found: Sequence[tuple[list[str], list[int]]]) -> str:
    trials = sorted(number for _, numbers in found for number in numbers)
    gaps = [_choices(each) for each in zip(*(values for values, _ in found), strict=True)]
    text = "".join(part for pair in zip(fixed, [*gaps, ""], strict=True) for part in pair)
    if len(trials) == 1:
        return f"trial {trials[0]} failed: {text}"
    return f"{len(trials)} trials failed alike ({', '.join(map(str, trials))}): {text}"


def _choices(values: Sequence[str]) -> str:
    """Return what stands at one place of several texts: a range if it is one of numbers."""
    different = [*dict.fromkeys(values)]
    try:
        different.sort(key=float)
    except ValueError:  # a text, or an address
        shown = different[: 1 if different[0].startswith("0x") else CHOICES_COUNT]
        others = ["others"] if len(different) > len(shown) else []
        return " or ".join([", ".join(shown), *others]) if others else " or ".join(shown)
    if len(different) > CHOICES_COUNT:
        return f"{different[0]} to {different[-1]}"
    return " or ".join(different)
