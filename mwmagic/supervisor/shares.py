"""A machine's processors and GPUs, shared out between the tasks on it."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from mwmagic.errors import ClusterError
from mwmagic.frameworks.environment import thread_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mwmagic.model.cluster import Task

__all__ = ["shares", "visible_gpus"]

TOOL = "nvidia-smi"
"""The driver's own tool: asking a framework would take seconds and memory of each GPU."""

ANSWER = 20.0
"""Seconds in which it must have answered."""

NONE = "-1"
"""What CUDA_VISIBLE_DEVICES holds for no GPU: an empty value reads like a forgotten one."""

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def _listed() -> tuple[list[str], str]:
    """Return the indexes of the GPUs that the driver lists, and why there are none."""
    tool = shutil.which(TOOL)
    if tool is None:
        return [], f"{TOOL} is not on PATH"
    command = [tool, "--query-gpu=index", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], str(error)
    if done.returncode:
        return [], (done.stdout + done.stderr).strip() or f"{TOOL} exits with {done.returncode}"
    indexes = [line.strip() for line in done.stdout.splitlines() if line.strip().isdecimal()]
    return indexes, "" if indexes else f"{TOOL} lists none"


def visible_gpus(env: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the GPUs that processes with this environment could use.

    Parameters
    ----------
    env : mapping of str to str
        CUDA_VISIBLE_DEVICES in it narrows them down.

    Returns
    -------
    list of str, str
        As CUDA_VISIBLE_DEVICES names them, and why there are none.
    """
    listed, why = _listed()
    if not listed or _VISIBLE not in env:
        return listed, why
    chosen: list[str] = []
    for name in env[_VISIBLE].split(","):
        if not name.strip() or name.strip() == NONE:
            break  # CUDA ignores what follows
        chosen.append(name.strip())
    return chosen, "" if chosen else f"{_VISIBLE} is {env[_VISIBLE]!r}"


def _gpus(tasks: Sequence[Task], env: Mapping[str, str], each: int | None) -> list[dict[str, str]]:
    """Return what each task sees; those that only serve or evaluate see no GPU."""
    if each == 0:
        return [{_VISIBLE: NONE} for _ in tasks]
    have, why = visible_gpus(env)
    trains = [task.type in ("chief", "worker") for task in tasks]
    if each is None:
        each = len(have) // max(sum(trains), 1)
        if not have:
            return [{} for _ in tasks]
    elif each * sum(trains) > len(have):
        names = f"{len(have)} ({', '.join(have)})" if have else f"none: {why}"
        raise ClusterError(
            f"{sum(trains)} tasks with a GPU count of {each} need {each * sum(trains)} GPUs, and "
            f"there are {names}; ask for fewer of either, or for --gpus none"
        )
    # Unless somebody has chosen among them, CUDA counts them in another order than the driver.
    order = {} if _VISIBLE in env else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    left = iter(have)
    parts = [[next(left) for _ in range(each)] if wants else [] for wants in trains]
    return [{**order, _VISIBLE: ",".join(part) or NONE} for part in parts]


def _threads(tasks: Sequence[Task], env: Mapping[str, str], each: int | None) -> dict[str, str]:
    if each == 0:
        return {}
    count = each or max(1, len(os.sched_getaffinity(0)) // len(tasks))
    threads = thread_environment(count)
    return {name: value for name, value in threads.items() if name not in env}


def shares(
    tasks: Sequence[Task],
    env: Mapping[str, str],
    given: Mapping[str, str],
    *,
    gpus: int | None,
    threads: int | None,
) -> dict[str, dict[str, str]]:
    """Share this machine's GPUs and processors out.

    Parameters
    ----------
    tasks : sequence of Task
        The tasks on this machine.
    env, given : mapping of str to str
        What they inherit, and what of it was given for them: that stays.
    gpus : int, optional
        GPUs for each task that trains; by default as many as there are for
        each, and none where there are fewer than tasks.
    threads : int, optional
        Threads for each task; 0 leaves them to the framework; by default the
        processors that this process may use, divided.

    Returns
    -------
    dict
        For each task's name its variables.

    Raises
    ------
    ClusterError
        There are fewer GPUs than that, or a count is negative.
    """
    for what, count in (("gpus", gpus), ("threads", threads)):
        if count is not None and (
            isinstance(count, bool) or not isinstance(count, int) or count < 0
        ):
            raise ClusterError(f"{what} must be a whole number from 0, not {count!r}")
    split = [{} for _ in tasks] if _VISIBLE in given else _gpus(tasks, env, gpus)
    common = _threads(tasks, env, threads)
    return {str(task): {**common, **part} for task, part in zip(tasks, split, strict=True)}
