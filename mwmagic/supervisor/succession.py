"""A machine's warm process and its heirs, which have imported what runs turned out to import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mwmagic.model.module import package_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mwmagic.engines.channel import Channel
    from mwmagic.model.messages import Message

__all__ = ["WARM", "Succession"]

WARM = "warm"
"""The key of the first warm process that a machine has; those of its heirs begin with it."""


@dataclass(frozen=True)
class _Heir:
    """The next warm process: its key, and the modules that it imports."""

    key: str
    names: tuple[str, ...]


class Succession:
    """Has a machine's warm process replaced by a fork of it that has imported more.

    Workers are forked from the old one until the new one is ready.

    Parameters
    ----------
    channel : Channel
        The connection to the machine's agent.

    Attributes
    ----------
    key : str
        The key of the process that workers are forked from.
    ahead : tuple of str
        The modules that it has imported ahead of their programs.
    """

    def __init__(self, channel: Channel) -> None:
        self.key = WARM
        self.ahead: tuple[str, ...] = ()
        self._channel = channel
        self._heir: _Heir | None = None
        self._unfit: set[str] = set()
        self._failed: set[str] = set()
        self._count = 0

    @property
    def wanted(self) -> tuple[str, ...]:
        """The modules that the process or its heir has imported ahead."""
        return (*self.ahead, *(self._heir.names if self._heir is not None else ()))

    def begin(self, ahead: Sequence[str]) -> None:
        """Take that a first process is started, which imports modules ahead."""
        if self._heir is not None:
            self._channel.send("cool", key=self._heir.key)
        self.key, self.ahead, self._heir = self._next(), tuple(ahead), None
        self._unfit, self._failed = set(), set()

    def renew(self, names: Iterable[str]) -> None:
        """Have modules imported that are not yet, unless an heir is being made or could not."""
        new = [one for one in names if one not in self.ahead and package_of(one) not in self._unfit]
        if new and self._heir is None:
            self._heir = _Heir(self._next(), tuple(new))
            self._channel.send("renew", key=self._heir.key, elder=self.key, ahead=new)

    def concerns(self, event: Message) -> bool:
        """Return whether the agent tells something of the heir."""
        return self._heir is not None and event.get("key") == self._heir.key

    def succeed(self) -> None:
        """Let the heir take its place, and the old process end."""
        if self._heir is not None:
            self._channel.send("cool", key=self.key)
            self.key, self.ahead = self._heir.key, (*self.ahead, *self._heir.names)
            self._heir = None

    def fail(self, module: str | None) -> None:
        """Do without an heir, or without the package that was the reason why there is none.

        Where the reason is unknown, what it was to import may be tried once more.
        """
        if self._heir is None:
            return
        names, self._heir = self._heir.names, None
        if module is not None:
            self._unfit.add(package_of(module))
            self.renew(names)
        else:
            packages = set(map(package_of, names))
            self._unfit |= packages & self._failed
            self._failed |= packages

    def _next(self) -> str:
        key = f"{WARM}-{self._count}" if self._count else WARM
        self._count += 1
        return key
