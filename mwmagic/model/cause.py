"""The cause of a failed run: which task failed first, of what, and what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Cause"]


NAMED = 8
"""Tasks that a sentence names at the most."""


def _listed(tasks: Sequence[str]) -> str:
    more = f" and {len(tasks) - NAMED} more" if len(tasks) > NAMED else ""
    return ", ".join(tasks[:NAMED]) + more


@dataclass(frozen=True)
class Cause:
    """The first failure of a run.

    Parameters
    ----------
    task : str
        The task that failed first.
    what : str
        How its process ended, in words.
    exception : str or None
        The uncaught exception, as ``Type: message`` in a line.
    where : dict or None
        The innermost line of the user's own code: ``file``, ``line``,
        ``function``, ``source``, and ``cell`` where a notebook's cell holds it.
    known : str or None
        The name of the known failure that it is.
    meaning, remedy, link : str or None
        What a known failure means, what to try, and where to read on.
    consequences : tuple of str
        The tasks whose failure followed from this one.
    log : tuple of str
        The last lines that the task printed, TensorFlow's notices left out.
    """

    task: str
    what: str
    exception: str | None = None
    where: dict[str, Any] | None = None
    known: str | None = None
    meaning: str | None = None
    remedy: str | None = None
    link: str | None = None
    consequences: tuple[str, ...] = ()
    log: tuple[str, ...] = field(default=(), repr=False)

    @property
    def headline(self) -> str:
        """One line: the task, and how it ended."""
        return f"{self.task} {self.what}"

    def as_dict(self) -> dict[str, Any]:
        """Return the cause as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Cause:
        """Read what `as_dict` returned."""
        lists = {name: tuple(values.get(name, ())) for name in ("consequences", "log")}
        return cls(**{**values, **lists})

    def lines(self) -> list[str]:
        """Say it all, a line each, the most useful first."""
        return [*self._what(), *self._why(), *self._last()]

    def _what(self) -> list[str]:
        lines = [self.headline + (f": {self.exception}" if self.exception else "")]
        if self.where:
            cell = f" ({self.where['cell']})" if self.where.get("cell") else ""
            at = f"{self.where.get('file')}, line {self.where.get('line')}{cell}"
            lines.append(f"  at {at}, in {self.where.get('function')}")
            if self.where.get("source"):
                lines.append(f"    {self.where['source']}")
        return lines

    def _why(self) -> list[str]:
        lines = [f"  {text}" for text in (self.meaning,) if text]
        if self.remedy:
            lines.append(f"  Try: {self.remedy}.")
        if self.link:
            lines.append(f"  See {self.link}")
        if self.consequences:
            lines.append(f"  {_listed(self.consequences)} failed as a consequence.")
        return lines

    def _last(self) -> list[str]:
        if self.exception or not self.log:
            return []
        return [f"  The last that {self.task} printed:", *(f"    {line}" for line in self.log)]
