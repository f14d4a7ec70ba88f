"""What a sweep varies: parameters with the values to try, or with a range to draw them from."""

from __future__ import annotations

import itertools
import math
import random
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mwmagic.errors import BadArguments

from .parameters import parameters, settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = [
    "Range",
    "Space",
    "as_json",
    "drawn",
    "from_json",
    "grid",
    "read_space",
    "size",
    "space_of",
    "spoken",
]

_RANGE = re.compile(r"(log|uniform)\(([^,()]+),([^,()]+)\)")
_BEGUN = re.compile(r"(log|uniform)\(")
_OPENING, _CLOSING, _QUOTES = "([{", ")]}", "'\""


@dataclass(frozen=True)
class Range:
    """Numbers between two others, both included: whole ones only, or spread by magnitude."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def draw(self, source: random.Random) -> float | int:
        """Return one of them; of magnitudes each is as likely."""
        if self.whole and not self.log:
            return source.randint(math.ceil(self.low), math.floor(self.high))
        if not self.log:
            return source.uniform(self.low, self.high)
        found = math.exp(source.uniform(math.log(self.low), math.log(self.high)))
        found = min(max(found, self.low), self.high)
        return round(found) if self.whole else found

    def __str__(self) -> str:
        return f"{'log' if self.log else 'uniform'}({self.low:g},{self.high:g})"


Space = dict[str, "tuple[Any, ...] | Range"]
"""For the name of each parameter the values to try, in their order, or a range."""


def read_space(words: Iterable[str]) -> dict[str, str]:
    """Return the parameters that are typed as ``units=32,64`` and ``lr=log(1e-4,1e-1)``."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.strip():
            raise BadArguments(
                f"{word!r} is not a parameter with values: write units=32,64 or lr=log(1e-4,1e-1)"
            )
        if name.strip() in found:
            raise BadArguments(f"the parameter {name} is given twice: write its values in one list")
        found[name.strip()] = text
    return found


def space_of(
    given: Mapping[str, Any], source: str, args: Sequence[str], env: Mapping[str, str]
) -> Space:
    """Return a program's parameters by their whole names, with values as the program has them.

    The value of a parameter is a text as it is typed, or several values, or a `Range`. Raises
    BadArguments if there is no such parameter, or it cannot be set to one of the values.
    """
    space: Space = {}
    for name, asked in given.items():
        choices = _choices(name, asked) if isinstance(asked, str) else asked
        if isinstance(choices, Range):
            pairs = [_checked(source, name, end, args, env) for end in _ends(choices, source, name)]
            whole = all(isinstance(end, int) for _, end in pairs)
            found: tuple[Any, ...] | Range = replace(choices, whole=whole)
        else:
            pairs = [_checked(source, name, one, args, env) for one in _several(name, choices)]
            found = tuple(value for _, value in pairs)
            for at, one in enumerate(found):
                if one in found[:at]:
                    raise BadArguments(
                        f"the parameter {name} has the value {one!r} twice: list it once"
                    )
        known = pairs[0][0]
        if known in space:
            raise BadArguments(f"the parameter {known} is given twice; leave one out")
        space[known] = found
    return space


def _several(name: str, choices: Any) -> list[Any]:  # noqa: ANN401 - a user's
    """Return values to try, of which there must be some."""
    if isinstance(choices, bytes | dict) or not hasattr(choices, "__iter__"):
        raise BadArguments(f"the parameter {name} needs a list of values, not {choices!r}")
    found = list(choices)
    if not found:
        raise BadArguments(f"the parameter {name} has no values to try")
    return found


def _checked(
    source: str,
    name: str,
    value: Any,  # noqa: ANN401 - any literal
    args: Sequence[str],
    env: Mapping[str, str],
) -> tuple[str, Any]:
    """Return a parameter's whole name, and a value as the program has it."""
    [(known, one)] = settings(source, {name: value}, args, env).values.items()
    return known, one


def _ends(choices: Range, source: str, name: str) -> list[float | int]:
    """Return the ends of a range, as integers if the parameter takes no other numbers."""
    known = [one for one in parameters(source) if name in (one.name, one.name.rpartition(".")[2])]
    if any(one.kind is int for one in known):
        for end in (choices.low, choices.high):
            if end != int(end):
                raise BadArguments(
                    f"the parameter {name} takes integers: give a range of integers, not {choices}"
                )
        return [int(choices.low), int(choices.high)]
    return [choices.low, choices.high]


def _choices(name: str, text: str) -> list[str] | Range:
    """Return the texts between the commas of a list, or a range."""
    match = _RANGE.fullmatch("".join(text.split()))
    if match is None:
        begun = _BEGUN.match(text.strip())
        if begun:
            raise BadArguments(
                f"{name}={text} is no range: write two numbers and nothing else, as "
                f"{name}={begun[1]}(1e-4,1e-1), or a text in quotes"
            )
        found = [one.strip() for one in _parted(text)]
        if not all(found):
            raise BadArguments(f"the parameter {name} has an empty value in {name}={text}")
        return found
    kind, *ends = match.groups()
    try:
        low, high = map(float, ends)
    except ValueError:
        raise BadArguments(f"the range {text} of {name} needs numbers at both ends") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise BadArguments(
            f"the range {text} of {name} must go from a lower number to a higher one"
        )
    if kind == "log" and low <= 0:
        raise BadArguments(
            f"the range {text} of {name} must begin above 0, because it is logarithmic"
        )
    return Range(low, high, log=kind == "log")


def _parted(text: str) -> list[str]:
    """Split at commas, but not within brackets or quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES:
            quote = character
        elif character == "," and depth == 0:
            parts.append("")
            continue
        else:
            depth += (character in _OPENING) - (character in _CLOSING)
        parts[-1] += character
    return parts


def size(space: Space) -> int:
    """Return how many combinations of values there are."""
    return math.prod(len(one) for one in space.values() if isinstance(one, tuple))


def grid(space: Space) -> Iterator[dict[str, Any]]:
    """Yield every combination of the values; those of the last parameter change first."""
    for name, values in space.items():
        if isinstance(values, Range):
            raise BadArguments(
                f"{name}={values} is a range, and only listed values can all be tried: add "
                "--random N to draw N combinations, or list the values"
            )
    for combination in itertools.product(*space.values()):  # type: ignore[arg-type]
        yield dict(zip(space, combination, strict=True))


def drawn(space: Space, seed: int, number: int) -> dict[str, Any]:
    """Return the combination with a number in a random order, which the seed determines."""
    source = random.Random(f"{seed}/{number}")  # noqa: S311 - no secret
    return {
        name: values.draw(source) if isinstance(values, Range) else source.choice(values)
        for name, values in space.items()
    }


def as_json(space: Space) -> dict[str, Any]:
    """Return a space as a sweep's plan keeps it."""
    return {name: vars(one) if isinstance(one, Range) else list(one) for name, one in space.items()}


def from_json(values: Mapping[str, Any]) -> Space:
    """Return what `as_json` returned; lists are what tuples were."""
    return {
        name: Range(**one) if isinstance(one, dict) else tuple(one) for name, one in values.items()
    }


def spoken(space: Space) -> str:
    """Return a space as it is typed."""
    texts = {
        name: str(one) if isinstance(one, Range) else ",".join(map(str, one))
        for name, one in space.items()
    }
    return " ".join(f"{name}={text}" for name, text in texts.items())
