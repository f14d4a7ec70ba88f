"""Finds metrics in the output of custom training loops: in what they print, and in bars of tqdm.

There is no format of prints to rely on, so a pair of a name and a number only counts with
evidence: a well-known metric's name, or an epoch or step on the same line.

The form of ``train:  45%|████▌     | 45/100 [00:12<00:14, 3.70it/s, loss=0.3]`` is that of
``tqdm/std.py``'s ``format_meter``. A bar that counts bytes, in ``B``, is not training.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["PrintedMetrics", "TqdmBar", "clock", "printed_metrics", "tqdm_bar"]

_PRINT_CHARACTERS = 500  # longer lines are dumps
_REACH_CHARACTERS = 100  # how far before a number its name may begin

_NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
    r"|(?i:nan|inf(?:inity)?))"
)
_ENDS = r"%?(?![\w:/\\]|[.,-]\d|\.\.)"  # no unit, no date, no version, no list
_STARTS = r"(?<![\w./\\:=@-])"  # not inside a path, an address or an expression
_WORD = r"[A-Za-z_][\w@./+-]*"
_VALUE = re.compile(rf"(?P<sign>[=:]|(?<=\s)is(?=\s))(?P<gap>\s*)(?P<value>{_NUMBER}){_ENDS}")
_NAMED = re.compile(
    rf"{_STARTS}[\"']?(?P<name>{_WORD}(?: {_WORD}| \([^()]*\)| \d+$){{0,6}})[\"']?\s*$"
)
_BARE = re.compile(rf"{_STARTS}(?P<name>{_WORD})\s+(?P<value>{_NUMBER}){_ENDS}")
_KNOWN = re.compile(
    r"(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?i:loss|losses|acc|accuracy|auc|precision|recall|f1|mae"
    r"|mse|rmse|mape|perplexity|ppl|lr|learning.rate|error.rate|iou|dice|bleu|rouge|score|reward"
    r"|kl|elbo|nll|entropy|crossentropy|psnr|ssim|wer|cer|grad.?norm)(?![a-z])"
)
_SETTING = re.compile(
    r"(?i:epochs?|(?:global_)?steps?|iter(?:ation)?s?|it|batch|batch_size|seed|port|pid|rank|worker"
    r"|index|eta)"
)
_PLACE = re.compile(
    r"\s+(?:at|after|over|for|in|on|of)\s+(?:the\s+)?(?i:(?:global_)?step|epoch|batch|iter).*$"
)
_WHOLE = r"(\d{1,3}(?:,\d{3})+|\d{1,12})(?!\.?\d*[e\d])"
_COUNT = rf"[\"']?[\s:=#\[(]*{_WHOLE}(?:\s*(?:/|of)\s*{_WHOLE})?"
_EPOCH = re.compile(rf"(?<!per )(?<![/-])\bepoch\b{_COUNT}")
_STEP = re.compile(rf"(?<!per )(?<![/-])\b(?:global_step|step|iteration|iter|batch)\b{_COUNT}")
_HERALD = re.compile(rf"\W*(?:(?:start(?:ing)?|begin(?:ning)?)\s+(?:of\s+)?)?epoch{_COUNT}\W*$")
_BOX = re.compile(
    rf"(?:tf\.Tensor|np\.float\d+|[aA]rray)\(({_NUMBER})(?:, shape=\(\))?(?:, dtype=\w+)?\)"
    rf"|<tf\.Tensor: shape=\(\), dtype=\w+, numpy=({_NUMBER})>"
)
_LOGGED = re.compile(r"(?:INFO|DEBUG):[\w.]*:\s*|[ID]\d{4} [\d:.]+ +\d+ \w+\.py:\d+\] ")
_OTHER = re.compile(
    r"(?:WARNING|ERROR|CRITICAL)\b|\S+\.py:\d+: \w*Warning|\s*File \"|[\w.]*\w(?:Error|Exception): "
    r"|usage: |\S+: error: "  # argparse's
)
_HOPEFUL = re.compile(r"[=:]| is |[Ee]poch|EPOCH|[Ss]tep|STEP|[Ii]ter|[Bb]atch")


@dataclass(frozen=True)
class PrintedMetrics:
    """The content of a printed line: where the loop is, and the metrics."""

    epoch: int | None
    epochs: int | None
    step: int | None
    steps: int | None
    metrics: dict[str, float]
    herald: bool
    """Whether the line only announces an epoch."""


def printed_metrics(text: str) -> PrintedMetrics | None:
    """Return the content of a finished line without ANSI codes; None if there is none."""
    if len(text) > _PRINT_CHARACTERS or not _HOPEFUL.search(text) or _OTHER.match(text):
        return None
    logged = _LOGGED.match(text)
    text = _BOX.sub(lambda box: box[1] or box[2], text[logged.end() if logged else 0 :])
    lower = text.lower()
    epoch = _EPOCH.search(lower) if "epoch" in lower else None
    step = _STEP.search(lower)
    metrics = _pairs(text, placed=bool(epoch or step))
    herald = not metrics and epoch is not None and _HERALD.match(lower) is not None
    return (
        PrintedMetrics(*_place(epoch), *_place(step), metrics, herald)
        if metrics or herald
        else None
    )


def _place(match: re.Match[str] | None) -> tuple[int | None, int | None]:
    if match is None:
        return None, None
    return _int(match[1]), _int(match[2]) if match[2] else None


def _int(text: str) -> int:
    return int(text.replace(",", ""))


def _pairs(text: str, *, placed: bool) -> dict[str, float]:
    metrics = {}
    for match in _VALUE.finditer(text):
        named = _NAMED.search(text[max(0, match.start() - _REACH_CHARACTERS) : match.start()])
        name = _name(named["name"]) if named else ""
        if _KNOWN.search(name) or (placed and name and _clear(name, match)):
            metrics[name] = _float(match["value"])
    for match in _BARE.finditer(text) if placed else ():
        if _KNOWN.search(match["name"]):
            metrics.setdefault(match["name"], _float(match["value"]))
    return metrics


def _name(words: str) -> str:
    """Return a metric's name without its place, such as "loss" of "loss (1 batch) at step 3"."""
    words = re.sub(r"\s*\([^()]*\)", "", _PLACE.sub("", words))
    return " ".join(words.split(" ")[-3:])


def _clear(name: str, match: re.Match[str]) -> bool:
    """Return whether an unknown name looks like a metric on a line that has an epoch or step."""
    if " " in name or _SETTING.fullmatch(name):
        return False
    return match["sign"] == "=" or bool(match["gap"])


def _float(text: str) -> float:
    return float(text.replace(",", ""))


_BAR_CHARACTERS = 1000  # longer lines are not bars
_SHORT_CHARACTERS = 4  # of a number that has a scale

_BAR_NUMBER = r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?(?:e[-+]?\d{1,3})?|nan|inf)"
_BAR_TIME = r"[\d:]{4,20}|\?"
_SCALES = "kMG"  # with `unit_scale`
_BAR_COUNT = r"(?:\d{1,4}\.\d{1,2}|\d{1,12})"
_BAR_TOTAL = rf"(?:{_BAR_COUNT}|\d{{1,4}}(?:\.\d{{1,2}})?[{_SCALES}])"
_UNIT = rf"[{_SCALES}]? ?[A-Za-z_]{{1,20}}"
_BAR = re.compile(
    r"(?P<name>[^|]{0,200}?)"
    rf"(?:\b\d{{1,3}}%\|[^|]{{0,300}}\| *(?P<step>{_BAR_TOTAL})/(?P<steps>{_BAR_TOTAL})"
    rf"|\b(?P<count>{_BAR_COUNT})(?P<unit>{_UNIT}))"
    rf" \[(?:{_BAR_TIME})(?:<(?P<left>{_BAR_TIME}))?, *"
    rf"(?:\?|(?P<rate>{_BAR_NUMBER}))(?:(?P<per>{_UNIT})/s|s/(?P<each>{_UNIT}))"
    r"(?P<rest>, [^\]]*)?\] *$"
)
_BYTES = re.compile(r"[kKMGTPEZY]? ?i?B")
_BAR_METRIC = re.compile(rf"([^\s=,][^=,]{{0,99}})=({_BAR_NUMBER})(?=,|$)")
_BAR_EPOCH = re.compile(r"(?i)\bepoch\W{0,3}(\d{1,9})(?:\s*(?:/|of)\s*(\d{1,9}))?")
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
    epoch = _BAR_EPOCH.search(match["name"])
    left = match["left"]
    step, steps, scaled = _counts(match)
    return TqdmBar(
        epoch=(int(epoch[1]), int(epoch[2]) if epoch[2] else None) if epoch else None,
        step=step,
        steps=steps,
        metrics={one[1]: float(one[2]) for one in _BAR_METRIC.finditer(match["rest"] or "")},
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
