"""Every error mwmagic raises.

The hierarchy::

    MwmagicError
    ├── UnsupportedPlatform       this operating system cannot hold a gang
    ├── ClusterError              a cluster description that cannot work (also a ValueError)
    ├── NoCluster                 a magic that needs a cluster found none
    ├── NoRun                     there is no such run
    ├── RunActive                 a run is still going where a new one was asked for
    ├── NotInstalled              a library that was asked for is missing
    ├── SupervisorError           the supervisor could not be started, or refused a request
    │   ├── ClusterOwned          the cluster belongs to another process
    │   └── SupervisorLost        the supervisor went away
    ├── MessageError              a message that no process of this version sends
    ├── BadArguments              a magic or command was given arguments it does not take
    ├── WaitInterrupted           waiting was interrupted; the run goes on
    ├── WaitTimeout               a run outlasted the time it was given (also a TimeoutError)
    └── RunFailed                 a run ended without success
        ├── WorkerFailed          a task failed, and with it the run
        └── RunStopped            the run was stopped before its end

In a notebook each renders as its message alone: the traceback through this
package would say nothing about the user's mistake.
"""

from __future__ import annotations

__all__ = [
    "BadArguments",
    "ClusterError",
    "ClusterOwned",
    "MessageError",
    "MwmagicError",
    "NoCluster",
    "NoRun",
    "NotInstalled",
    "RunActive",
    "RunFailed",
    "RunStopped",
    "SupervisorError",
    "SupervisorLost",
    "UnsupportedPlatform",
    "WaitInterrupted",
    "WaitTimeout",
    "WorkerFailed",
]


class MwmagicError(Exception):
    """Anything this package refuses or reports.

    The message says what happened, what exists, and the next step.
    """

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in place of a traceback.

        IPython looks this method up by name, in terminals and kernels alike.
        """
        return [f"{type(self).__name__}: {self}"]


class MessageError(MwmagicError):
    """A message that no process of this version sends."""


class UnsupportedPlatform(MwmagicError):
    """This operating system lacks what holding a gang needs."""


class ClusterError(MwmagicError, ValueError):
    """A cluster, task, address or port that cannot work."""


class NoCluster(MwmagicError):
    """A command that needs a cluster found none."""


class NoRun(MwmagicError):
    """There is no such run."""


class RunActive(MwmagicError):
    """A run is still going where a new one was asked for."""


class NotInstalled(MwmagicError):
    """A library that was asked for is missing."""


class SupervisorError(MwmagicError):
    """The supervisor could not be started, or refused a request."""


class ClusterOwned(SupervisorError):
    """The cluster belongs to another process."""


class SupervisorLost(SupervisorError):
    """The supervisor went away."""


class BadArguments(MwmagicError):
    """A magic or command was given arguments that it does not take."""


class WaitInterrupted(MwmagicError):
    """Waiting was interrupted; the run goes on."""


class WaitTimeout(MwmagicError, TimeoutError):
    """A run outlasted the time that waiting was given."""


class RunFailed(MwmagicError):
    """A run ended without success.

    Parameters
    ----------
    message : str
        What happened and what to do next.
    run : object, optional
        The run that ended, as `mwmagic.Run`.
    """

    def __init__(self, message: str, *, run: object = None) -> None:
        super().__init__(message)
        self.run = run


class RunStopped(RunFailed):
    """The run was stopped before its end."""


class WorkerFailed(RunFailed):
    """A task failed, and with it the run.

    Parameters
    ----------
    message : str
        What happened and what to do next.
    run : object, optional
        The run that ended, as `mwmagic.Run`.
    cause : object, optional
        The first failure, as `mwmagic.model.cause.Cause`.
    """

    def __init__(self, message: str, *, run: object = None, cause: object = None) -> None:
        super().__init__(message, run=run)
        self.cause = cause
