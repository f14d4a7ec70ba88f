"""Recognises known failures by what a task printed and how it behaved."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from mwmagic.model.symptom import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .known import Known

__all__ = ["Match", "pattern", "recognise"]

GAP = "..."
"""The placeholder for any text in a sign."""

GAP_CHARACTERS = 4000
"""The longest text between two parts of a sign."""

CLASSES = {
    "{model}": ("Functional", "Model", "Sequential"),
    "{optimizer}": (
        "Adadelta",
        "Adafactor",
        "Adagrad",
        "Adam",
        "AdamW",
        "Adamax",
        "Ftrl",
        "Lamb",
        "Lion",
        "LossScaleOptimizer",
        "Nadam",
        "RMSprop",
        "SGD",
    ),
    "{layer}": (
        "Activation",
        "Add",
        "AveragePooling[123]D",
        "BatchNormalization",
        "Bidirectional",
        "Concatenate",
        "Conv[123]D(?:Transpose)?",
        "Dense",
        "Dropout",
        "Embedding",
        "Flatten",
        "GRU",
        "GlobalAveragePooling[123]D",
        "GlobalMaxPooling[123]D",
        "InputLayer",
        "LSTM",
        "LayerNormalization",
        "MaxPooling[123]D",
        "MultiHeadAttention",
        "Reshape",
    ),
}
"""The names of Keras's classes, as regular expressions: other people's have such methods too."""


@cache
def pattern(sign: str) -> re.Pattern[str]:
    """Return the regular expression of a sign, with a group for each gap.

    A gap at the end matches the rest of the line, others as little as possible.
    """
    head, *tail = map(_escaped, sign.split(GAP))
    gaps = [rf"(.{{0,{GAP_CHARACTERS}}}?){part}" if part else r"([^\n]*)" for part in tail]
    return re.compile(head + "".join(gaps), re.DOTALL)


def _escaped(text: str) -> str:
    """Return the regular expression of a part of a sign that has no gap."""
    for name, classes in CLASSES.items():
        before, found, after = text.partition(name)
        if found:
            return f"{_escaped(before)}(?:{'|'.join(classes)}){_escaped(after)}"
    return re.escape(text)


@dataclass(frozen=True)
class Match:
    """An entry that was recognised.

    Parameters
    ----------
    known : Known
        The entry.
    gaps : tuple of str
        The text in the gaps of its sign.
    """

    known: Known
    gaps: tuple[str, ...] = ()


def _match(known: Known, evidence: str | Finding) -> Match | None:
    if isinstance(evidence, Finding):
        return Match(known) if any(one.matches(evidence) for one in known.symptoms) else None
    for sign in known.signs:
        match = pattern(sign).search(evidence)
        if match is not None:
            return Match(known, tuple(word.strip() for word in match.groups()))
    return None


def recognise(
    table: Iterable[Known],
    evidence: Iterable[str | Finding],
    options: Mapping[str, str] | None = None,
) -> Match | None:
    """Return the first entry that matches the first conclusive piece of evidence."""
    entries = [known for known in table if known.possible(options or {})]
    found = (_match(known, one) for one in evidence for known in entries)
    return next((match for match in found if match is not None), None)
