"""Every error mwmagic raises.

The hierarchy::

    MwmagicError
    ├── UnsupportedPlatform       this operating system lacks what mwmagic needs
    ├── ClusterError              a cluster description that cannot work (also a ValueError)
    ├── NoCluster                 a command that needs a cluster found none
    ├── NoRun                     there is no such run
    ├── NoSweep                   there is no such sweep, or its files are gone
    ├── RunActive                 the cluster is busy with a run
    ├── NotInstalled              a required library is missing
    ├── FileTrouble               a file cannot be written or read, or must not be replaced
    ├── SupervisorError           the supervisor could not be started, or refused a request
    │   ├── ClusterEnding         the cluster is ending, and begins nothing more
    │   ├── ClusterOwned          the cluster belongs to another process
    │   ├── ClusterPending        the cluster still waits for its machines
    │   └── SupervisorLost        the supervisor went away
    ├── MessageError              a message that no process of this version sends
    ├── BadArguments              a magic or command got arguments that it does not accept
    ├── WaitInterrupted           Ctrl-C ended a wait or a magic; the run continues
    ├── WaitTimeout               a run took longer than the timeout (also a TimeoutError)
    └── RunFailed                 a run ended without success
        ├── WorkerFailed          a task failed, and with it the run
        └── RunStopped            the run was stopped before it ended

In a notebook each of them renders as its message alone, because a traceback
through this package would say nothing about the user's mistake.
"""

from __future__ import annotations

__all__ = [
    "BadArguments",
    "ClusterEnding",
    "ClusterError",
    "ClusterOwned",
    "ClusterPending",
    "FileTrouble",
    "MessageError",
    "MwmagicError",
    "NoCluster",
    "NoRun",
    "NoSweep",
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
    """The base class of all errors that this package raises.

    The message says what happened, what exists, and what to do next.
    """

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in place of a traceback.

        IPython looks this method up by name, in terminals and kernels alike.
        """
        return [f"{type(self).__name__}: {self}"]


class MessageError(MwmagicError):
    """A message that no process of this version sends."""


class UnsupportedPlatform(MwmagicError):
    """This operating system lacks what mwmagic needs."""


class ClusterError(MwmagicError, ValueError):
    """A cluster, task, address or port that cannot work."""


class NoCluster(MwmagicError):
    """A command that needs a cluster found none."""


class NoSweep(MwmagicError):
    """There is no such sweep, or its files are gone."""


class NoRun(MwmagicError):
    """There is no such run."""


class RunActive(MwmagicError):
    """The cluster is busy with a run that is still going, or is being stopped."""


class NotInstalled(MwmagicError):
    """A required library is missing."""


class FileTrouble(MwmagicError):
    """A file cannot be written or read, or must not be replaced."""


class SupervisorError(MwmagicError):
    """The supervisor could not be started, or refused a request."""


class ClusterEnding(SupervisorError):
    """The cluster is ending, and begins nothing more."""


class ClusterOwned(SupervisorError):
    """The cluster belongs to another process."""


class ClusterPending(SupervisorError):
    """The cluster still waits for its machines."""


class SupervisorLost(SupervisorError):
    """The supervisor went away."""


class BadArguments(MwmagicError):
    """A magic or command got arguments that it does not accept."""


class WaitInterrupted(MwmagicError):
    """Ctrl-C ended a wait or a magic; the run continues."""


class WaitTimeout(MwmagicError, TimeoutError):
    """A run took longer than the timeout."""


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
    """The run was stopped before it ended."""


class WorkerFailed(RunFailed):
    """A task failed, and with it the run.

    Parameters
    ----------
    message : str
        What happened and what to do next.
    run : object, optional
        The run that ended, as `mwmagic.Run`.
    cause : object, optional
        The first failure, as `mwmagic.model.findings.Cause`.
    """

    def __init__(self, message: str, *, run: object = None, cause: object = None) -> None:
        super().__init__(message, run=run)
        self.cause = cause
