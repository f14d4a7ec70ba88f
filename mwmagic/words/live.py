"""Live cells in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mwmagic.model.values import counted

from .failure import names_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mwmagic.model.live import Answer, Raised
    from mwmagic.model.status import LastRaised, LiveStatus, RunStatus

__all__ = [
    "busy_words",
    "debug_words",
    "debugged_words",
    "doing_words",
    "failed_words",
    "flawless_words",
    "freed_words",
    "interrupted_words",
    "kept_words",
    "lost_words",
    "none_words",
    "program_words",
    "raised_words",
    "ranks_words",
    "recovered_words",
    "session_words",
    "skipped_words",
    "stopped_words",
    "stuck_words",
    "unanswerable_words",
    "unkept_words",
    "unknown_words",
    "waits_words",
    "widget_words",
    "withdrawn_words",
]

RESET = "`%mw_reset` gives fresh interpreters; all variables are lost"
"""The next step where tasks cannot continue."""


def ranks_words(tasks: Iterable[str]) -> str:
    """Name tasks in short: ``0-2,5`` for workers, ``ps 0`` for others."""
    groups: dict[str, list[int]] = {}
    for task in tasks:
        kind, _, index = task.partition(":")
        groups.setdefault(kind, []).append(int(index))
    texts = [
        f"{'' if kind == 'worker' else f'{kind} '}{_ranges(sorted(indexes))}"
        for kind, indexes in groups.items()
    ]
    return ", ".join(texts)


def _ranges(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def doing_words(live: LiveStatus) -> str:
    """Say in a few words what a task that takes cells does: ``In [7], waits for worker:1``."""
    if not live.cell:
        return "idle"
    if live.asks:
        return f"{live.cell}, asks for input"
    return f"{live.cell}, waits for {names_words(live.waits)}" if live.waits else live.cell


def session_words(tasks: Mapping[str, LiveStatus]) -> str:
    """Say in a few words what a session does: ``live, In [7] on worker:1``."""
    busy: dict[str, list[str]] = {}
    for name, live in tasks.items():
        if live.cell:
            busy.setdefault(doing_words(live), []).append(name)
    if not busy:
        return "live, idle"
    [(first, names), *others] = busy.items()
    if not others and len(names) == len(tasks):
        return f"live, {first}"
    return "live; " + "; ".join(f"{names_words(who)}: {what}" for what, who in busy.items())


def raised_words(tasks: Sequence[str], raised: Raised, cell: str) -> str:
    """Say what tasks raised, in a line."""
    first = raised.message.strip().partition("\n")[0]
    what = f"{raised.type}: {first}" if first else raised.type
    if raised.left:
        return f"{names_words(tasks)} left the debugger, which ended the cell"
    where = f" ({cell}, line {raised.line})" if raised.line else ""
    return f"{names_words(tasks)} raised {what}{where}"


BOUND_BY = {
    "framework": "only TensorFlow's collectives can be ended",
    "gpu": "on GPUs collectives are not ended",
    "program": "the collectives of a program that was kept are not ended",
    "names": "this version of TensorFlow has no way to end a collective",
}
"""Why tasks cannot be freed; see `mwmagic.cells.events.BoundBy`."""


def waits_words(said: Mapping[str, Any]) -> str:
    """Say which tasks wait inside the framework, for which, and why they are not freed."""
    text, why = _waits(said), BOUND_BY.get(said.get("why") or "")
    return f"{text}; {why}" if why else text


def stopped_words(said: Mapping[str, Any]) -> str:
    """Say that a task is stopped by a signal, and how it continues."""
    where = f" on {said['away']}" if said["away"] else ""
    return (
        f"{said['task']} is stopped by a signal (SIGSTOP); `kill -CONT {said['pid']}`{where} "
        "resumes it"
    )


def skipped_words(count: int) -> str:
    """Say that lines are not shown, as they are too many for a notebook."""
    return f"… {counted(count, 'line')} left out here; `%mw_logs` shows them"


def widget_words(text: str) -> str:
    """Say what stands for a widget."""
    return f"{text}\n… a widget, which the notebook cannot show: it lives in the task's process"


def _waits(said: Mapping[str, Any]) -> str:
    waiting = names_words(said["waiting"])
    verb = "waits" if len(said["waiting"]) == 1 else "wait"
    if said["asking"]:
        return debugged_words(said["waiting"], names_words(said["asking"]))
    if said["raised"]:
        return f"{waiting} {verb} inside the framework, probably for {names_words(said['raised'])}"
    others = names_words(said["finished"])
    have = "has" if len(said["finished"]) == 1 else "have"
    return f"{waiting} {verb} inside the framework for {others}, which {have} finished the cell"


def freed_words(said: Mapping[str, Any]) -> str:
    """Say which tasks were freed from a collective, for which they waited, and when."""
    freed = names_words(said["freed"])
    return f"{freed} waited {_cause(said)}: freed after {said['seconds']:.1f} s"


def _cause(said: Mapping[str, Any]) -> str:
    """Say what the tasks that were freed waited for."""
    if said["raised"]:
        return f"for {'it' if len(said['raised']) == 1 else 'them'} in a collective"
    if said["absent"]:
        have = "has" if len(said["absent"]) == 1 else "have"
        return f"in a collective for {names_words(said['absent'])}, which {have} not run the cell"
    if said["finished"]:
        have = "has" if len(said["finished"]) == 1 else "have"
        return f"in a collective for {names_words(said['finished'])}, which {have} finished it"
    return "in a collective"


def recovered_words(said: Mapping[str, Any]) -> str:
    """Say whether collectives work again, and whose state all tasks have."""
    if said["outcome"] == "failed":
        return f"collectives could not be made to work again. {RESET}"
    if said["outcome"] == "torn":
        return (
            "collectives work again, but every task was stopped in the middle of an update of the "
            "weights: the model's state is lost. Build it again, or load weights"
        )
    if not said["variables"]:
        return "collectives work again"
    text = f"collectives work again; {_state(said)}"
    if said["cut"]:
        text += ". The last step made only some of its updates of the weights"
    if not said["counted"]:
        text += ". It may not be that of a whole step: no Keras optimizer made the updates"
    return text


def _state(said: Mapping[str, Any]) -> str:
    """Say whose state all tasks have, and how much of it differed."""
    number, differed = said["variables"], said["differed"]
    if not differed:
        return f"all tasks have the same state ({number} variables compared)"
    return f"all have {said['root']}'s state ({differed} of {number} variables differed)"


def debug_words(raised: Mapping[str, LastRaised]) -> list[str]:
    """Say which task raised what, a line each, and how to go there."""
    width = max(map(len, raised))
    first = next(iter(raised))
    lines = [f"{task:{width}}  {_last_words(one)}" for task, one in raised.items()]
    return [*lines, f"`%mw_debug {first}` goes to the line that raised on {first}"]


def _last_words(raised: LastRaised) -> str:
    what = f"{raised.type}: {raised.message}" if raised.message else raised.type
    return f"{what} ({raised.cell}, line {raised.line})" if raised.line else what


def flawless_words(task: str | None = None) -> str:
    """Say that there is nothing to debug, on any task or on one."""
    return f"{task} has raised nothing" if task else "no task has raised anything"


def debugged_words(waiting: Sequence[str], debugged: str) -> str:
    """Say which tasks wait for one that is in the debugger."""
    verb = "waits" if len(waiting) == 1 else "wait"
    return f"{names_words(waiting)} {verb} for {debugged}, which is in the debugger"


def failed_words(raised: Sequence[Answer], unanswered: Sequence[str], cell: str) -> str:
    """Say why a cell failed, and what to do next."""
    own = [one for one in raised if not one.freed]
    first = (own or raised)[0]
    text = raised_words([first.task], first.raised, cell) if first.raised else ""
    if not own:
        text = f"{names_words([one.task for one in raised])} waited in a collective for ever"
    others = len(own) - 1
    if others > 0:
        text += f", and {others} other task{'s' * (others > 1)} raised too"
    if not unanswered:
        return f"{text}. All variables are kept"
    verb = "waits" if len(unanswered) == 1 else "wait"
    return f"{text}; {names_words(unanswered)} still {verb} for it. {RESET}"


def kept_words(run: RunStatus) -> str:
    """Say what can be done with processes that are kept, and which of them cannot be used."""
    busy = [name for name, task in run.tasks.items() if task.state.alive and not task.kept]
    verb = "is" if len(busy) == 1 else "are"
    still = f" {names_words(busy)} {verb} still in the program, and cannot." if busy else ""
    raised = [name for name, task in run.tasks.items() if task.raised]
    debug = f", `%mw_debug {raised[0]}` goes to the line that raised" if raised else ""
    return (
        f"its processes stay with their variables: `%%mw_live` looks into them{debug}, and "
        f"`%mw_stop` ends them.{still}"
    )


def none_words(run: RunStatus | None) -> str:
    """Say why the latest run, if there is one, takes no cells, and how the next one does."""
    begin = "a `%%mw_live` cell begins a session"
    if run is None:
        return f"there is no live session; {begin}"
    if run.live:
        return f"the live session has ended, and its variables are lost; {begin}"
    if not run.settled:
        return (
            f"run {run.number} is a program that is still going; `%mw_wait` waits for it, and "
            "`%mw_stop` stops it"
        )
    return f"there is no live session; {begin}. {unkept_words(run.number).capitalize()}"


def unkept_words(number: int) -> str:
    """Say what became of a program's variables, and how they would have stayed."""
    return f"the variables of run {number} ended with it; `%%mw_worker --keep` keeps them"


def program_words(number: int) -> str:
    """Say why processes that are kept cannot be reset."""
    return (
        f"the processes of run {number} are kept after its program: `%mw_restart` runs that again, "
        "in fresh ones, and `%mw_stop` ends them"
    )


def interrupted_words(left: Sequence[str]) -> str:
    """Say what became of a cell that was interrupted; `left` are the tasks that are still in it."""
    if not left:
        return "interrupted on all tasks; all variables are kept"
    verb = "is" if len(left) == 1 else "are"
    return (
        f"interrupted, but {names_words(left)} {verb} still in the cell, inside code that does not "
        f"notice. {RESET}"
    )


def lost_words(cell: str) -> str:
    """Say in which cell a session ended, and what that means."""
    return (
        f"  That was in {cell}. The live session is over, and all its variables are lost; the next "
        "cell begins another."
    )


def unanswerable_words() -> str:
    """Say why a task's question ends its cell."""
    return (
        "the cell asks for input, by `input()`, `breakpoint()` or a debugger, and this notebook is "
        "executed without anyone to answer; leave that out, or run the notebook in a page"
    )


def withdrawn_words(*, reset: bool) -> str:
    """Say why a cell that did not fail has no answer."""
    if reset:
        return "the interpreters were reset before the cell was over; run it again"
    return "the cell was cancelled before it began"


def busy_words() -> str:
    """Say why a name cannot be looked up."""
    return "every task is in a cell, so none can look that up; ask again when one is idle"


def unknown_words(text: str, task: str) -> str:
    """Say that a name has no value that can be looked up."""
    return (
        f"{text!r} cannot be looked up on {task}: it does not exist there, or only running code, "
        "such as a property, would give its value"
    )


def stuck_words(tasks: Sequence[str]) -> str:
    """Say why a cell cannot run."""
    verb = "is" if len(tasks) == 1 else "are"
    return f"{names_words(tasks)} {verb} still in an earlier cell, which failed elsewhere. {RESET}"
