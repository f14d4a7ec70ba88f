"""What the logs and stacks of living tasks tell from outside."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

from mwmagic.frameworks.patterns import collected
from mwmagic.logs.phases import Phase

from .signs import recognise
from .table import NOTICES, STALLS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .stacks import Stack
    from .table import Known

__all__ = ["Notice", "Seen", "notices", "why_stalled"]

_IN_SAVE = re.compile(r'/\w*(?:checkpoint|sav)\w*\.py", line \d+ in \w*save')


@cache
def _targets() -> list[re.Pattern[str]]:
    return [re.compile(text) for text in collected(lambda one: one.server_addresses)]


@cache
def _twice() -> list[re.Pattern[str]]:
    return [re.compile(text) for text in collected(lambda one: one.duplicates)]


@dataclass(frozen=True)
class Seen:
    """What is seen of a task.

    Parameters
    ----------
    task : str
        Its name.
    address : str
        Where the others expect its server.
    tail : str
        The end of its log.
    phase : Phase
        What its log says of its start-up.
    verbose : bool
        Whether TensorFlow's notices are in that log.
    code : int or None
        How it exited, if it did.
    stack : Stack or None
        Where it is, if that is known.
    """

    task: str
    address: str = ""
    tail: str = ""
    phase: Phase = field(default_factory=Phase)
    verbose: bool = False
    code: int | None = None
    stack: Stack | None = None

    @property
    def alone(self) -> bool:
        """Whether it trains without ever having met the others."""
        return self.verbose and self.phase.training and not self.phase.server

    @property
    def targets(self) -> list[str]:
        """Where its own server is, by its log."""
        return [target for one in _targets() for target in one.findall(self.tail)]

    @property
    def waits(self) -> bool:
        """Whether it waits inside an operation of the framework."""
        return self.stack is not None and self.stack.waits


@dataclass(frozen=True)
class Notice:
    """Something about tasks that their user should know.

    Parameters
    ----------
    name : str
        The known failure that it is.
    tasks : tuple of str
        Whom it is about.
    what : str
        What is seen, in words.
    meaning, remedy, link : str
        See `mwmagic.diagnosis.table.Known`.
    """

    name: str
    tasks: tuple[str, ...]
    what: str
    meaning: str
    remedy: str
    link: str

    @classmethod
    def of(cls, known: Known, tasks: Iterable[str], what: str) -> Notice:
        """Return an entry of the table as said of tasks."""
        return cls(known.name, tuple(tasks), what, known.meaning, known.remedy, known.link)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def _elsewhere(seen: Seen) -> list[str]:
    """Say that a server is not where the others expect it."""
    away = [target for target in seen.targets if seen.address and target != seen.address]
    return [f"{seen.task} listens at {target}, which is not its address" for target in away]


def notices(tasks: Sequence[Seen]) -> tuple[Notice, ...]:
    """Return what the users of tasks should know though these go on, or ended well.

    Parameters
    ----------
    tasks : sequence of Seen
        The tasks that train.
    """
    found: dict[str, Notice] = {}
    for seen in tasks:
        alone = f"{seen.task} trains, and never started a server for the others"
        said = [alone] if seen.alone and len(tasks) > 1 else []
        texts = {text: text for text in (*said, *_elsewhere(seen))}
        texts[seen.tail] = f"as the log of {seen.task} says"
        for known, text in product(NOTICES, texts):
            filled = recognise([known], [text])
            if filled is not None:
                others = found[known.name].tasks if known.name in found else ()
                tasks_of = dict.fromkeys((*others, seen.task))
                found[known.name] = Notice.of(filled, tasks_of, texts[text])
    return tuple(found.values())


def why_stalled(tasks: Sequence[Seen]) -> Notice | None:
    """Tell what a gang without progress waits for.

    Parameters
    ----------
    tasks : sequence of Seen
        The tasks that train, with their stacks where these could be had.

    Returns
    -------
    Notice or None
        None when nothing known explains it.
    """
    for text, names in _stalls(tasks):
        known = recognise(STALLS, [text])
        if known is not None:
            return Notice.of(known, names, text)
    return None


def _stalls(tasks: Sequence[Seen]) -> Iterable[tuple[str, list[str]]]:
    """Yield what could explain a stall, with the tasks that are to blame, the surest first."""
    yield from _mistaken(tasks)
    yield from _refused(tasks)
    yield from _missing(tasks)
    inside = [seen for seen in tasks if seen.waits]
    outside = [seen for seen in tasks if seen.stack is not None and not seen.waits]
    for seen in inside:
        if len(inside) < len(tasks) and seen.stack and _IN_SAVE.search(seen.stack.text):
            yield f"{seen.task} waits for the others in a save, at {seen.stack.where}", [seen.task]
    if inside and outside:
        at = ", ".join(f"{one.task} is at {one.stack.where}" for one in outside if one.stack)
        yield f"{at} and keeps the others waiting", [one.task for one in outside]
    places = Counter(seen.stack.where for seen in inside if seen.stack)
    if len(places) > 1:
        at = ", ".join(f"{one.task} at {one.stack.where}" for one in inside if one.stack)
        yield f"all wait for each other in different places: {at}", [one.task for one in inside]


def _mistaken(tasks: Sequence[Seen]) -> Iterable[tuple[str, list[str]]]:
    """Yield who listens where another should, or elsewhere."""
    owners = {seen.address: seen.task for seen in tasks if seen.address}
    for seen in tasks:
        for target in seen.targets:
            if owners.get(target, seen.task) != seen.task:
                yield f"{seen.task} listens at the address of {owners[target]}", [seen.task]


def _refused(tasks: Sequence[Seen]) -> Iterable[tuple[str, list[str]]]:
    """Yield whose second process the leader refused, as its log says."""
    named = dict.fromkeys(
        ":".join(found) for one in tasks for sign in _twice() for found in sign.findall(one.tail)
    )
    for name in named:
        yield f"{name} has a second process, which tries to join as the same task", [name]


def _missing(tasks: Sequence[Seen]) -> Iterable[tuple[str, list[str]]]:
    """Yield who is waited for when the strategy is made."""
    known = {seen.task: seen for seen in tasks}
    for seen in tasks:
        for name in seen.phase.waiting:
            other = known.get(name)
            if other is None:
                text = f"{seen.task} waits for {name}, which is not in this cluster"
                yield text, [seen.task]
            elif not other.phase.server:
                at = f" at {other.stack.where}," if other.stack and other.stack.where else ""
                text = f"{name},{at} has not reached the strategy, where {seen.task} waits for it"
                yield text, [name]
            elif not other.phase.joined:
                yield f"{name} does not reach {seen.task}, which waits for it", [name]
