"""The options that declare a cluster, for magics and the command line alike."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from mwmagic.frameworks import FRAMEWORKS

from .config import KERAS_MODES, ON_STALL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["cluster_options", "count_or", "options", "setting"]


def setting(text: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def count_or(word: str, meaning: int | None) -> Callable[[str], int | None]:
    """Return a reader of a count, or of a word in its place."""

    def read(text: str) -> int | None:
        if text == word:
            return meaning
        if not text.isdecimal():
            raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor {word!r}")
        return int(text)

    return read


def cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that declare a cluster, but for the number of workers."""
    add = parser.add_argument
    add("--chief", action="store_true", help="a chief besides the workers")
    add("--ps", type=int, default=0, metavar="N", help="how many parameter servers")
    add("--evaluator", action="store_true", help="an evaluator besides")
    add("--framework", choices=list(FRAMEWORKS), help="what the processes read to meet")
    add("--engine", choices=["local"], default="local", help="what places tasks on machines")
    add("--keras", choices=KERAS_MODES, help="repair Keras 3, leave it alone, or use tf-keras")
    add("--devices", type=int, default=0, metavar="N", help="virtual CPU devices per task")
    add(
        "--gpus",
        type=count_or("none", 0),
        metavar="N|none",
        help="GPUs for each chief and worker; by default the machine's are divided",
    )
    add(
        "--threads",
        type=count_or("auto", None),
        metavar="N|auto",
        help="threads for each task; auto, the default, divides the processors; 0 divides nothing",
    )
    add("--restarts", type=int, metavar="N", help="restarts of the gang after a failure")
    add("--grace", type=float, metavar="S", help="seconds between SIGTERM and SIGKILL")
    add("--stall-timeout", type=float, metavar="S", help="seconds without progress (60); 0 is off")
    add("--on-stall", choices=ON_STALL, default="report", help="say so, or restart the gang too")
    add("--env", type=setting, action="append", metavar="K=V", help="a variable for the workers")


def options(names: Iterable[tuple[str, str]] | None) -> dict[str, str]:
    """Return what ``--env`` gave, as a mapping."""
    return dict(names or ())
