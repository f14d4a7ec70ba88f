"""A machine's processors and GPUs, shared out between the tasks on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.errors import ClusterError
from mwmagic.frameworks.environment import thread_environment
from mwmagic.model.values import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mwmagic.model.cluster import Task
    from mwmagic.model.machine import Machine

__all__ = ["VISIBLE", "shares", "visible_gpus"]

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The GPUs that a process may use."""

NONE = "-1"
"""The value that hides all GPUs: an empty one would look like a mistake."""


def visible_gpus(machine: Machine, env: Mapping[str, str]) -> tuple[list[str], str | None]:
    """Return the GPUs that processes with this environment could use."""
    listed = [str(gpu.index) for gpu in machine.gpus]
    if not listed or VISIBLE not in env:
        return listed, machine.why
    chosen: list[str] = []
    for name in env[VISIBLE].split(","):
        if not name.strip() or name.strip() == NONE:
            break  # CUDA ignores what follows
        chosen.append(name.strip())
    return chosen, None if chosen else f"{VISIBLE} is {env[VISIBLE]!r}"


def _too_few(trains: int, each: int, have: Sequence[str], why: str | None) -> ClusterError:
    names = f"{len(have)} ({', '.join(have)})" if have else f"none: {why}"
    return ClusterError(
        f"{counted(trains, 'task')} with a GPU count of {each} would take "
        f"{counted(each * trains, 'GPU')}, and there are {names}; ask for fewer of either, "
        "or for --gpus none"
    )


def _gpus(
    tasks: Sequence[Task], machine: Machine, env: Mapping[str, str], each: int | None
) -> list[dict[str, str]]:
    """Return each task's GPUs; those that only serve or evaluate get none."""
    if each == 0:
        return [{VISIBLE: NONE} for _ in tasks]
    have, why = visible_gpus(machine, env)
    trains = [task.type in ("chief", "worker") for task in tasks]
    if each is None:
        each = len(have) // max(sum(trains), 1)
        if not have:
            return [{} for _ in tasks]
    elif each * sum(trains) > len(have):
        raise _too_few(sum(trains), each, have, why)
    # Unless the user has chosen among them, CUDA counts them in another order than the driver.
    order = {} if VISIBLE in env else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    left = iter(have)
    parts = [[next(left) for _ in range(each)] if wants else [] for wants in trains]
    return [{**order, VISIBLE: ",".join(part) or NONE} for part in parts]


def _threads(
    tasks: Sequence[Task], machine: Machine, env: Mapping[str, str], each: int | None
) -> dict[str, str]:
    if each == 0:
        return {}
    threads = thread_environment(each or max(1, machine.processors // len(tasks)))
    return {name: value for name, value in threads.items() if name not in env}


def shares(
    tasks: Sequence[Task],
    machine: Machine,
    env: Mapping[str, str],
    given: Mapping[str, str],
    *,
    gpus: int | None,
    threads: int | None,
) -> dict[str, dict[str, str]]:
    """Share a machine's GPUs and processors out."""
    split = [{} for _ in tasks] if VISIBLE in given else _gpus(tasks, machine, env, gpus)
    common = _threads(tasks, machine, env, threads)
    return {str(task): {**common, **part} for task, part in zip(tasks, split, strict=True)}
