"""The agent's own end."""

from __future__ import annotations

import math
import time

from .wire import AGENT_LOST, ENDED_EARLY

UNKILLABLE_SECONDS = 3.0
"""How long closing waits for processes that cannot be killed."""


class Closing:
    """Whether the agent is closing, since when, and why.

    Attributes
    ----------
    since : float or None
        When everything began to end.
    cause : str or None
        Why the agent ends, unless its supervisor asked it to close. It may wait for its workers.
    asked : float
        When it was asked to close by a signal; infinite if it was not.
    drain_seconds : float
        How long the reader may take to read the last events.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self.cause: str | None = None
        self.asked = math.inf
        self.drain_seconds = 0.0

    @property
    def waits(self) -> bool:
        """Whether workers have their grace before the agent closes."""
        return self.asked < math.inf and self.since is None

    @property
    def late(self) -> bool:
        """Whether there is no time left to wait for anything."""
        return self.since is not None and time.monotonic() > self.since + UNKILLABLE_SECONDS

    @property
    def parting(self) -> dict[str, str]:
        """The reason for a process that ends with the agent, and what happened to the agent."""
        if self.cause is None:
            return {}
        return {"reason": AGENT_LOST, "error": self.cause}

    @property
    def early(self) -> dict[str, str]:
        """The reason and the error for a process that ends before it has started."""
        return self.parting or {"reason": ENDED_EARLY, "error": "ended before it had started"}
