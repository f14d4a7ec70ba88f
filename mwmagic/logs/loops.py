"""Finds metrics in the output of a custom training loop.

There is no format to rely on, so a pair of a name and a number only counts with
evidence: a well-known metric's name, or an epoch or step on the same line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
