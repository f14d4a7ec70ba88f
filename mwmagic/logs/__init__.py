"""Worker logs: their visible text, and in it noise, errors and progress.

`terminal` and `noise` serve `lines`, which follows a growing log as marked lines; `progress` reads
start-up and training, custom loops with `loops`, and `tracebacks` what ended a worker. `Guard` is
the boundary around all that parses the output of workers: a worker may print anything, and a parser
may have a bug that only some line triggers. That line is then lost to the parser, but the process
that reads it continues, and so does the run.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from mwmagic.model.status import ParserFault
from mwmagic.model.values import encodable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Guard"]

ERROR_CHARACTERS = 300

P = ParamSpec("P")
T = TypeVar("T")


class Guard:
    """Calls parsers; the first exception of each is reported, none is propagated."""

    def __init__(self, report: Callable[[ParserFault], None]) -> None:
        self._report = report
        self._faulty: set[str] = set()

    def call(
        self, parser: str, neutral: T, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return what a parser returns."""
        try:
            return read(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - any exception may cost no more than one line
            self._note(parser, error)
            return neutral

    def _note(self, parser: str, error: Exception) -> None:
        if parser not in self._faulty:
            self._faulty.add(parser)
            self._report(ParserFault(parser, _summary(error)))


def _summary(error: Exception) -> str:
    """Return an exception as one line of encodable text."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(traceback.format_exception_only(type(error), error)[-1].split())
    where = f"{Path(at.filename).name}:{at.lineno}"
    return encodable(f"{text[:ERROR_CHARACTERS]} ({where})")
