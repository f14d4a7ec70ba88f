# ruff: noqa: ANN401 - Keras has no annotations
"""What one repair of Keras is."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mwmagic.errors import MwmagicError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["READ", "KerasRefused", "Repair", "replace", "says"]

# The release of Keras whose lines the repairs name.
READ = "3.15.1"


class KerasRefused(MwmagicError, ValueError):
    """Something that cannot give correct numbers under a multi-worker strategy."""


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
    defective : callable
        Takes no argument; examines the installed functions and returns whether they
        have the defect. It must run no TensorFlow operation, because a strategy can only
        be created before the first one.
    apply : callable
        Takes no argument; replaces the defective function. The replacement behaves
        like the original wherever no multi-worker strategy is in use.
    """

    feature: str
    link: str
    defective: Callable[[], bool]
    apply: Callable[[], None]

    @property
    def url(self) -> str:
        """The address of the thread, or of the line in Keras's source."""
        if ".py#L" in self.link:
            return f"https://github.com/keras-team/keras/blob/v{READ}/keras/src/{self.link}"
        repository, number = self.link.split("#")
        return f"https://github.com/{repository}/issues/{number}"


def says(function: Any, *phrases: str) -> bool:
    """Return whether a function's source contains every phrase, whatever the line breaks.

    Source that cannot be read contains nothing, and neither do this package's own
    replacements.
    """
    if function is None or function.__module__.startswith("mwmagic."):
        return False
    try:
        source = "".join(inspect.getsource(function).split())
    except (OSError, TypeError):
        return False
    return all("".join(phrase.split()) in source for phrase in phrases)


def replace(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    """Put a function in another's place, under its name and with its documentation."""
    original = getattr(owner, name)
    replacement.__name__ = name
    replacement.__qualname__ = original.__qualname__
    replacement.__doc__ = original.__doc__
    setattr(owner, name, replacement)
