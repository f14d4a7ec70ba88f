"""How the processes of a run ended, and why an attempt failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic import gang as g
from mwmagic.diagnosis import diagnose, kind
from mwmagic.model.status import Setback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mwmagic.diagnosis import Exit
    from mwmagic.logs.guard import Guard
    from mwmagic.model.cluster import Task
    from mwmagic.model.findings import Cause
    from mwmagic.model.options import ClusterOptions
    from mwmagic.record import RunDirectory

__all__ = ["Exits"]

_REMEDIAL = ("keras", "restarts")
"""The options that remedies recommend."""


class Exits:
    """The exits of a run's processes.

    Attributes
    ----------
    setbacks : list of Setback
        The attempts that failed and were followed by another, each with its cause.
    """

    def __init__(
        self,
        directory: RunDirectory,
        roles: Mapping[Task, g.Role],
        options: ClusterOptions,
        guard: Guard,
    ) -> None:
        self._directory = directory
        self._auxiliary = {str(task) for task, role in roles.items() if role is g.Role.AUXILIARY}
        self._options = {name: str(getattr(options, name)) for name in _REMEDIAL}
        self._guard = guard
        self.setbacks: list[Setback] = []
        self._exits: list[Exit] = []

    def add(self, end: Exit, *, gone: bool = True) -> g.FailureKind:
        """Record an exit and return what kind of failure it is.

        If the process is not gone yet, it is its program's end, whose place its exit takes.
        """
        self._drop(end.task, end.attempt)
        self._exits.append(end)
        self._directory.event(
            "exited" if gone else "over",
            task=end.task,
            attempt=end.attempt,
            moment=end.moment,
            code=end.code,
            signal=end.signal,
            ended=end.ended,
            finding=end.finding.as_json(),
            report=end.report,
        )
        return self._guard.call("failure", g.FailureKind.PRIMARY, kind, end)

    def forgive(self, task: Task, attempt: int) -> None:
        """Forget a failure that the gang survives: it explains no later one."""
        self._drop(str(task), attempt)

    def _drop(self, task: str, attempt: int) -> None:
        dropped = (task, attempt)
        self._exits = [end for end in self._exits if (end.task, end.attempt) != dropped]

    def forget(self, attempt: int) -> None:
        """Forget the ends of an attempt's programs: they explain no later end of a process."""
        self._exits = [end for end in self._exits if end.attempt != attempt]

    def cause(self, attempt: int) -> Cause | None:
        """Return why an attempt failed; an evaluator is never the cause."""
        ended = [end for end in self._exits if end.attempt == attempt]
        decisive = [end for end in ended if end.task not in self._auxiliary]
        return self._guard.call("diagnosis", None, diagnose, decisive, self._options)

    def set_back(self, attempt: int) -> None:
        """Record why an attempt failed that another one follows."""
        cause = self.cause(attempt)
        if cause is not None:
            self.setbacks.append(Setback(attempt, cause))
            self._directory.event("setback", **self.setbacks[-1].as_json())
