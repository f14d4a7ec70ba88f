"""Reads what a worker sends on its private line, which may be anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mwmagic.agent.wire import parsed
from mwmagic.logs.progress import Update
from mwmagic.model.ownership import is_module_name
from mwmagic.model.values import (
    METRICS_LIMIT,
    NAME_CHARACTERS,
    REPORT_BYTES,
    decoded,
    decoded_all,
    encodable,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["History", "Imports", "Report", "TooLate", "report_in"]

LARGEST_COUNT = 10**12
"""The largest number of an epoch, a step or a fit."""

_KINDS = ("train", "validation", "evaluate", "report")


@dataclass(frozen=True)
class History:
    """A part of the history that a `fit` returned.

    Parameters
    ----------
    fit : int
        Which `fit` of the process it was, from 1.
    name : str
        The metric.
    start : int
        How many epochs precede it.
    values : tuple of float
        One for each epoch.
    """

    fit: int
    name: str
    start: int
    values: tuple[float, ...]


@dataclass(frozen=True)
class Imports:
    """What a process has imported that it was not forked with.

    Parameters
    ----------
    seconds : dict of str to float
        How long each module took.
    """

    seconds: dict[str, float]


@dataclass(frozen=True)
class TooLate:
    """A variable that a warm process's program sets before an import that was over before.

    Parameters
    ----------
    name : str
        The variable.
    at : str
        The file and the line.
    """

    name: str
    at: str


Report = Update | History | Imports | TooLate


def report_in(data: str) -> Report:
    """Read a packet."""
    if len(data) > REPORT_BYTES:
        raise ValueError(f"the report is longer than {REPORT_BYTES} bytes")
    said = parsed(data)
    if said.get("kind") == "imports":
        return _imports(said)
    if said.get("kind") == "late":
        return _late(said)
    return _history(said) if said.get("kind") == "history" else _update(said)


def _update(said: Mapping[str, Any]) -> Update:
    kind, metrics = said.get("kind"), said.get("metrics", {})
    if kind not in _KINDS:
        raise ValueError(f"not a kind of report: {kind!r:.100}")
    if not isinstance(metrics, dict) or len(metrics) > METRICS_LIMIT:
        raise ValueError("metrics are an object of names and numbers, and not too many")
    return Update(
        kind=kind,
        epoch=_count(said.get("epoch")),
        epochs=_count(said.get("epochs")),
        step=_count(said.get("step")),
        steps=_count(said.get("steps")),
        metrics=decoded_all({_name(name): value for name, value in metrics.items()}),
        final=said.get("final") is True,
        seconds_per_step=_seconds(said.get("seconds_per_step")),
    )


def _history(said: Mapping[str, Any]) -> History:
    fit, start = _count(said.get("fit")), _count(said.get("start"))
    name, values = said.get("name"), said.get("values")
    if fit is None or start is None or not isinstance(name, str) or not isinstance(values, list):
        raise ValueError("a history needs fit, start, name and values")
    return History(fit, _name(name), start, tuple(decoded(value) for value in values))


def _imports(said: Mapping[str, Any]) -> Imports:
    seconds = said.get("seconds")
    if not isinstance(seconds, dict) or len(seconds) > METRICS_LIMIT:
        raise ValueError("imports are an object of modules and seconds, and not too many")
    took = {_name(name): _seconds(value) for name, value in seconds.items()}
    return Imports({name: one for name, one in took.items() if one and is_module_name(name)})


def _late(said: Mapping[str, Any]) -> TooLate:
    name, at = said.get("name"), said.get("at")
    if not isinstance(name, str) or not isinstance(at, str):
        raise ValueError("a variable that is set too late needs a name and a line")  # noqa: TRY004 - one error for all bad packets
    return TooLate(_name(name), _name(at))


def _name(name: str) -> str:
    """Return a metric's name as every encoder accepts it."""
    if len(name) > NAME_CHARACTERS:
        raise ValueError(f"a metric's name is longer than {NAME_CHARACTERS} characters")
    return encodable(name)


def _count(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > LARGEST_COUNT:
        raise ValueError(f"not a count: {value!r:.100}")
    return value


def _seconds(value: object) -> float | None:
    number = None if value is None else decoded(value)
    return number if number is not None and 0 < number < float("inf") else None
