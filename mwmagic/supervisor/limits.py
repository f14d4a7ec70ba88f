"""The time limits of a scheduler's jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.model.findings import Finding, Remark, Symptom

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mwmagic.model.machine import MachineStatus

__all__ = ["job_limits"]

WARNING_SECONDS = 300.0
"""How long before a job's limit it is told."""


def job_limits(machines: Sequence[MachineStatus], now: float) -> tuple[Remark, ...]:
    """Return a warning for each job that ends soon, with the tasks that end with it."""
    near = [one for one in machines if one.until is not None and one.until - now < WARNING_SECONDS]
    jobs = dict.fromkeys((one.job, one.until) for one in near)
    return tuple(
        Remark(
            tasks=tuple(task for one in near if one.job == job for task in one.tasks),
            finding=Finding(Symptom.JOB_ENDS, job=job or None, until=until),
        )
        for job, until in jobs
    )
