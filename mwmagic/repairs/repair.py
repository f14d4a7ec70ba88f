# ruff: noqa: ANN401 - Keras has no annotations
"""What one repair of Keras is."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from enum import Enum
from functools import cache, update_wrapper
from typing import TYPE_CHECKING, Any

from mwmagic.errors import MwmagicError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .use import Use

__all__ = [
    "READ",
    "Absence",
    "KerasRefused",
    "Repair",
    "Sign",
    "State",
    "UnknownKeras",
    "is_from_keras",
    "replace",
]

# The release of Keras whose lines the repairs name.
READ = "3.15.1"


class KerasRefused(MwmagicError, ValueError):
    """Something that cannot give correct numbers under a multi-worker strategy."""


class UnknownKeras(MwmagicError):
    """The installed Keras is neither as it is known to be defective nor as it is sound."""


class State(Enum):
    """What a look at the installed Keras says of one defect."""

    DEFECTIVE = "defective"
    SOUND = "sound"
    UNKNOWN = "unknown"


class Sign:
    """What the source of one function of Keras says, whatever its line breaks."""

    def __init__(
        self, owner: Any, name: str, *says: str | tuple[str, ...], lacks: str = ""
    ) -> None:
        self.owner, self.name, self._says, self._lacks = owner, name, says, lacks

    def __str__(self) -> str:
        return f"{self.owner.__name__.rpartition('.')[2]}.{self.name}"

    @property
    def holds(self) -> bool:
        """Whether the function says so. One whose source cannot be read says nothing."""
        source = _source(getattr(self.owner, self.name, None))
        lacks = self._lacks and _packed(self._lacks) in source
        return bool(source) and not lacks and all(_says(source, phrase) for phrase in self._says)


@dataclass(frozen=True)
class Absence:
    """That Keras has nothing by this name.

    Parameters
    ----------
    owner : type or module
        Where it would be.
    name : str
        Its name.
    """

    owner: Any
    name: str

    @property
    def holds(self) -> bool:
        """Whether it is absent."""
        return not hasattr(self.owner, self.name)


@cache
def _source(function: Any) -> str:
    try:
        return _packed(inspect.getsource(getattr(function, "fget", function)))
    except (OSError, TypeError):
        return ""


def _says(source: str, phrase: str | tuple[str, ...]) -> bool:
    phrases = (phrase,) if isinstance(phrase, str) else phrase
    return any(_packed(one) in source for one in phrases)


def _packed(text: str) -> str:
    return "".join(text.split())


@dataclass(frozen=True)
class Repair:
    """One defect of Keras 3 under a multi-worker strategy, and its cure.

    Parameters
    ----------
    feature : str
        What a user gets back, in a word or two, such as ``"fit"``.
    link : str
        The defect's report upstream, such as ``"keras-team/keras#20585"``. If it has
        not been reported, the line of the function that is replaced, such as
        ``"callbacks/csv_logger.py#L42"``, in Keras `READ`.
    defect : tuple of Sign
        What shows the defect. Every function that `apply` replaces is among them, so that
        none is replaced that has become another. Looking runs no TensorFlow operation,
        because a strategy can only be created before the first one.
    apply : callable
        Takes no argument; replaces the defective function. The replacement behaves
        like the original wherever no multi-worker strategy is in use.
    cured : tuple of Sign or Absence
        What shows that Keras has no such defect, if there is a Keras without it.
    uses : tuple of Use
        What a program calls when it comes to need this repair. A Keras of which it is not known
        whether it has the defect is refused there and nowhere else. Without any, every training
        needs the repair.
    """

    feature: str
    link: str
    defect: tuple[Sign, ...]
    apply: Callable[[], None]
    cured: tuple[Sign | Absence, ...] = ()
    uses: tuple[Use, ...] = ()

    @property
    def url(self) -> str:
        """The address of the thread, or of the line in Keras's source."""
        if ".py#L" in self.link:
            return f"https://github.com/keras-team/keras/blob/v{READ}/keras/src/{self.link}"
        repository, number = self.link.split("#")
        return f"https://github.com/{repository}/issues/{number}"

    @property
    def state(self) -> State:
        """What the installed Keras is: only what is known may be repaired, or left alone."""
        if all(sign.holds for sign in self.defect):
            return State.DEFECTIVE
        if self.cured and all(sign.holds for sign in self.cured):
            return State.SOUND
        return State.UNKNOWN

    @property
    def is_separable(self) -> bool:
        """Whether training without it is right until one of its uses is called."""
        return bool(self.uses) and all(use.is_there for use in self.uses)

    @property
    def unlike(self) -> str:
        """What it is for, and the functions that are not as it knows them."""
        return f"{self.feature} ({', '.join(str(sign) for sign in self.defect if not sign.holds)})"


def is_from_keras(one: Any) -> bool:
    """Return whether Keras itself, not the user's code, defines an object's type."""
    return type(one).__module__.startswith("keras.")


def replace(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    """Put a function in another's place; to `inspect` and `pickle` it is as the other."""
    setattr(owner, name, update_wrapper(replacement, getattr(owner, name)))
