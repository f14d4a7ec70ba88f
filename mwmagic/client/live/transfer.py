"""Moves values between this process and live interpreters, in files.

On this machine the files are in memory where there is room. On others they go beside the tasks'
logs, and the supervisor brings them there and back.
"""

from __future__ import annotations

import math
import os
import secrets
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mwmagic.errors import BadArguments, MwmagicError
from mwmagic.model.live import parcel_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mwmagic.model.cluster import TaskName

    from .session import Live

__all__ = ["EXCHANGE", "pull", "push"]

MEMORY = Path("/dev/shm")  # noqa: S108 - in a private directory of it
"""A folder whose files are in memory: a value of 100 MB takes 0.1 s there and back."""

EXCHANGE = "mwmagic.worker.live.parcel"
"""The module that cells use which move values; it is in the code of no others."""

_TASK = f"__import__('{EXCHANGE}', fromlist=['parcel'])"

LITERAL_BITS, LITERAL_CHARACTERS = 64, 200
"""The largest integers and texts that a push writes in its cell."""


def pull(
    live: Live, expressions: Sequence[str], tasks: Sequence[TaskName] | None
) -> dict[str, dict[str, Any]]:
    """Return the values of expressions on tasks; by task, and there by expression."""
    from mwmagic.worker.live import parcel

    pairs = ", ".join(f"{text!r}: ({text}\n)" for text in expressions)
    with _meeting(live) as way:
        source = f"{_TASK}.give({way.there!r}, {{{pairs}}});"
        said = live.run(source, tasks, name="%mw_pull", alone=True)
        try:
            return {task: parcel.read(str(way.fetch(task))) for task in said}
        except parcel.NotPlain as error:
            raise BadArguments(str(error)) from None


def push(live: Live, values: Mapping[str, Any], tasks: Sequence[TaskName] | None) -> None:
    """Set variables on tasks; by default on all."""
    from mwmagic.worker.live import parcel

    name = f"%mw_push {', '.join(values)}"
    plain = {one: value for one, value in values.items() if _is_literal(value)}
    source = "".join(f"{one} = {value!r}\n" for one, value in plain.items())
    if len(plain) == len(values):
        live.run(source, tasks, name=name, alone=True)
        return
    try:
        packed = parcel.Parcel({one: values[one] for one in values.keys() - plain.keys()})
    except parcel.NotPlain as error:
        raise BadArguments(str(error)) from None
    with _meeting(live) as way:
        chosen = parcel.roomy(list(map(str, way.here)), packed.size)
        packed.write(chosen)
        place = way.bring(chosen, tasks)
        source += f"globals().update({_TASK}.take({place!r}));"
        live.run(source, tasks, name=name, alone=True)


def _is_literal(value: object) -> bool:
    """Return whether a value can be written in a cell, so that the record holds it."""
    if type(value) is int:
        return value.bit_length() <= LITERAL_BITS
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) is bool or _is_short(value)


def _is_short(value: object) -> bool:
    return type(value) is str and len(value) <= LITERAL_CHARACTERS and value.isprintable()


class _Way(Protocol):
    """Where values are exchanged: the files here, and what tasks call them, in the same order.

    The first that has room is enough.
    """

    here: Sequence[Path]
    there: Sequence[str]

    def bring(self, path: str, tasks: Sequence[TaskName] | None) -> str:
        """Bring one of the files to tasks, and return what they call it."""

    def fetch(self, task: str) -> Path:
        """Return where what a task wrote is here, after fetching it."""


class _OneMachine:
    """Private directories of this machine: in memory, and on a disk that may have more room."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.here: Sequence[Path] = [Path(folder, "values") for folder in folders]
        self.there: Sequence[str] = list(map(str, self.here))

    def bring(self, path: str, _tasks: Sequence[TaskName] | None) -> str:
        return path

    def fetch(self, task: str) -> Path:
        found = (Path(parcel_name(place, task)) for place in self.there)
        return next(path for path in found if path.exists())


class _Machines:
    """A file beside the logs, which only their owner can read either."""

    def __init__(self, live: Live) -> None:
        name = f"values-{secrets.token_hex(8)}"
        status = live.process.status()
        self.here: Sequence[Path] = [live.process.record.paths.attempt(status.attempt) / name]
        self.there: Sequence[str] = [name]
        self._live = live

    def bring(self, path: str, tasks: Sequence[TaskName] | None) -> str:
        self._live.carry(path, tasks, back=False)
        return self.there[0]

    def fetch(self, task: str) -> Path:
        path = Path(parcel_name(str(self.here[0]), task))
        self._live.carry(str(path), [task], back=True)
        return path

    def clean(self) -> None:
        """Remove the files, here and there."""
        for path in self.here[0].parent.glob(f"{self.here[0].name}*"):
            path.unlink(missing_ok=True)
        with suppress(MwmagicError):  # the session may be over
            self._live.run(f"{_TASK}.drop({self.there[0]!r});", name="%mw_pull", alone=True)


@contextmanager
def _meeting(live: Live) -> Iterator[_Way]:
    """Yield where values are exchanged; what was written there is removed."""
    with ExitStack() as stack:
        if live.cluster.options.engine == "local":
            shelves = [str(MEMORY)] if os.access(MEMORY, os.W_OK) else []
            private = [
                tempfile.TemporaryDirectory(prefix=f"mwmagic-{os.getpid()}-", dir=shelf)
                for shelf in [*shelves, None]
            ]
            yield _OneMachine([stack.enter_context(one) for one in private])
        else:
            way = _Machines(live)
            stack.callback(way.clean)
            yield way
