"""How a gang reacts to a failure."""

from __future__ import annotations

from dataclasses import dataclass

from mwmagic.model.options import ClusterOptions

__all__ = ["PORT_TRIES", "REPLACEMENT_TRIES", "Policy"]

PORT_TRIES = 3
"""How many times in a row a gang moves to new ports before a taken port counts as a failure."""

REPLACEMENT_TRIES = 3
"""How many times in a row a replaceable task is restarted on its own, at least."""

_DOUBLINGS_LIMIT = 32
"""How many times a backoff doubles at most, so that the result fits a float."""


@dataclass(frozen=True)
class Policy:
    """How a gang behaves when a task fails.

    Parameters
    ----------
    restarts : int
        How many times in a row the gang restarts after a failure. A replaceable
        task is restarted on its own as often, and at least `REPLACEMENT_TRIES`
        times, before its failure fails the gang.
    grace : float
        Seconds between SIGTERM and SIGKILL when the run is stopped, and for
        parameter servers when training is done.
    evaluation : float
        Time limit for the final evaluation, in seconds.
    backoff, backoff_limit : float
        Seconds before a restart if the attempt failed before it got as far as the one before
        it; doubled for each further one in a row, up to the limit. Other restarts do not wait.
    healthy : float
        Seconds after which an attempt, or a replaced task's process, counts as
        healthy, so that the count of restarts begins at 0 again.
    settle : float
        Seconds to wait for the true cause when the first exit is only a
        consequence of another task's.
    resume : float
        Seconds an attempt must have lasted for exit 42 to mean "resume me";
        earlier it counts as a failure, or the run could restart forever.
    saving : float
        Seconds that the other tasks have to save as well after the first exit 42.
    stays : bool
        Whether processes stay until they are stopped, so that every exit of a peer is a failure.
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
    stays: bool = False

    def delay(self, short: int) -> float:
        """Return the seconds before a restart, by how many attempts in a row fell short."""
        if not short:
            return 0.0
        doubled = self.backoff * 2.0 ** min(short - 1, _DOUBLINGS_LIMIT)
        return min(doubled, self.backoff_limit)
