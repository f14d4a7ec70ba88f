"""A session of live cells: carries out what its state machine decides."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mwmagic import cells as c
from mwmagic.agent.wire import parsed
from mwmagic.errors import SupervisorError
from mwmagic.model.findings import Whereabouts
from mwmagic.model.live import (
    PARTNERS,
    PROGRAM_CELL,
    Answer,
    AnswerRecord,
    CellNews,
    CellRecord,
    Raised,
)
from mwmagic.model.status import LastRaised, LiveStatus, Question

from .processes import check_fits, kind_of, packet_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from mwmagic.logs import Guard
    from mwmagic.model.cluster import Task
    from mwmagic.model.findings import Position
    from mwmagic.model.messages import Message
    from mwmagic.record import RunDirectory

    from .process import TaskProcess
    from .processes import Processes

    Report = Callable[[CellNews, dict[str, Any]], None]

__all__ = ["LiveSession"]

NOTED_CHARACTERS = 500
"""The most of an exception's text that the record keeps beside the log."""

CALM_SECONDS = 0.005
"""How long no cell has begun or ended when they are saved: no cell need wait for a disk."""

UNSAVED_SECONDS = 0.1
"""How long cells that follow each other at once may stay unsaved."""

WAITING_CORES = 0.1
"""The CPU time per second below which a task only waits; TensorFlow's threads poll."""

STOPPED_LOOKS = 2
"""How often in a row a task is seen stopped, a second apart, before that is reported."""

DEBUGGER_LOOK_SECONDS = 1.0
"""The pause before it is found out which tasks wait for one in the debugger."""

DEBUGGER_LOOKS = 5
"""How often that is done at most while one question waits for its answer."""


def _rejoined(task: str, cell: int, said: Message) -> c.Rejoined:
    told = said["standing"]
    if not isinstance(told, dict):
        return c.Rejoined(task, cell, None)
    known = {one.name: int(told.get(one.name, 0)) for one in fields(c.Standing)}
    return c.Rejoined(task, cell, c.Standing(**known))


def _compared(task: str, cell: int, said: Message) -> c.Compared:
    return c.Compared(task, cell, c.Digest(said["shared"], said["means"]))


RECOVERING: dict[str, Callable[[str, int, Message], c.CellEvent]] = {
    "bound": lambda task, cell, said: c.Bound(task, cell, said["why"]),
    "arrived": lambda task, cell, _: c.Arrived(task, cell),
    "rejoined": _rejoined,
    "compared": _compared,
    "aligned": lambda task, cell, _: c.Aligned(task, cell),
    "unable": lambda task, cell, _: c.Unable(task, cell),
}
"""The events of what tasks say while they are freed and come together again."""

_RECOVERED = ("rejoined", "compared", "aligned")
"""What a recovery waits for."""


def _fields(action: c.Waits | c.Freed | c.Recovered) -> dict[str, Any]:
    """Return what is reported of an action to the cell's client."""
    return {name: value for name, value in vars(action).items() if name != "cell"}


def _answer_record(said: Message, start: int) -> AnswerRecord:
    """Return what the record keeps of an answer."""
    answer = Answer.read(said)
    record = AnswerRecord(start, answer.end, answer.seconds)
    if answer.raised is None:
        return record
    message = answer.raised.message[:NOTED_CHARACTERS]
    return replace(record, raised=answer.raised.type, message=message)


@dataclass
class _Cell:
    """A cell and its client."""

    tasks: Sequence[str]
    name: str
    source: str
    packet: str
    report: Report
    begun: float = 0.0
    starts: dict[str, int] = field(default_factory=dict)
    answers: dict[str, Message] = field(default_factory=dict)
    attempt: int = 0
    waits_told: bool = False
    moments: dict[str, float] = field(default_factory=dict)
    stopped: dict[str, int] = field(default_factory=dict)  # how often in a row it was seen so

    def record(self, number: int, why: str) -> CellRecord:
        """Return what the record keeps of it."""
        answers = {
            task: _answer_record(said, self.starts[task]) for task, said in self.answers.items()
        }
        names = tuple(self.tasks)
        return CellRecord(number, self.name, names, self.attempt, self.begun, why, answers)

    def waited(self, told: c.Freed) -> float:
        """Return how long after another task's answer, or the beginning, the last was freed."""
        others = () if told.absent and not told.raised else told.raised or told.finished
        since = min((self.moments[task] for task in others), default=self.moments[""])
        return max(self.moments[task] for task in told.freed) - since


class Programs(Protocol):
    """What is reported of programs whose processes stay."""

    def program_over(self, process: TaskProcess, said: Message) -> None:
        """Take how a task's program ended."""

    def programs_over(self) -> None:
        """Take that no more of them will end."""


class LiveSession:
    """The cells of a run."""

    def __init__(
        self,
        directory: RunDirectory,
        tasks: Sequence[str],
        processes: Processes,
        examine: Callable[[], Awaitable[Sequence[Position]]],
        *,
        guard: Guard,
        programs: Programs,
        program: Sequence[str] = (),
    ) -> None:
        self._directory = directory
        partners = [task for task in tasks if task.startswith(PARTNERS)]
        self._programs = programs
        self._machine = c.Cells(tasks, partners, program)
        self._processes = processes
        self._examine = examine
        self._guard = guard
        self._cells: dict[int, _Cell] = {}
        self._number = 0
        self._living: set[TaskProcess] = set()
        self._prompted: set[str] = set()
        self._doing: dict[str, LiveStatus] = {}
        self._looks: dict[int, Report] = {}
        self._looked = 0
        self._late: dict[TaskProcess, deque[Message]] = {}
        self._ends: dict[str, int] = {}
        self._used: dict[str, tuple[float, float]] = {}
        self._idle: set[str] = set()
        self._saving: asyncio.TimerHandle | None = None
        self._touched = 0.0  # when a cell last began or ended
        self._work: set[asyncio.Task[None]] = set()

    @property
    def ready(self) -> bool:
        """Whether every task takes cells."""
        return self._machine.ready

    def doing(self, task: str) -> LiveStatus | None:
        """Return what a task does; None if it takes no cells."""
        return self._doing.get(task)

    # Requests.

    def submit(
        self, tasks: Sequence[str], name: str, source: str, report: Report, *, alone: bool
    ) -> None:
        """Run a cell on some tasks as soon as they can."""
        number = self._number + 1
        packet = packet_of({"do": "cell", "cell": number, "name": name, "source": source})
        check_fits(packet, "the cell", "put the code in a module and import that")
        self._number = number
        cell = self._cells[number] = _Cell(tasks, name, source, packet, report)
        self._handle(c.Submit(number, tuple(tasks), alone))
        if number in self._cells and not cell.begun:
            report(CellNews.QUEUED, {"cell": number})

    def look(self, tasks: Sequence[str], wanted: str, text: str, report: Report) -> None:
        """Have the first idle task of some say what names mean."""
        idle = [task for task in tasks if self._doing.get(task) == LiveStatus()]
        if not idle:
            report(CellNews.LOOKED, {"task": None, "found": None})
            return
        self._looks[self._looked] = report
        self._send(idle[0], {"do": "look", "look": self._looked, "wanted": wanted, "text": text})
        self._looked += 1

    def interrupt(self, cell: int) -> None:
        """Interrupt a cell, or withdraw it if it has not begun."""
        self._handle(c.Interrupt(cell))

    def reply(self, task: str, text: str | None) -> None:
        """Answer a task's question; None says that no answer will come."""
        if task not in self._prompted:
            raise SupervisorError(f"{task} asks nothing")
        order = {"do": "reply", "text": text}
        check_fits(packet_of(order), "the answer", "let the program read a long text from a file")
        self._asked_no_more(task)
        self._send(task, order)

    def _asked_no_more(self, task: str) -> None:
        self._prompted.discard(task)
        self._process(task).asks = None
        self._note(task, asks=False)

    @property
    def asks(self) -> bool:
        """Whether a task waits for an answer."""
        return bool(self._prompted)

    async def carry(self, tasks: Sequence[Task], path: Path, *, back: bool) -> None:
        """Bring a file of the record to the tasks' machines, or back from them."""
        for task in tasks:
            process = self._process(str(task))
            if back:
                await self._processes.bring(process, path)
            else:
                await self._processes.carry(process, path)

    # Events of the tasks.

    def on_packet(self, process: TaskProcess, event: Message) -> None:
        """Take a packet of a task's line."""
        if process is not self._processes.of(process.task):
            return  # of an attempt that is over
        late = self._late.get(process)
        if late is not None:  # the one before is still being fetched
            late.append(event)
        else:
            self._guard.call("live", None, self._taken, process, event)

    def _taken(self, process: TaskProcess, event: Message) -> None:
        try:
            self._read(process, event)
        except Exception as error:
            kind = kind_of(event["data"])
            self._unread(process, kind, event["size"], error)
            raise

    def _unread(self, process: TaskProcess, kind: str, size: int, error: Exception) -> None:
        """Take what cannot be read as an error of the task: something waits for each answer."""
        task, current = str(process.task), self._machine.current
        if kind == "answer" and task in self._machine.busy:
            why = f"its answer cannot be read: {error}"
            self._failed(task, self._machine.busy[task], size, error, why)
        elif kind in _RECOVERED and current is not None:
            self._handle(c.Unable(task, current))

    def _failed(self, task: str, cell: int, size: int, error: Exception, why: str) -> None:
        """Have a cell end on a task with an error of ours."""
        raised = {"type": type(error).__name__, "message": why, "trace": why}
        told = {"live": "answer", "cell": cell, "ok": False, "raised": raised}
        self._told(task, {**told, "code": 1, "report": None}, size)

    def refused(self, process: TaskProcess, cell: int, why: str) -> None:
        """Take that the process did not accept an order which something waits for, if not 0."""
        task = str(process.task)
        if cell and self._machine.busy.get(task) == cell:
            said = f"the process did not accept the cell: {why}"
            self._failed(task, cell, self._ends[task], OSError(), said)
        elif cell and self._machine.current == cell:
            self._handle(c.Unable(task, cell))

    def _read(self, process: TaskProcess, event: Message) -> None:
        said, task = parsed(event["data"]), str(process.task)
        self._ends[task] = event["size"]
        if said["live"] == "ready":
            self._living.add(process)
            self._doing[task] = LiveStatus()
            self._handle(c.Ready(task))
        elif said["live"] == "ask":
            question = Question(str(said["prompt"]), debugger=said.get("debugger") is True)
            self._asked(process, int(said["cell"]), question)
        elif isinstance(said.get("file"), str):
            late = self._late[process] = deque()  # at once: the next ones may be here already
            self._start(self._fetched(process, said, event["size"], late))
        else:
            self._told(task, said, event["size"])

    async def _fetched(
        self, process: TaskProcess, brief: Message, size: int, late: deque[Message]
    ) -> None:
        """Read a long message from its file, which is beside the log; the next ones wait."""
        file = process.paths.log.with_name(Path(brief["file"]).name)
        try:
            await self._processes.bring(process, file)
            said = parsed(file.read_bytes())
            file.unlink(missing_ok=True)
            self._told(str(process.task), said, size)
        except Exception as error:  # noqa: BLE001 - of a disk, an agent, or what a cell wrote there
            self._unread(process, brief["live"], size, error)
        finally:
            del self._late[process]
            for event in late:
                self.on_packet(process, event)

    def _told(self, task: str, said: Message, size: int) -> None:
        number, kind = int(said["cell"]), said["live"]
        cell = self._cells.get(number)
        if kind in RECOVERING:
            self._handle(RECOVERING[kind](task, number, said))
        elif kind == "answer" and number == PROGRAM_CELL:
            self._programs.program_over(self._process(task), said)
            self._handle(c.Answered(task, PROGRAM_CELL, not said["ok"]))
        elif kind == "answer":
            self._answered(task, said, size)
        elif said["live"] == "looked":
            report = self._looks.pop(int(said["look"]))
            report(CellNews.LOOKED, {"task": task, "found": said["found"]})
        elif said["live"] == "show" and cell is not None:
            cell.report(CellNews.SHOW, {"task": task, "value": said["value"]})

    def _asked(self, process: TaskProcess, number: int, question: Question) -> None:
        task, cell = str(process.task), self._cells.get(number)
        if cell is None and number != PROGRAM_CELL:  # no client listens to it any more
            self._send(task, {"do": "reply", "text": None})
            return
        self._prompted.add(task)
        if cell is None:
            process.asks = question  # the status shows it
            return
        self._note(task, asks=True)
        cell.report(CellNews.ASK, {"task": task, **question.as_json()})
        if question.debugger:
            self._start(self._find_waiting(task, number))

    def _answered(self, task: str, said: Message, size: int) -> None:
        number, raised, freed = int(said["cell"]), not said["ok"], said.get("freed") is True
        if task in self._prompted:
            self._asked_no_more(task)
        self._doing[task] = LiveStatus()
        cell = self._cells.get(number)
        if cell is not None and isinstance(said.get("raised"), dict):
            self._note_raised(task, Raised.read(said["raised"]), cell.name)
        if cell is not None:
            answer = {**said, "task": task, "end": size}
            cell.report(CellNews.ANSWER, answer)
            cell.answers[task] = answer
            cell.moments[task] = time.monotonic()
        self._handle(c.Answered(task, number, raised, freed))

    def _note_raised(self, task: str, raised: Raised, cell: str) -> None:
        """Note what a task raised last; a debugger that was left is not what to debug."""
        if not raised.left:
            first = raised.message.strip().partition("\n")[0]
            last = LastRaised(raised.type, first, cell, raised.line)
            self._process(task).raised = last

    def used(self, process: TaskProcess, time: float) -> None:
        """Note the CPU time that a task has used."""
        task, cpu = str(process.task), float(process.usage["cpu"])
        before, then = self._used.get(task, (cpu, time))
        self._used[task] = (cpu, time)
        idle = time > then and cpu - before < WAITING_CORES * (time - then)
        (self._idle.add if idle else self._idle.discard)(task)
        self._notice_stop(process)

    def _notice_stop(self, process: TaskProcess) -> None:
        """Report that a task in a cell is stopped by a signal, once it was seen so twice."""
        task = str(process.task)
        cell = self._cells.get(self._machine.busy.get(task, PROGRAM_CELL))
        if cell is None:
            return
        if process.usage.get("state") != "T":
            cell.stopped.pop(task, None)
            return
        cell.stopped[task] = cell.stopped.get(task, 0) + 1
        if cell.stopped[task] == STOPPED_LOOKS:
            told = {"task": task, "pid": process.pid, "away": process.away}
            cell.report(CellNews.STOPPED, told)

    def exited(self, process: TaskProcess) -> None:
        """Note that a process has ended, and with it the session if it was one of its tasks."""
        self._prompted.discard(str(process.task))
        if process in self._living:
            self.end()

    def end(self, *, reset: bool = False) -> None:
        """End all cells: the processes end or are replaced, and their variables with them."""
        self._living.clear()
        self._prompted.clear()
        self._doing.clear()
        for report in self._looks.values():
            report(CellNews.LOOKED, {"task": None, "found": None})
        self._looks.clear()
        self._handle(c.Gone(reset))

    # What is done.

    def _handle(self, event: c.CellEvent) -> None:
        actions = self._machine.handle(event)
        told = [action for action in actions if isinstance(action, c.Tell)]
        for action in actions:
            if not isinstance(action, c.Tell):
                self._do(action)
        if told:
            self._begin(told[0].cell, [action.task for action in told])

    def _do(self, action: c.CellAction) -> None:  # noqa: C901, PLR0912 - a case an action
        """Carry out an action."""
        match action:
            case c.Signal():
                self._do_signal(action)
            case c.Await():
                self._do_await(action)
            case c.Examine():
                self._do_examine(action)
            case c.Waits():
                self._do_waits(action)
            case c.Abort():
                self._do_abort(action)
            case c.Meet():
                self._do_meet(action)
            case c.Rejoin():
                self._do_rejoin(action)
            case c.Compare():
                self._do_compare(action)
            case c.Align():
                self._do_align(action)
            case c.Freed():
                self._do_freed(action)
            case c.Recovered():
                self._do_recovered(action)
            case c.Done():
                self._do_done(action)
            case c.Refuse():
                self._do_refuse(action)

    def _begin(self, number: int, tasks: Sequence[str]) -> None:
        """Have a cell begin on all its tasks; what else is to be done they need not wait for."""
        cell = self._cells[number]
        cell.begun, cell.moments[""] = time.time(), time.monotonic()
        cell.attempt = max(process.attempt for process in self._processes)
        cell.starts = {task: self._ends[task] for task in cell.tasks}
        processes = list(map(self._process, tasks))
        for task, process in zip(tasks, processes, strict=True):
            process.output.begin_cell(cell.starts[task])
        self._processes.send(processes, cell.packet, number)
        self._doing |= {task: LiveStatus(cell.name, cell.begun) for task in tasks}
        cell.report(CellNews.BEGUN, {"cell": number, "logs": self._logs(cell.tasks)})
        self._directory.begin_cell(number, cell.source)
        self._save_soon()

    def _save_soon(self) -> None:
        self._touched = time.monotonic()
        if self._saving is None:
            self._save_later(self._touched + UNSAVED_SECONDS)

    def _save_later(self, latest: float) -> None:
        loop = asyncio.get_running_loop()
        self._saving = loop.call_later(CALM_SECONDS, self._save_if_quiet, latest)

    def _save_if_quiet(self, latest: float) -> None:
        if time.monotonic() < min(self._touched + CALM_SECONDS, latest):
            self._save_later(latest)
        else:
            self._saving = None
            self._directory.save_cells()

    def _logs(self, tasks: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return each task's log, and where in it the output of the next cell begins."""
        logs = ((task, str(self._process(task).paths.log)) for task in tasks)
        return {task: {"log": log, "start": self._ends[task]} for task, log in logs}

    def _do_signal(self, action: c.Signal) -> None:
        self._send(action.task, {"do": "interrupt", "cell": action.cell})

    def _do_await(self, action: c.Await) -> None:
        event = c.Elapsed(action.cell, action.purpose)
        asyncio.get_running_loop().call_later(action.seconds, self._handle, event)

    def _do_examine(self, action: c.Examine) -> None:
        self._start(self._look(action.cell))

    def _do_waits(self, action: c.Waits) -> None:
        if action.cell == PROGRAM_CELL:
            return  # the status shows who raised, and who has not ended
        for task in action.waiting:
            self._note(task, waits=action.raised + action.finished)
        self._cells[action.cell].report(CellNews.WAITS, {**_fields(action), "asking": ()})

    def _do_abort(self, action: c.Abort) -> None:
        self._send(action.task, {"do": "abort", "cell": action.cell})

    def _do_meet(self, action: c.Meet) -> None:
        self._send(action.task, {"do": "meet", "cell": action.cell})

    def _do_rejoin(self, action: c.Rejoin) -> None:
        order = {"do": "rejoin", "cell": action.cell, "epoch": action.epoch}
        self._send(action.task, order, action.cell)

    def _do_compare(self, action: c.Compare) -> None:
        order = {"do": "compare", "cell": action.cell, "done": action.done}
        self._send(action.task, order, action.cell)

    def _do_align(self, action: c.Align) -> None:
        order = {"do": "align", "cell": action.cell, "own": action.task == action.root}
        what = {"done": action.done, "names": action.names, "averaged": action.averaged}
        self._send(action.task, {**order, **what}, action.cell)

    def _do_freed(self, action: c.Freed) -> None:
        cell = self._cells[action.cell]
        cell.report(CellNews.FREED, {**_fields(action), "seconds": cell.waited(action)})

    def _do_recovered(self, action: c.Recovered) -> None:
        self._cells[action.cell].report(CellNews.RECOVERED, _fields(action))

    def _do_done(self, action: c.Done) -> None:
        if action.cell == PROGRAM_CELL:
            if action.why in ("answered", "waits"):
                self._programs.programs_over()
            return
        cell = self._cells.pop(action.cell)
        cell.report(CellNews.DONE, {"why": action.why, "unanswered": action.unanswered})
        if cell.begun:
            self._directory.end_cell(cell.record(action.cell, action.why))
            self._save_soon()

    def _do_refuse(self, action: c.Refuse) -> None:
        self._cells.pop(action.cell).report(CellNews.REFUSED, {"stuck": action.stuck})

    def _note(self, task: str, **changes: Any) -> None:  # noqa: ANN401 - as `LiveStatus` has them
        """Note more of what a task does, if it takes cells."""
        if task in self._doing:
            self._doing[task] = replace(self._doing[task], **changes)

    def _send(self, task: str, order: Message, cell: int = 0) -> None:
        self._processes.send([self._process(task)], packet_of(order), cell)

    def _process(self, task: str) -> TaskProcess:
        return self._processes.named(task)

    async def _look(self, cell: int) -> None:
        """Find out which tasks are inside the framework."""
        inside = await self._inside()
        self._handle(c.Found(cell, inside, inside & self._idle))

    async def _inside(self) -> frozenset[str]:
        where = await self._examine()
        found = [one for one in where if one.whereabouts is Whereabouts.IN_FRAMEWORK]
        lines = {one.task: one.at for one in found}
        for task in self._doing.keys() - lines.keys():
            self._note(task, waits=(), at=None)
        for task, line in lines.items():
            self._note(task, at=line)
        return frozenset(lines) - self._prompted

    async def _find_waiting(self, debugged: str, number: int) -> None:
        """Tell which tasks wait inside the framework for one that is in the debugger."""
        for _ in range(DEBUGGER_LOOKS):
            await asyncio.sleep(DEBUGGER_LOOK_SECONDS)
            cell = self._cells.get(number)
            if cell is None or debugged not in self._prompted or cell.waits_told:
                return
            inside = await self._inside()
            busy = self._machine.busy
            waiting = [one for one in inside & self._idle if busy.get(one) == number]
            if waiting and number in self._cells:
                cell.waits_told = True
                told = {"waiting": sorted(waiting), "asking": [debugged]}
                cell.report(CellNews.WAITS, {**told, "raised": (), "finished": ()})

    def _start(self, coroutine: Any) -> None:  # noqa: ANN401 - a coroutine
        task = asyncio.create_task(coroutine)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
