"""Logs as ``%mw_logs`` and ``mwmagic logs`` show them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mwmagic.errors import BadArguments

from .noise import Hidden, fold
from .terminal import plain, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["read"]


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise BadArguments(f"--grep {text!r} is no regular expression: {error}") from error


def _text(line: str | Hidden) -> str:
    return f"{line}, `--raw` shows them" if isinstance(line, Hidden) else line


def _last(lines: Sequence[str], count: int) -> list[str]:
    if count <= 0 or len(lines) <= count:
        return list(lines)
    note = f"... {len(lines) - count} earlier lines not shown, `--tail 0` shows them"
    return [note, *lines[-count:]]


def read(
    data: bytes, *, raw: bool = False, ansi: bool = False, tail: int = 0, grep: str | None = None
) -> list[str]:
    """Return a log's lines.

    Parameters
    ----------
    data : bytes
        The log.
    raw : bool
        Byte for byte, with the framework's notices and every update of a bar.
    ansi : bool
        Keep the colours.
    tail : int
        Only the last so many lines; 0 is all.
    grep : str, optional
        Only lines that match this regular expression.

    Raises
    ------
    BadArguments
        `grep` is no regular expression.
    """
    if raw:
        lines = data.decode("utf-8", "replace").split("\n")
        lines = lines[:-1] if lines[-1] == "" else lines
    else:
        folded = fold(shown(data, ansi=ansi))
        lines = [_text(line) for line in folded if grep is None or not isinstance(line, Hidden)]
    if grep is not None:
        wanted = _pattern(grep)
        lines = [line for line in lines if wanted.search(plain(line))]
    return _last(lines, tail)
