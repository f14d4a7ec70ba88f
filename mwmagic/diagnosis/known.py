"""Known failures: what an entry of the table says, and how it is recognised."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from mwmagic.model.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["AT_LINES", "Choice", "KnownFailure", "pattern", "recognise"]

AT_LINES = "lines"
"""Not an option, but known with them: whether the tasks were at ``same`` or ``different`` lines."""


@dataclass(frozen=True)
class Choice:
    """What depends on an option of the run, such as advice to change it."""

    option: str
    """The option's name in `ClusterOptions`, or `AT_LINES`."""
    values: tuple[str, ...]
    """The values with which it applies. Advice applies with none that it recommends."""
    text: str = ""
    """The advice."""

    def applies(self, options: Mapping[str, str]) -> bool:
        """Return whether it applies with these options; without knowing the option's value, not."""
        return options.get(self.option) in self.values


@dataclass(frozen=True)
class KnownFailure:
    """What is known to go wrong: what it means, how it is recognised, and what to try."""

    name: str
    """Its id in the documentation, the record and the tests."""
    title: str
    meaning: str
    """What it means, in one or two sentences."""
    remedy: str
    """What to try, whatever the run's options are."""
    link: str
    """Where to read more."""
    symptoms: tuple[Finding, ...] = ()
    """What mwmagic itself observes. A finding matches if it has the same symptom and every field
    that is set here."""
    signs: tuple[str, ...] = ()
    """What TensorFlow, Keras, Python or the system print, with ``...`` for the parts that vary.
    mwmagic prints none of this itself."""
    edit: tuple[str, str] | None = None
    """What to write in the user's line, after what stands there now."""
    choices: tuple[Choice, ...] = ()
    """What else to try with some values of the run's options."""
    when: Choice | None = None
    """The options with which it can be this failure; None for any."""
    together: bool = False
    """Whether it concerns what the tasks do together: then the others' lines belong to it."""

    def possible(self, options: Mapping[str, str]) -> bool:
        """Return whether it can be this failure, given the run's options."""
        return self.when is None or self.when.applies(options)

    def advice(self, options: Mapping[str, str]) -> str:
        """Return what to try, given the run's options: never what is in force."""
        offered = [choice.text for choice in self.choices if choice.applies(options)]
        return "; ".join([self.remedy, *offered])


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
class _Match:
    """An entry that was recognised, and the text in the gaps of its sign."""

    known: KnownFailure
    gaps: tuple[str, ...] = ()


def _match(known: KnownFailure, evidence: str | Finding) -> _Match | None:
    if isinstance(evidence, Finding):
        return _Match(known) if any(one.matches(evidence) for one in known.symptoms) else None
    for sign in known.signs:
        match = pattern(sign).search(evidence)
        if match is not None:
            return _Match(known, tuple(word.strip() for word in match.groups()))
    return None


def recognise(
    table: Iterable[KnownFailure],
    evidence: Iterable[str | Finding],
    options: Mapping[str, str] | None = None,
) -> _Match | None:
    """Return the first entry that matches the first conclusive piece of evidence."""
    entries = [known for known in table if known.possible(options or {})]
    found = (_match(known, one) for one in evidence for known in entries)
    return next((match for match in found if match is not None), None)
