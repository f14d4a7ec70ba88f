"""One task's process in one attempt: what it prints, and what else is known of it."""

from __future__ import annotations

import codecs
import linecache
import signal
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mwmagic.agent.wire import AGENT_LOST, LOG_LOST, as_bytes, as_text
from mwmagic.diagnosis import Exit, Observation, is_notable
from mwmagic.logs.noise import NATIVE
from mwmagic.logs.progress import Phases, Update
from mwmagic.logs.terminal import Terminal
from mwmagic.model import variables
from mwmagic.model.findings import Finding, Symptom
from mwmagic.model.status import LastRaised, Rest, TaskState, TaskStatus
from mwmagic.model.values import sendable
from mwmagic.words.failure import sentence

from .training import History, Training

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mwmagic.diagnosis.observation import Stack
    from mwmagic.logs import Guard
    from mwmagic.logs.progress import Phase
    from mwmagic.logs.tracebacks import Frame
    from mwmagic.model.cluster import Task
    from mwmagic.model.findings import Stall, Whereabouts
    from mwmagic.model.messages import Message
    from mwmagic.model.status import Importing, Question
    from mwmagic.record import TaskPaths

    from .program import TaskProgram
    from .stalls import Dump
    from .training import Report

__all__ = ["TaskOutput", "TaskProcess", "is_over"]

BACKSTOP_SECONDS = 3.0
"""How much longer a process that failed has than it takes itself: the interpreter may hang."""

_OURS = (None, signal.SIGKILL, signal.SIGTERM)
"""How a process ends when mwmagic ends it: by a signal, or by itself after SIGTERM."""

TAIL_LINES = 200
"""Lines of a log's end that are kept for the diagnosis."""

NOTABLE_LINES = 50
"""How many of the notable lines are kept, however much is printed after them."""


def is_over(packet: str) -> bool:
    """Return whether a packet on a worker's line says that its program is over."""
    return packet.startswith(variables.OVER)


def _report(report: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the usable part of a report, which any code in a worker may have written."""
    if report is None:
        return None
    known: dict[str, Any] = sendable(report)
    if not isinstance(known.get("time"), int | float):
        known.pop("time", None)
    where = known.get("where")
    if not isinstance(where, dict) or type(where.get("line", 0)) is not int:  # nor a bool
        known.pop("where", None)
    return known


class TaskProcess:
    """What is known of a task's process.

    Attributes
    ----------
    state
        Never ``absent``.
    began
        When it was to start, in monotonic seconds.
    exit, program_exit
        How it ended, and how its program did if the process stays.
    full
        That its log could not be written where it is, but was here.
    cut
        That its log may lack its last lines, which an agent that was lost did not pass on.
    asks
        What its program or a cell asks, and waits for.
    raised
        What it raised last, as far as that can be debugged.
    away
        The machine that it ended on, unless that is this one.
    no_stack
        Why it could not be asked for its stack, when it was last.
    dump
        What shows where it was when another task failed, if it was asked.
    hurried
        Whether it was asked to end after its program was over.
    """

    def __init__(
        self,
        task: Task,
        attempt: int,
        program: TaskProgram,
        paths: TaskPaths,
        guard: Guard,
        *,
        address: str = "",
        logs_start: bool = False,
        began: float = 0.0,
    ) -> None:
        self.task = task
        self.attempt = attempt
        self.program = program
        self.paths = paths
        self.output = TaskOutput(guard)
        self.address = address
        self.logs_start = logs_start
        self.state = TaskState.STARTING
        self.began = began
        self.exit: Exit | None = None
        self.program_exit: Exit | None = None
        self.asks: Question | None = None
        self.raised: LastRaised | None = None
        self.away: str | None = None
        self.no_stack: Whereabouts | None = None
        self.dump: Dump | None = None
        self.pid: int | None = None
        self.warm = False
        self.notices: list[Finding] = []
        self.usage: dict[str, Any] = {}
        self.stalled: Stall | None = None
        self.full: Finding | None = None
        self.cut: Finding | None = None
        self.hurried = False
        self._finishing_since: float | None = None
        self._own: Exit | None = None
        self._ending_since: float | None = None
        self._requested = False

    @property
    def script(self) -> str:
        """The path of the user's file."""
        return str(self.program.launch.path)

    def started(self, event: Message) -> None:
        """Note that it runs."""
        self.state = TaskState.RUNNING
        self.pid = event["pid"]
        self.warm = event["warm"]
        found = event.get("cold"), event.get("left_out")
        self.notices = [one for one in found if one is not None]

    def unwritten(self, event: Message) -> None:
        """Note where the rest of its log is, or that only another machine's disk is full."""
        if event["path"] is not None:
            self.output.rest = Rest(event["size"], event["path"])
        else:
            detail = f"{event['file']}: {event['error']}"
            self.full = Finding(
                Symptom.LOG_UNWRITTEN, str(self.task), host=self.away, detail=detail
            )

    def ending(self, time: float) -> None:
        """Note that mwmagic is ending it."""
        if self._ending_since is None:
            self._ending_since = time

    def requested(self) -> None:
        """Note that the user sent it a signal."""
        self._requested = True

    def _ended(self, event: Message, failed: float) -> bool:
        """Return whether mwmagic ended the process before it failed."""
        ending = self._ending_since is not None and failed >= self._ending_since
        return ending and event["signal"] in _OURS

    def finishes(self, said: Message, time: float) -> Exit:
        """Note how its program ended; its threads and exit handlers may still be at work."""
        self._finishing_since = time
        self._own = self._program_end(said, time)
        return self._own

    def finishing(self, now: float) -> bool:
        """Return whether it ends by itself, and has time left for that."""
        since = self._finishing_since
        if since is None or self.hurried or self.exit is not None:
            return False
        return now < since + variables.FINISH_SECONDS + BACKSTOP_SECONDS

    def over(self, said: Message, time: float) -> Exit:
        """Note how its program ended, according to itself; the process stays."""
        self.program_exit = end = self._program_end(said, time)
        failure = end.failure
        if end.report is not None and failure is not None and failure.type != "SystemExit":
            where = end.where
            first = failure.message.strip().partition("\n")[0]
            line = where.line if where else None
            self.raised = LastRaised(failure.type, first, self.script.rpartition("/")[2], line)
        return end

    def _program_end(self, said: Message, time: float) -> Exit:
        report = _report(said.get("report"))
        if report is not None and self.away:
            report.pop("time", None)  # of that machine's clock
        code, number = said.get("code"), said.get("signal")
        event = {"time": time, "code": code, "signal": number, "report": report}
        return self._exit({**event, "oom": None, "error": None, "errno": None})

    def exited(self, event: Message) -> Exit:
        """Note how it ended."""
        self.state = TaskState.ENDED
        self.asks = None
        self.output.end(event)
        end = replace(self._exit(event), stays=self.program.launch.stays)
        own = self._own
        if own is not None and own.failed and end.signal is not None:
            # It had failed before it was killed, or crashed, while the interpreter finalized.
            end = replace(end, code=own.code, signal=own.signal, ended=False, cut=False)
            end = replace(end, report=end.report or own.report)
        self.exit = end
        return end

    def _exit(self, event: Message) -> Exit:
        report = _report(event["report"])
        failed = float(report["time"] if report and "time" in report else event["time"])
        if self.program.launch.stays and event["code"] == variables.TERMINATED_CODE:
            event = {**event, "code": None, "signal": int(signal.SIGTERM)}
        return Exit(
            task=str(self.task),
            attempt=self.attempt,
            code=event["code"],
            signal=event["signal"],
            time=event["time"],
            ended=self._ended(event, failed),
            cut=self._ended(event, event["time"]) and not self._ended(event, failed),
            oom=event["oom"],
            detail=sendable(event["error"]) or self._stalled_why,
            errno=event["errno"],
            lost=event.get("reason") == AGENT_LOST,
            away=self.away,
            stalled=self.stalled.seconds if self.stalled else None,
            report=report,
            tail=self.output.tail,
            script=self.script,
            cell=self.program.launch.cell,
            notebook=frozenset(self.program.launch.notebook),
            address=self.address,
            requested=self._requested,
            stopped="T" in (self.usage.get("state"), event.get("usage", {}).get("state")),
            place=self._place,
        )

    @property
    def _stalled_why(self) -> str | None:
        """Why the run made no progress, if it was ended for that."""
        why = self.stalled.why if self.stalled else None
        return why.finding.detail or sentence(why.finding) if why else None

    @property
    def _place(self) -> Frame | None:
        """The line that it was at when another task failed; only the script's source is known."""
        stack = self.dump.stack() if self.dump else None
        frame = stack.frame if stack else None
        if frame is None or frame.file != self.script:
            return frame
        # Not from the file that is run, which may be another by now.
        source = str(self.program.source)
        return replace(frame, source=linecache.getline(source, frame.line).strip())

    def withdrawn(self, time: float) -> Exit:
        """Note that it was ended before it was started."""
        self.state = TaskState.ENDED
        number = int(signal.SIGKILL)
        self.exit = Exit(str(self.task), self.attempt, None, number, time, ended=True)
        return self.exit

    def failed(self, error: str, time: float, reason: str | None = None) -> Exit:
        """Note that it could not be started."""
        self.state = TaskState.ENDED
        lost = reason == AGENT_LOST
        self.exit = Exit(str(self.task), self.attempt, None, None, time, detail=error, lost=lost)
        return self.exit

    def lost(self, host: str, time: float, why: str | None = None) -> Exit:
        """Note that it is gone, together with its agent; nothing else is known without a reason."""
        self.state = TaskState.ENDED
        if self.pid is not None:
            log = str(self.paths.log)
            self.cut = Finding(Symptom.LOG_CUT, str(self.task), host=self.away, detail=log)
        end = Exit(str(self.task), self.attempt, None, None, time, detail=why, lost=True)
        self.exit = replace(end, away=self.away, host=host if why or not self.away else None)
        return self.exit

    def explained(self, why: str) -> Exit | None:
        """Note that it ended because its machine was taken away."""
        if self.exit is not None:
            self.exit = replace(self.exit, detail=why, lost=True, host=self.away)
        return self.exit

    @property
    def _verbose(self) -> bool:
        """Whether its framework logs its start-up here, is at work, and all its output was read.

        A warm process printed what shows the level before it was forked.
        """
        output = self.output
        shown = output.at_work and output.whole and (self.warm or output.informed)
        return self.logs_start and shown

    def seen(self, stack: Stack | None = None) -> Observation:
        """Return what is observed of it now."""
        return Observation(
            task=str(self.task),
            address=self.address,
            log=self.output.notable,
            phase=self.output.phase,
            verbose=self._verbose,
            over=self._own is not None,
            stack=stack,
        )

    def status(self, address: str, *, importing: Importing | None) -> TaskStatus:
        """Return the task's status."""
        end, phase = self._known_end, self.output.phase
        return TaskStatus(
            state=self.state,
            address=address,
            importing=importing,
            pid=self.pid,
            warm=self.warm,
            phase=phase.name,
            waits=phase.waiting,
            progress=self.output.training.reached,
            cpu=self.usage.get("cpu"),
            memory=self.usage.get("memory"),
            log=str(self.paths.log),
            size=self.output.size,
            rest=self.output.rest,
            finding=end.finding if end else None,
            ours=bool(end and end.ended),
            asks=self.asks,
            raised=self.raised,
        )

    @property
    def _known_end(self) -> Exit | None:
        """How it ended, unless mwmagic ended it after its program was over."""
        let_go = self.exit is None or self.exit.ended
        return self.program_exit if self.program_exit is not None and let_go else self.exit


class TaskOutput:
    """Reads a process's output once, for its end, its start-up and its progress.

    Attributes
    ----------
    size
        How many bytes there were.
    rest
        What its log lacks, if that could not be written to the end.
    spent
        Bytes that were read, and that its agent may not yet send as many of again.
    informed
        Whether there was a notice that only the most verbose level shows.
    at_work
        Whether the framework itself printed something: its native code or Keras's training.
    """

    def __init__(self, guard: Guard) -> None:
        self.training = Training(guard)
        self.size = 0
        self.rest: Rest | None = None
        self.spent = 0
        self.informed = False
        self.at_work = False
        self._gap = False  # whether some of it was never read
        self._guard = guard
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._terminal = Terminal()
        self._phases = Phases()
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._notable: dict[str, None] = {}
        self._older: int | None = None  # how many bytes come that a cell did not print

    @property
    def tail(self) -> str:
        """The last lines, as a terminal shows them."""
        return "\n".join(self._tail)

    @property
    def notable(self) -> str:
        """The first notable lines, whatever their age, and the last lines."""
        return "\n".join([*self._notable, *self._tail])

    @property
    def phase(self) -> Phase:
        """Where the process is in its start-up."""
        return self._phases.phase

    @property
    def whole(self) -> bool:
        """Whether all of it was written and read."""
        return not self._gap and self.rest is None

    def begin_cell(self, start: int) -> None:
        """Keep only lines of a cell, whose output begins there in the log."""
        self._older = max(0, start - self.size)
        self._fed_after("")

    def feed(self, event: Message) -> list[Update]:
        """Take the next output and return the progress that it shows."""
        self._gap |= event["offset"] > self.size
        size, updates = self._fed_after(event["data"])
        self.size = event["offset"] + size
        return updates

    def end(self, event: Message) -> None:
        """Take unfinished text as the last line."""
        self._gap |= event["size"] > self.size or event.get("reason") == LOG_LOST
        self.size = max(self.size, event["size"])
        self._tail.extend(self._guard.call("terminal", [], self._terminal.close))

    def _fed_after(self, data: str) -> tuple[int, list[Update]]:
        """Take output, in which an agent escaped the bytes that are not UTF-8.

        Output that is no cell's is forgotten once a cell's own begins.
        """
        if self._older is None:
            return self._fed(data)
        raw, older = as_bytes(data), self._older
        if len(raw) < older:
            self._older -= len(raw)
            return self._fed(data)
        size, before = self._fed(as_text(raw[:older]))
        self._older, self._terminal = None, Terminal()
        self._tail.clear()
        self._notable.clear()
        rest, updates = self._fed(as_text(raw[older:]))
        return size + rest, before + updates

    def _fed(self, data: str) -> tuple[int, list[Update]]:
        size, text = self._decoded(data)
        self._show(text)
        updates = self.training.printed(text)
        if updates:
            self._phases.train()
        return size, updates

    def on_packet(self, data: str) -> Report | None:
        """Read a packet of its private line; return None if it is not a report."""
        report = self._guard.call("report", None, self.training.on_packet, data)
        if isinstance(report, Update | History):
            self._phases.train()
            self.at_work |= isinstance(report, History) or report.kind != "report"
        return report

    def _decoded(self, data: str) -> tuple[int, str]:
        """Return how many bytes were escaped in a text, and what they say."""
        if data.isascii() and not self._decoder.getstate()[0]:
            return len(data), data
        raw = as_bytes(data)
        return len(raw), self._decoder.decode(raw)

    def _show(self, text: str) -> None:
        lines = self._guard.call("terminal", None, self._terminal.write, text)
        if lines is None:
            self._terminal = Terminal()
            return
        self._tail.extend(lines)
        for line in lines:
            self._guard.call("start-up", None, self._start_up, line)
            self._guard.call("native notices", None, self._keep, line)

    def _start_up(self, line: str) -> None:
        self._phases.feed(line)
        notice = None if self.informed else NATIVE.match(line)
        if notice is not None:
            self.at_work = True
            self.informed = "I" in notice.group(1, 2)

    def _keep(self, line: str) -> None:
        if len(self._notable) < NOTABLE_LINES and is_notable(line):
            self._notable[line] = None
