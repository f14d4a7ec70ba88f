"""Has a running worker profile itself for some seconds."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from mwmagic.errors import BadArguments, NoRun, SupervisorError, WaitTimeout
from mwmagic.experiments.profile import Profile, parts_of
from mwmagic.frameworks import framework_for
from mwmagic.model.cluster import find_task
from mwmagic.model.option import read_seconds
from mwmagic.record.paths import replace
from mwmagic.record.reader import json_object

from .arguments import reader

if TYPE_CHECKING:
    import argparse

    from mwmagic.model.cluster import TaskName
    from mwmagic.record import Record

__all__ = ["add_profile", "profile", "profile_lines"]

PROFILE_BEGIN_SECONDS = 10.0
"""How long a worker has to take up a request."""

PROFILED_SECONDS = 60.0
"""How long it has to write what it has measured."""

PROFILE_LOOK_SECONDS = 0.1

PROFILE_SECONDS_LIMIT = 20.0
"""The longest profile: its file grows by megabytes a second, each of which takes 0.6 s to read."""


def profile(record: Record, task: TaskName, seconds: float, *, risk: bool = False) -> Profile:
    """Profile a task of a run that is going; its program is not touched.

    NoRun is raised if the run or the task is over, WaitTimeout if it does not answer,
    SupervisorError if its framework cannot profile, and BadArguments if the framework's profiler
    sometimes crashes the task and `risk` does not accept that.
    """
    if not 0 < seconds <= PROFILE_SECONDS_LIMIT:
        raise BadArguments(
            f"a profile takes up to {PROFILE_SECONDS_LIMIT:g} s, not {seconds:g}: a few steps are "
            "enough, as --seconds 5"
        )
    found = find_task(task, record.known_tasks())
    status = record.status
    task_status = status.tasks.get(str(found))
    if status.over or task_status is None or not task_status.state.alive:
        raise NoRun(f"{found} of run {record.number} is not running, so it cannot be profiled")
    framework = framework_for(record.part("options").get("framework", ""))
    if framework.profiler_crashes and not risk:
        raise BadArguments(
            f"{framework.title}'s profiler sometimes crashes the process that it profiles, and the "
            f"run fails with it: add --risk to profile {found} all the same"
        )
    paths = record.paths.task(found, record.attempts)
    answer, folder = paths.profiled, paths.profiles
    answer.unlink(missing_ok=True)
    before = set(folder.rglob("*.xplane.pb"))
    asked = {
        "seconds": seconds,
        "until": time.time() + PROFILE_BEGIN_SECONDS,
        "folder": str(folder),
    }
    replace(paths.profile, json.dumps(asked).encode())
    limit = time.monotonic() + PROFILE_BEGIN_SECONDS
    while paths.profile.exists() and time.monotonic() < limit:
        time.sleep(PROFILE_LOOK_SECONDS)
    try:
        paths.profile.unlink()
    except FileNotFoundError:
        pass
    else:
        raise WaitTimeout(
            f"{found} did not begin a profile within {PROFILE_BEGIN_SECONDS:g} s: it is asked when "
            "it reports a step, so its program must use `fit` or `report()`, train now, and run "
            f"where {record.path} is; `%mw_stacks` shows where it is"
        )
    limit = time.monotonic() + seconds + PROFILED_SECONDS
    while not (known := json_object(answer)) and time.monotonic() < limit:
        if record.status.over:
            raise NoRun(f"run {record.number} ended while {found} was profiled")
        time.sleep(PROFILE_LOOK_SECONDS)
    new = sorted(set(folder.rglob("*.xplane.pb")) - before)
    if "error" in known or not new:
        why = known.get("error", "it wrote no profile")
        raise SupervisorError(f"{found} could not be profiled: {why}; its program continues")
    took = float(known["took"])
    parts = {name: min(spent, took) for name, spent in parts_of(new[-1]).items()}
    return Profile(str(found), new[-1], took, parts)


def profile_lines(found: Profile) -> list[str]:
    """Say what a profile shows, and where it is."""
    folder = found.file.parent.parent.parent.parent
    return [str(found), f"{found.file} (tensorboard --logdir {folder}, or XProf, shows it)"]


# As magics and commands take it.


def add_profile(parser: argparse.ArgumentParser) -> None:
    """Declare which task is profiled, and for how long."""
    what = "The task, such as 1 or worker:1."
    parser.add_argument("task", metavar="TASK", help=what)
    what = "For how long, in seconds (default: 5)."
    parser.add_argument("--seconds", type=reader(read_seconds), default=5.0, metavar="S", help=what)
    what = "Profile even if the framework's profiler may crash the task."
    parser.add_argument("--risk", action="store_true", help=what)
