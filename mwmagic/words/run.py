"""A run's status in words and numbers, the same wherever a run is shown, and what logs omit."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from mwmagic.model.findings import Symptom
from mwmagic.model.status import STUCK_TRIES, GivenUp, RunState, TaskState
from mwmagic.model.values import counted
from mwmagic.model.variables import RESUME_CODE

from . import failure
from .live import doing_words, session_words
from .slowness import forecast_words, slow_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mwmagic.model.findings import Cause
    from mwmagic.model.status import ParserFault, Reached, RunStatus, Setback, TaskStatus

__all__ = [
    "ENDS_WITH_KERNEL",
    "again_words",
    "attempt_words",
    "axis",
    "blame",
    "buttons",
    "clock",
    "earlier_words",
    "exhausted",
    "exit_notice",
    "fault_words",
    "fraction",
    "headline",
    "hidden_words",
    "left",
    "left_out_words",
    "line",
    "longest",
    "metrics",
    "progress_words",
    "reached",
    "remarks",
    "run_tone",
    "setback_words",
    "setbacks",
    "setbacks_title",
    "spent",
    "task_words",
    "tone",
    "words",
]

TIMED = frozenset({Symptom.IMPORTED_LONG})
"""What is observed only where it takes long, so that outputs with it could not be compared."""

_TONES = {
    RunState.FORMING: "wait",
    RunState.RUNNING: "run",
    RunState.ENDING: "wait",
    RunState.BACKOFF: "wait",
    RunState.FINISHED: "good",
    RunState.FAILED: "bad",
    RunState.STOPPED: "off",
    RunState.LOST: "bad",
    RunState.KEPT: "good",
}


# The run.


def words(run: RunStatus) -> str:
    """Say in a few words where a run is."""
    trouble = f" (its record is incomplete: {run.trouble})" if run.trouble else ""
    say = _WORDS.get(run.state)
    return (say(run) if say else run.state.value) + trouble


def lacking(run: RunStatus) -> str:
    """Say what the record of a run that is over lacks; nothing if it is whole."""
    if not run.trouble:
        return ""
    cut = [
        f"what {name} printed after its first {task.rest.start:,} bytes"
        for name, task in run.tasks.items()
        if task.rest is not None
    ]
    what = f"; it lacks {failure.listed(cut)}" if cut else ""
    return f"the record of run {run.number} is incomplete: {run.trouble}{what}"


def changed_words(number: int, modules: Sequence[str]) -> str:
    """Say that modules beside a run's code were changed since it was launched."""
    verb = "has" if len(modules) == 1 else "have"
    return (
        f"{failure.listed(modules)} {verb} changed since run {number} was launched; the restart "
        "imports the new version, and the record of that run keeps the old one"
    )


def headline(run: RunStatus) -> str:
    """Name a run and say where it is: ``run 7: training``."""
    return f"run {run.number}: {words(run)}"


def waiting_words(run: RunStatus, began: float) -> str:
    """Say that a cell waits for a run that a page shows, in words that are true later too."""
    since = time.strftime("%H:%M:%S", time.localtime(began))
    return (
        f"waiting for run {run.number} since {since}. Its dashboard does not need this cell: "
        "interrupt the cell to use the notebook, and the run continues"
    )


def line(run: RunStatus) -> str:
    """Say in one line where a run is, and how far the first task that reports has come."""
    known = [task.progress for task in run.tasks.values() if task.progress is not None]
    return "  ".join([headline(run), *map(reached, known[:1])])


def remarks(run: RunStatus, *, timed: bool = True) -> list[str]:
    """Say what else a run's user should know, a line each.

    Why it makes no progress, what did not go as intended, and what could not be read.
    """
    seen = [run.stall.why if run.stall else None, *run.remarks]
    said = [one for one in seen if one and (timed or one.finding.symptom not in TIMED)]
    slow = [slow_words(run.slow)] if run.slow and timed else []
    memory = [forecast_words(run.forecast)] if run.forecast and timed and not run.over else []
    others = map(fault_words, run.faults)
    return [*map(failure.remark, said), *_diverged(run), *slow, *memory, *others]


_DIVERGED = (
    "training diverged. Lower the learning rate or clip the gradients; in TensorFlow, "
    "`tf.debugging.enable_check_numerics()` names the operation where it begins"
)


def _diverged(run: RunStatus) -> list[str]:
    """Say which loss is not a number any more, which no exception reports."""
    lost = [
        (metric, name, value)
        for name, task in run.tasks.items()
        for metric, value in (task.progress.metrics if task.progress else {}).items()
        if "loss" in metric and not math.isfinite(value)
    ]
    if not lost:
        return []
    metric, _, value = lost[0]
    tasks = [name for one, name, _ in lost if one == metric]
    where = "" if len(tasks) == len(run.tasks) else f" on {failure.listed(tasks)}"
    return [f"{metric} is {value:g}{where}: {_DIVERGED}"]


def blame(run: RunStatus) -> list[str]:
    """Say everything about a run's failure in several lines; nothing where it did not fail."""
    cause = failure.explain(run.cause) if run.cause else []
    if run.unplaced:
        return [*cause, f"  Attempt {run.attempt} could not start: {run.unplaced}"]
    used = exhausted(run)
    option = " (--restarts)" if run.given_up is GivenUp.RESTARTS else ""
    return [*cause, f"  This was attempt {run.attempt}: {used}{option}."] if used else cause


def exhausted(run: RunStatus) -> str:
    """Say why a run that failed was not restarted any more, if it had been before."""
    if run.unplaced:
        return f"attempt {run.attempt} could not start: {run.unplaced}"
    if run.given_up is GivenUp.PROGRESS:
        return f"no progress: the last {counted(STUCK_TRIES, 'attempt')} made no new step"
    if run.given_up is None:
        return ""
    many = f"all {counted(run.limit, 'restart')}" if run.limit > 1 else "its restart"
    return f"{many} had been used up"


def setback_words(run: RunStatus, setback: Setback) -> str:
    """Say in a line why the attempt failed that the current one follows."""
    why, follows = _why(setback.cause), f"attempt {setback.attempt + 1} follows"
    if _resumes(setback.cause):
        return f"attempt {setback.attempt} asked to be started again{why}; {follows}"
    what = f"attempt {setback.attempt} failed{why}"
    return f"{what}; {follows}, restart {run.restarts} of {run.limit}"


SETBACKS_LIMIT = 20
"""How many failed attempts are listed, the latest ones."""


def setbacks(run: RunStatus, most: int = SETBACKS_LIMIT) -> list[str]:
    """Say how earlier attempts ended and where the next ones continued, a line each."""
    lines = [_setback(one) for one in run.setbacks[-most:]]
    left = len(run.setbacks) - len(lines)
    before = [f"{counted(left, 'earlier attempt')} ended before these"] if left else []
    return [*before, *lines]


def setbacks_title(run: RunStatus) -> str:
    """Return what stands above these lines; nothing if there are none."""
    count = len(run.setbacks)
    return f"How {counted(count, 'earlier attempt')} ended" if count else ""


def _setback(setback: Setback) -> str:
    at, resumed = (" ".join(_counted(one)) for one in (setback.reached, setback.resumed))
    failed = f"attempt {setback.attempt}{f', at {at}' if at else ''}{_why(setback.cause)}"
    return f"{failed}; restarted from {resumed}" if resumed else failed


def _why(cause: Cause | None) -> str:
    """Say after a colon what failed and, if that is known, what it raised."""
    if cause is None:
        return ""
    raised = (cause.exception or "").partition("\n")[0]
    return f": {failure.headline(cause)}{f': {raised}' if raised else ''}"


def again_words(run: RunStatus) -> str:
    """Say that an attempt which is not the first trains, and where it is; nothing if it does not.

    The first time that there is something, it says where the attempt resumed.
    """
    at = [task.progress for task in run.tasks.values() if task.progress]
    where = " ".join(_counted(at[0])) if at else ""
    return f"attempt {run.attempt} is training, at {where}" if run.attempt > 1 and where else ""


def _resumes(cause: Cause | None) -> bool:
    return cause is not None and cause.finding.code == RESUME_CODE


def attempt_words(run: RunStatus) -> str:
    """Name the attempt where it is not the first."""
    return f"attempt {run.attempt}" if run.attempt > 1 else ""


def run_tone(run: RunStatus) -> str:
    """Classify a run's state as wait, run, stall, good, bad or off."""
    return "stall" if run.stall and run.state is RunState.RUNNING else state_tone(run.result)


def state_tone(state: RunState) -> str:
    """Classify a state alone as wait, run, good, bad or off."""
    return _TONES[state]


def _named(tasks: Mapping[str, TaskStatus], state: TaskState) -> list[str]:
    return [name for name, task in tasks.items() if task.state is state]


def _forming(run: RunStatus) -> str:
    return f"waiting for {failure.listed(_named(run.tasks, TaskState.ABSENT))}, not launched"


def _running(run: RunStatus) -> str:
    if run.stall:
        return failure.stalled(run.stall)
    if run.placing is not None:
        return ": ".join(filter(None, ["waiting for machines", run.placing]))
    return _asking(run) or _some_kept(run) or _advancing(run)


def _asking(run: RunStatus) -> str:
    """Say which tasks wait for a person."""
    asking = list(run.asks)
    verb = "asks" if len(asking) == 1 else "ask"
    return f"{failure.listed(asking)} {verb} for input; `%mw_wait` answers" if asking else ""


def _advancing(run: RunStatus) -> str:
    starting = _named(run.tasks, TaskState.STARTING)
    imports = [one for one in map(_importing, run.tasks.values()) if one]
    if imports:
        return imports[0]
    if starting:
        return f"starting {failure.listed(starting)}"
    return _together(run)


def _together(run: RunStatus) -> str:
    """Say what the tasks of a run do, all of which have a process."""
    phases = [task.phase for task in run.tasks.values() if task.state is TaskState.RUNNING]
    waited = sorted({name for task in run.tasks.values() for name in task.waits})
    if "training" in phases and not run.live:
        return "training"
    if waited and "connected" not in phases:
        return f"waiting for {failure.listed(waited)} to connect"
    live = {name: task.live for name, task in run.tasks.items() if task.live is not None}
    if live:
        return session_words(live)
    return "running"


def _some_kept(run: RunStatus) -> str:
    """Say which programs are over, whose processes stay, and which are not."""
    kept = [name for name, task in run.tasks.items() if task.kept]
    if not kept:
        return ""
    failed = [name for name in kept if run.tasks[name].code != 0]
    what = f"{failure.listed(failed)} failed" if failed else f"{failure.listed(kept)} finished"
    others = [name for name in run.tasks if name not in kept]
    return f"{what}, {failure.listed(others)} still {'runs' if len(others) == 1 else 'run'}"


def _kept(run: RunStatus) -> str:
    return f"{_failed(run) if run.outcome is RunState.FAILED else 'finished'}; its processes stay"


def _ending(run: RunStatus) -> str:
    """Name what may run on for a while: the evaluator after training, or tasks that may save."""
    running = _named(run.tasks, TaskState.RUNNING)
    still = [name for name in running if name.startswith("evaluator:")]
    if still:
        return f"ending: {failure.listed(still)} still runs"
    saved = [name for name, task in run.tasks.items() if task.code == RESUME_CODE]
    if saved and running:
        return f"ending: {saved[0]} exited with code {RESUME_CODE}, so the others may still save"
    return "ending"


def _backoff(run: RunStatus) -> str:
    cause = run.setbacks[-1].cause if run.setbacks else None
    why = f": {failure.headline(cause)}" if cause else ""
    if _resumes(cause):
        return f"starting again{why}"
    return f"restarting {run.restarts} of {run.limit}{_delay(run)}{why}"


def _delay(run: RunStatus) -> str:
    """Say for how long a restart waits, and why."""
    if run.delay is None:
        return ""
    less = "did not get as far as" if run.delay.by == "step" else "failed as soon as"
    why = f"attempt {run.attempt} {less} the one before"
    return f" in {run.delay.seconds:g} s, because {why}"


def _failed(run: RunStatus) -> str:
    why = f": {failure.headline(run.cause)}" if run.cause else ""
    return "; ".join(filter(None, [f"failed{why}", exhausted(run)]))


_WORDS: dict[RunState, Callable[[RunStatus], str]] = {
    RunState.FORMING: _forming,
    RunState.RUNNING: _running,
    RunState.ENDING: _ending,
    RunState.BACKOFF: _backoff,
    RunState.FAILED: _failed,
    RunState.KEPT: _kept,
    RunState.LOST: lambda _run: "lost with its supervisor",
}


def buttons(run: RunStatus) -> dict[str, tuple[str, str]]:
    """Return the label of each button that acts on a run, and what it does."""
    stacks = ("Stacks", "Show where each worker is in its code")
    if run.live:
        again = ("New session", "Begin another session, without the variables of this one")
        fresh = ("Reset", "Give every task a fresh interpreter; all variables are lost")
        stop = ("Stop", "End the session; all variables are lost")
        return {"stacks": stacks, "restart": again if run.over else fresh, "stop": stop}
    restart = ("Restart", "Restart every worker with the same code")
    return {"stacks": stacks, "restart": restart, "stop": ("Stop", "End every worker")}


# A task.


def task_words(task: TaskStatus) -> str:
    """Say in a few words where a task is."""
    if task.state is TaskState.ENDED:
        return _ended(task)
    if task.state is TaskState.RUNNING:
        return _at_work(task)
    return "not launched" if task.state is TaskState.ABSENT else _importing(task) or "starting"


def _at_work(task: TaskStatus) -> str:
    if task.kept and not _busy(task):
        return "kept" if task.code == 0 else f"kept: {_ended(task)}"
    if task.asks:
        return "asks in the debugger" if task.asks.debugger else "asks for input"
    if task.waits:
        return f"waiting for {failure.listed(task.waits)}"
    if task.live is not None:
        return doing_words(task.live)
    return _PHASES.get(task.phase, "running")


_PHASES: dict[str | None, str] = {
    "server": "listening",
    "waiting": "waiting to connect",
    "training": "training",
}
"""What a task does in the phases in which it does more than run."""


def _importing(task: TaskStatus) -> str:
    """Say which import a task's start waits for, and for how long: one that seems to hang."""
    if task.importing is None or task.state is not TaskState.STARTING:
        return ""
    return f"importing {task.importing.framework} ({task.importing.seconds:.0f} s)"


def _ended(task: TaskStatus) -> str:
    return failure.ended(task.finding, ours=task.ours) if task.finding else "lost"


def tone(task: TaskStatus) -> str:
    """Classify a task's state as absent, wait, run, good, bad or off."""
    if task.state is TaskState.ENDED:
        if task.code == 0 and not (task.finding and task.finding.detail):
            return "good"
        return "off" if task.ours else "bad"
    if task.state is TaskState.ABSENT:
        return "absent"
    if task.kept and not _busy(task):
        return "good" if task.code == 0 else "bad"
    if _idle(task):
        return "off"
    waits = task.waits or (task.live is not None and (task.live.waits or task.live.asks))
    return "run" if task.state is TaskState.RUNNING and not waits else "wait"


def _busy(task: TaskStatus) -> bool:
    """Return whether a task runs a live cell."""
    return task.live is not None and bool(task.live.cell)


def _idle(task: TaskStatus) -> bool:
    """Return whether a task waits for its next live cell: its training, if any, is over."""
    return task.live is not None and not task.live.cell


def fraction(task: TaskStatus) -> float | None:
    """Return how much of its training a task has done, from 0 to 1; None if unknown."""
    at = task.progress
    if at is None or _idle(task):
        return None
    part = min(at.step / at.steps, 1.0) if at.step is not None and at.steps else None
    if at.epoch is None or not at.epochs:
        return part
    if part is None:  # Keras says when an epoch begins; other loops when it is over
        part = 0.0 if at.kind == "train" else 1.0
    return min(max(at.epoch - at.first, 0) + part, at.epochs) / at.epochs


def left(task: TaskStatus) -> str:
    """Say how much longer a task's training takes at its present pace: ``1:07 left``."""
    seconds = _seconds_left(task)
    return "" if seconds is None else f"{clock(seconds)} left"


def _seconds_left(task: TaskStatus) -> float | None:
    at = task.progress
    if at is None or task.state is not TaskState.RUNNING or _idle(task):
        return None
    if not at.seconds_per_step or at.step is None or not at.steps:
        return None
    later = max((at.epochs or 0) - (at.epoch or 0), 0)
    seconds = at.seconds_per_step * (at.steps - at.step + later * at.steps)
    return seconds if math.isfinite(seconds) else None


def spent(task: TaskStatus) -> str:
    """Say for how long a task has been in its live cell, and at which line it waits there."""
    live = task.live
    if live is None or live.since is None:
        return ""
    line = f", waits at {live.at}" if live.waits and live.at else ""
    return f"for {clock(max(time.time() - live.since, 0.0))}{line}"


def longest(run: RunStatus) -> str:
    """Say for how long the task that has been in its live cell longest has been."""
    found = [
        (one.live.since, spent(one)) for one in run.tasks.values() if one.live and one.live.since
    ]
    return min(found)[1] if found else ""


# Progress.

_FIRST = ("loss", "val_loss")
"""The metrics that come first: those that tell most where not all of them are seen."""


def progress_words(progress: Reached | None) -> str:
    """Say where a task is in its training: ``epoch 2/3 · step 45/70``."""
    return " · ".join(_counted(progress))


def _counted(progress: Reached | None) -> list[str]:
    if progress is None:
        return []
    counts = {
        "epoch": (progress.epoch, progress.epochs),
        "step": (progress.step, progress.steps),
    }
    return [
        f"{name} {number}" + (f"/{total}" if total else "")
        for name, (number, total) in counts.items()
        if number is not None
    ]


def axis(progress: Reached | None) -> str:
    """Name what a task's progress is counted in: ``step``, or ``epoch`` where no step is known."""
    stepless = progress is not None and progress.step is None and progress.epoch is not None
    return "epoch" if stepless else "step"


def metrics(progress: Reached | None) -> list[tuple[str, str]]:
    """Return the latest metrics, with four significant digits, the losses first."""
    values = {} if progress is None else progress.metrics
    names = [name for name in _FIRST if name in values]
    names += [name for name in values if name not in _FIRST]
    return [(name, f"{values[name]:.4g}") for name in names]


def reached(progress: Reached | None) -> str:
    """Say where a task is in its training and what its metrics are, in plain text."""
    values = [f"{name} {value}" for name, value in metrics(progress)]
    return "  ".join(filter(None, [" ".join(_counted(progress)), *values]))


def clock(seconds: float) -> str:
    """Return a duration as ``1:07`` or ``2:01:07``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


_ADVICE = "end the notebook with `%mw_wait`"

ENDS_WITH_KERNEL = f"The run is stopped when the kernel ends; {_ADVICE}, which waits for the run."
"""How a run that is going is described as long as no page shows it."""


def exit_notice(run: RunStatus) -> str:
    """Say what the end of the kernel means for a run that nothing waited for, if anything."""
    if run.result in (RunState.FAILED, RunState.LOST):
        return (
            f"{_end(run)}; nothing waited for it, so the notebook did not fail with it; {_ADVICE}"
        )
    if not run.settled:
        number, where = run.number, words(run)
        return f"the kernel ended while run {number} was going ({where}), and stopped it; {_ADVICE}"
    return ""


def _end(run: RunStatus) -> str:
    if run.cause is None:
        return headline(run)
    why = f"run {run.number} failed: {failure.explain(run.cause)[0]}"
    return "; ".join(filter(None, [why, exhausted(run)]))


def fault_words(fault: ParserFault) -> str:
    """Say that a parser failed."""
    return f"mwmagic's {fault.parser} parser failed and left something out: {fault.error}"


def hidden_words(count: int) -> str:
    """Say that some lines are not shown because they mean nothing to a user."""
    return f"{counted(count, 'line')} of framework notices hidden, `--raw` shows them"


def left_out_words(count: int) -> str:
    """Say that some lines are not shown because a page could not keep up with them."""
    return f"{counted(count, 'line')} left out here; the file has the whole log"


def earlier_words(count: int | None) -> str:
    """Say that some lines are not shown because they come before the last ones."""
    what = "earlier lines" if count is None else counted(count, "earlier line")
    return f"... {what} not shown, `--tail 0` shows them"
