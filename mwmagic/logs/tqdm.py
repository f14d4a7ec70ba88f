"""Reads the bars of tqdm: ``train:  45%|████▌     | 45/100 [00:12<00:14, 3.70it/s, loss=0.3]``.

The form is that of ``tqdm/std.py``'s ``format_meter``. A bar that counts bytes, in ``B``, is not
training.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["TqdmBar", "clock", "tqdm_bar"]

_BAR_CHARACTERS = 1000  # longer lines are not bars
_SHORT_CHARACTERS = 4  # of a number that has a scale

_NUMBER = r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?(?:e[-+]?\d{1,3})?|nan|inf)"
_TIME = r"[\d:]{4,20}|\?"
_SCALES = "kMG"  # with `unit_scale`
_COUNT = r"(?:\d{1,4}\.\d{1,2}|\d{1,12})"
_WHOLE = rf"(?:{_COUNT}|\d{{1,4}}(?:\.\d{{1,2}})?[{_SCALES}])"
_UNIT = rf"[{_SCALES}]? ?[A-Za-z_]{{1,20}}"
_BAR = re.compile(
    r"(?P<name>[^|]{0,200}?)"
    rf"(?:\b\d{{1,3}}%\|[^|]{{0,300}}\| *(?P<step>{_WHOLE})/(?P<steps>{_WHOLE})"
    rf"|\b(?P<count>{_COUNT})(?P<unit>{_UNIT}))"
    rf" \[(?:{_TIME})(?:<(?P<left>{_TIME}))?, *"
    rf"(?:\?|(?P<rate>{_NUMBER}))(?:(?P<per>{_UNIT})/s|s/(?P<each>{_UNIT}))"
    r"(?P<rest>, [^\]]*)?\] *$"
)
_BYTES = re.compile(r"[kKMGTPEZY]? ?i?B")
_METRIC = re.compile(rf"([^\s=,][^=,]{{0,99}})=({_NUMBER})(?=,|$)")
_EPOCH = re.compile(r"(?i)\bepoch\W{0,3}(\d{1,9})(?:\s*(?:/|of)\s*(\d{1,9}))?")
_ASIDE = re.compile(r"(?i)\b(?:val|eval|test|predict|download|load|map|extract)")


@dataclass(frozen=True)
class TqdmBar:
    """The content of a tqdm bar."""

    epoch: tuple[int, int | None] | None
    """The epoch in its description, and the number of epochs if that is there too."""
    step: int
    steps: int | None
    """The total if tqdm knows it."""
    metrics: dict[str, float]
    """The numbers of its postfix."""
    aside: bool
    """Whether its description shows that it is not training."""
    seconds_per_step: float | None
    eta: float | None
    """Seconds until the end."""


def tqdm_bar(text: str) -> TqdmBar | None:
    """Return the content of a line without ANSI codes; None if it is not a tqdm bar."""
    whole = text.rstrip().endswith("]") and " [" in text and len(text) <= _BAR_CHARACTERS
    match = _BAR.match(text) if whole else None
    if match is None or _BYTES.fullmatch(match["per"] or match["each"]):
        return None
    epoch = _EPOCH.search(match["name"])
    left = match["left"]
    step, steps, scaled = _counts(match)
    return TqdmBar(
        epoch=(int(epoch[1]), int(epoch[2]) if epoch[2] else None) if epoch else None,
        step=step,
        steps=steps,
        metrics={one[1]: float(one[2]) for one in _METRIC.finditer(match["rest"] or "")},
        aside=_ASIDE.search(match["name"]) is not None,
        seconds_per_step=_seconds(match["rate"], match["per"], scaled=scaled),
        eta=None if left in (None, "?") else clock(left),
    )


def _counts(match: re.Match[str]) -> tuple[int, int | None, bool]:
    """Return how far a bar is, its end, and whether `unit_scale` shortened its numbers."""
    if match["steps"]:
        step, steps = match["step"], match["steps"]
        return _number(step), _number(steps), not f"{step}{steps}".isdigit()
    count, unit = match["count"], match["unit"]
    scaled = "." in count or (unit[1:] == "it" and len(count) <= _SHORT_CHARACTERS)
    return _number(count + _scale(unit) if scaled else count), None, scaled


def _number(text: str) -> int:
    """Return the number that ``1.20k`` stands for."""
    return round(float(text.rstrip(_SCALES)) * _factor(text[-1]))


def _scale(unit: str) -> str:
    """Return the letter before a unit that is its number's scale, if that has one."""
    return unit[0] if len(unit) > 1 and unit[0] in _SCALES else ""


def _factor(scale: str) -> float:
    return {"k": 1e3, "M": 1e6, "G": 1e9}.get(scale, 1.0)


def _seconds(rate: str | None, per: str | None, *, scaled: bool) -> float | None:
    """Return the seconds of a step; `per` is the unit if the rate is one of steps a second."""
    value = float(rate) if rate else 0.0
    if not value > 0:
        return None
    if per is None:
        return value
    return 1 / (value * _factor(_scale(per) if scaled else ""))


def clock(text: str) -> float:
    """Return the seconds of a time in a bar, such as ``12s``, ``3:04`` or ``1:02:03``."""
    seconds = 0
    for part in text.rstrip("s").split(":"):
        seconds = 60 * seconds + int(part or 0)
    return float(seconds)
