"""What a gang does about a failure."""

from __future__ import annotations

from dataclasses import dataclass

from mwmagic.model.options import ClusterOptions

__all__ = ["PORT_TRIES", "REPLACEMENTS", "Policy"]

PORT_TRIES = 3
"""How often in a row a gang moves to new ports before a taken port is a failure."""

REPLACEMENTS = 3
"""How often in a row a replaceable task is started again alone, at the least."""

_DOUBLINGS = 32
"""How often a backoff doubles at the most: a float holds what comes of it."""


@dataclass(frozen=True)
class Policy:
    """How a gang behaves when a task fails.

    Parameters
    ----------
    restarts : int
        How many times in a row the gang starts again after a failure. A
        replaceable task is started again alone as often, and at least
        `REPLACEMENTS` times, before its failure is everybody's.
    grace : float
        Seconds between SIGTERM and SIGKILL when the run is stopped, and for
        parameter servers when training is done.
    evaluation : float
        Time limit for the final evaluation, in seconds.
    backoff, backoff_limit : float
        Seconds before the first restart; doubled for each next one, up to the limit.
    healthy : float
        Seconds after which an attempt, or a replaced task's process, counts as
        healthy: the restarts are counted from 0 again.
    settle : float
        Seconds to wait for the true cause when the first exit is only a
        consequence of another task's.
    resume : float
        Seconds an attempt must have lasted for exit 42 to be a resumption;
        sooner, it counts as a failure, or it could go on for ever.
    saving : float
        Seconds that the others have to save too after the first exit 42.
    """

    restarts: int = ClusterOptions.restarts
    grace: float = ClusterOptions.grace
    evaluation: float = 600.0
    backoff: float = 0.5
    backoff_limit: float = 30.0
    healthy: float = 300.0
    settle: float = 0.5
    resume: float = 5.0
    saving: float = 30.0

    def delay(self, restart: int) -> float:
        """Return the seconds to wait before a restart, of which the first is 1."""
        doubled = self.backoff * 2.0 ** min(restart - 1, _DOUBLINGS)
        return min(doubled, self.backoff_limit)
