"""What a repeated declaration does to the running cluster."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from .option import Option, Repeated
from .options import OPTIONS, ClusterOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Change", "Outcome", "Repetition", "repeat"]


class Outcome(Enum):
    """What becomes of the running cluster."""

    REUSE = "reuse"
    UPDATE = "update"
    REPLACE = "replace"


@dataclass(frozen=True)
class Change:
    """One option whose value changes."""

    name: str
    old: Any
    new: Any


@dataclass(frozen=True)
class Repetition:
    """The effect of a repeated declaration.

    Parameters
    ----------
    outcome : Outcome
        What becomes of the running cluster.
    options : ClusterOptions
        The options afterwards.
    changes : tuple of Change
        What is updated, or why the cluster must be replaced.
    """

    outcome: Outcome
    options: ClusterOptions
    changes: tuple[Change, ...] = ()


def repeat(
    running: ClusterOptions,
    typed: Mapping[str, Any],
    defaults: Mapping[str, Any],
    before: Mapping[str, Any],
) -> Repetition:
    """Decide what a repeated declaration does.

    With a number of workers it describes the whole cluster; without one, it
    changes the options that were typed and keeps the others. Whatever was typed
    always takes effect, and so does a default that was changed since, in a
    declaration of the whole cluster.
    """
    whole = "workers" in typed
    if whole:
        typed = {**_changed(before, defaults), **typed}
    same = {name: getattr(running, name) for name in _named(Repeated.IGNORED)}
    base = defaults if whole else {**running.as_json()}
    env = {} if whole else running.env
    asked = {**typed, "env": {**env, **typed.get("env", {})}}
    wanted = ClusterOptions(**{**base, **asked, **same})
    compared = [one.name for one in OPTIONS.values() if _must_match(one, typed, whole=whole)]
    conflicts = _changes(running, wanted, compared)
    if conflicts:
        return Repetition(Outcome.REPLACE, wanted, conflicts)
    updates = {name: getattr(wanted, name) for name in _named(Repeated.UPDATE) if name in typed}
    if "env" in updates:
        updates["env"] = {**running.env, **wanted.env}
    updated = running.updated(updates)
    changes = _changes(running, updated, list(updates))
    return Repetition(Outcome.UPDATE if changes else Outcome.REUSE, updated, changes)


def _changed(before: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults that are not what they were."""
    own = {name: one.default for name, one in OPTIONS.items()}
    return {name: value for name, value in defaults.items() if value != {**own, **before}[name]}


def _named(repeated: Repeated) -> list[str]:
    return [one.name for one in OPTIONS.values() if one.repeated is repeated]


def _must_match(option: Option, typed: Mapping[str, Any], *, whole: bool) -> bool:
    """Return whether a different value of an option requires a new cluster."""
    if option.repeated is Repeated.MUST_MATCH:
        return whole or option.name in typed
    return option.repeated is Repeated.MUST_MATCH_IF_TYPED and option.name in typed


def _changes(old: ClusterOptions, new: ClusterOptions, names: list[str]) -> tuple[Change, ...]:
    changes = (Change(name, getattr(old, name), getattr(new, name)) for name in names)
    return tuple(change for change in changes if change.old != change.new)
