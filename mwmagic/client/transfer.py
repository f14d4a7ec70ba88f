"""Moves values between this process and live interpreters, in files."""

from __future__ import annotations

import math
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic.errors import BadArguments, ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mwmagic.model.cluster import TaskName

    from .live import Live

__all__ = ["pull", "push"]

MEMORY = Path("/dev/shm")  # noqa: S108 - in a private directory of it
"""Where files are memory: a value of 100 MB takes 0.1 s there and back."""

LITERAL_BITS, LITERAL_CHARACTERS = 64, 200
"""The largest integers and texts that a push writes in its cell."""

_PARCEL = "__import__('mwmagic.worker.parcel', fromlist=['parcel'])"


def pull(live: Live, expressions: Sequence[str], task: TaskName) -> dict[str, Any]:
    """Return the values of expressions on a task, by expression.

    Raises
    ------
    WorkerFailed
        An expression raises there, or its value is neither an array nor plain data.
    ClusterError
        The tasks are on other machines.
    """
    from mwmagic.worker import parcel

    pairs = ", ".join(f"{text!r}: ({text}\n)" for text in expressions)
    with _file(live) as path:
        live.run(f"{_PARCEL}.write({path!r}, {{{pairs}}});", [task], name="%mw_pull")
        return parcel.read(path)


def push(live: Live, values: Mapping[str, Any], tasks: Sequence[TaskName] | None) -> None:
    """Set variables on tasks; by default on all.

    Raises
    ------
    BadArguments
        A value is neither an array nor plain data.
    ClusterError
        The tasks are on other machines.
    """
    from mwmagic.worker import parcel

    name = f"%mw_push {', '.join(values)}"
    plain = {one: value for one, value in values.items() if _is_literal(value)}
    source = "".join(f"{one} = {value!r}\n" for one, value in plain.items())
    if len(plain) == len(values):
        live.run(source, tasks, name=name)
        return
    with _file(live) as path:
        try:
            parcel.write(path, {one: values[one] for one in values.keys() - plain.keys()})
        except parcel.NotPlain as error:
            raise BadArguments(str(error)) from None
        source += f"globals().update({_PARCEL}.read({path!r}));"
        live.run(source, tasks, name=name)


def _is_literal(value: object) -> bool:
    """Return whether a value can be written in a cell, so that the record holds it."""
    if type(value) is int:
        return value.bit_length() <= LITERAL_BITS
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) is bool or _is_short(value)


def _is_short(value: object) -> bool:
    return type(value) is str and len(value) <= LITERAL_CHARACTERS and value.isprintable()


@contextmanager
def _file(live: Live) -> Iterator[str]:
    """Yield the name of a file that does not exist yet, and that only this user can reach."""
    _check_here(live)
    folder = str(MEMORY) if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="mwmagic-", dir=folder) as private:
        yield f"{private}/values"


def _check_here(live: Live) -> None:
    engine = live.cluster.options.engine
    if engine != "local":
        raise ClusterError(
            f"values are moved on this machine only, and the tasks are on those of the engine "
            f"{engine!r}; save the value to a file there, and `%mw_fetch` brings it"
        )
