# ruff: noqa: ANN401 - Keras and HDF5 have no annotations
"""A number in a file of weights, as an attribute, which Keras itself does not read."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .parts import H5IOStore
from .repair import replace

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Marked", "keep_marks", "marking"]

VERSION_ATTRIBUTE = "mwmagic_version"


@dataclass
class Marked:
    """What the files of weights say that are written, or said that were read; None is nothing."""

    number: int | None = None


_MARK: ContextVar[Marked | None] = ContextVar("mark", default=None)


@contextmanager
def marking(number: int | None = None) -> Iterator[Marked]:
    """Mark the files of weights that are written from now on, and note what those read say."""
    mark = Marked(number)
    token = _MARK.set(mark)
    try:
        yield mark
    finally:
        _MARK.reset(token)


def keep_marks() -> None:
    """Let files of weights have marks.

    They are written before the file gets its name, so that no fault comes in between.
    """
    original = H5IOStore.close

    def close(self: Any) -> None:
        mark = _MARK.get()
        if mark is not None and self.mode == "r":
            found = self.h5_file.attrs.get(VERSION_ATTRIBUTE)
            mark.number = None if found is None else int(found)
        elif mark is not None and mark.number is not None:
            self.h5_file.attrs[VERSION_ATTRIBUTE] = mark.number
        original(self)

    replace(H5IOStore, "close", close)
