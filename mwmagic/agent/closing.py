"""The agent's own end."""

from __future__ import annotations

import time

from .wire import AGENT_LOST, ENDED_EARLY

PATIENCE_SECONDS = 3.0
"""After which closing no longer waits for what cannot be killed."""


class Closing:
    """Whether the agent is closing, since when, and why.

    Attributes
    ----------
    since : float or None
        The moment from which on everything ends.
    cause : str or None
        What ended the agent, unless it was asked to close.
    drain_seconds : float
        How long its reader may take for the last events.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self.cause: str | None = None
        self.drain_seconds = 0.0

    @property
    def late(self) -> bool:
        """Whether there is no time left to wait for anything."""
        return self.since is not None and time.monotonic() > self.since + PATIENCE_SECONDS

    @property
    def parting(self) -> dict[str, str]:
        """Reason of a process that the agent takes along, and what happened to the agent."""
        if self.cause is None:
            return {}
        return {"reason": AGENT_LOST, "error": self.cause}

    @property
    def early(self) -> dict[str, str]:
        """Reason and error of a process that ends before it has started."""
        return self.parting or {"reason": ENDED_EARLY, "error": "ended before it had started"}
