"""What is known of a file on its way from a task's machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Fetch", "FetchState"]

FetchState = Literal["going", "done", "here", "failed"]
"""Whether a file is on its way, has arrived, need not travel, or cannot be had."""


@dataclass(frozen=True)
class Fetch:
    """A file or directory that is fetched from a task's machine.

    Parameters
    ----------
    task : str
        The task.
    path : str
        Its path there.
    to : str
        Its path here.
    state : FetchState
        How far it is.
    files, size : int
        How many files and bytes it has.
    done : int
        How many bytes are here.
    kind, error : str
        The class of the error for which it cannot be had, and its text.
    """

    task: str
    path: str
    to: str
    state: FetchState = "going"
    files: int = 0
    size: int = 0
    done: int = 0
    kind: str = ""
    error: str = ""
