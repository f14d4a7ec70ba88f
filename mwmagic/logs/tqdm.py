"""Reads the bars of tqdm: ``train:  45%|████▌     | 45/100 [00:12<00:14, 3.70it/s, loss=0.3]``.

The form is that of ``tqdm/std.py``'s ``format_meter``. A bar that counts bytes is not training.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["TqdmBar", "clock", "tqdm_bar"]

_BAR_CHARACTERS = 1000  # longer lines are not bars

_NUMBER = r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?(?:e[-+]?\d{1,3})?|nan|inf)"
_TIME = r"[\d:]{4,20}|\?"
_BAR = re.compile(
    r"(?P<name>[^|]{0,200}?)"
    r"(?:\b\d{1,3}%\|[^|]{0,300}\| *(?P<step>\d{1,12})/(?P<steps>\d{1,12})"
    r"|\b(?P<count>\d{1,12})(?P<unit>[a-z]{1,20}))"
    rf" \[(?:{_TIME})(?:<(?P<left>{_TIME}))?, *"
    rf"(?:\?|(?P<rate>{_NUMBER}))(?:(?P<per>[a-z]{{1,20}})/s|s/[a-z]{{1,20}})"
    r"(?P<rest>, [^\]]*)?\] *$"
)
_METRIC = re.compile(rf"([^\s=,][^=,]{{0,99}})=({_NUMBER})(?=,|$)")
_EPOCH = re.compile(r"(?i)\bepoch\W{0,3}(\d{1,9})(?:\s*(?:/|of)\s*(\d{1,9}))?")
_ASIDE = re.compile(r"(?i)\b(?:val|eval|test|predict|download|load|map|extract)")


@dataclass(frozen=True)
class TqdmBar:
    """The content of a tqdm bar.

    Parameters
    ----------
    epoch : tuple of int and int or None, or None
        The epoch in its description, and the number of epochs.
    step, steps : int or None
        How far it is, and the total if tqdm knows it.
    metrics : dict of str to float
        The numbers of its postfix.
    aside : bool
        Whether its description shows that it is not training.
    seconds_per_step, eta : float or None
        Seconds for one step, and until the end.
    """

    epoch: tuple[int, int | None] | None
    step: int
    steps: int | None
    metrics: dict[str, float]
    aside: bool
    seconds_per_step: float | None
    eta: float | None


def tqdm_bar(text: str) -> TqdmBar | None:
    """Return the content of a line without ANSI codes; None if it is not a tqdm bar."""
    whole = text.rstrip().endswith("]") and " [" in text and len(text) <= _BAR_CHARACTERS
    match = _BAR.match(text) if whole else None
    if match is None:
        return None
    epoch = _EPOCH.search(match["name"])
    left = match["left"]
    return TqdmBar(
        epoch=(int(epoch[1]), int(epoch[2]) if epoch[2] else None) if epoch else None,
        step=int(match["step"] or match["count"]),
        steps=int(match["steps"]) if match["steps"] else None,
        metrics={one[1]: float(one[2]) for one in _METRIC.finditer(match["rest"] or "")},
        aside=_ASIDE.search(match["name"]) is not None,
        seconds_per_step=_seconds(match["rate"], inverse=match["per"] is not None),
        eta=None if left in (None, "?") else clock(left),
    )


def _seconds(rate: str | None, *, inverse: bool) -> float | None:
    value = float(rate) if rate else 0.0
    if not value > 0:
        return None
    return 1 / value if inverse else value


def clock(text: str) -> float:
    """Return the seconds of a time in a bar, such as ``12s``, ``3:04`` or ``1:02:03``."""
    seconds = 0
    for part in text.rstrip("s").split(":"):
        seconds = 60 * seconds + int(part or 0)
    return float(seconds)
