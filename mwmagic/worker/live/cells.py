"""Runs cells in the worker's ``__main__``, one after the other, as its supervisor sends them.

Each packet on the worker's line is a JSON object. An incoming one has ``do``: ``cell`` with its
number, its ``name`` and ``source``; ``interrupt`` with a cell's number; ``reply`` to a question;
``abort`` and ``meet``, which free the cell from a collective, and let it make a strategy;
``rejoin``, ``compare`` and ``align`` after some task's error, as `mwmagic.cells` says; and
``look`` at what a ``text`` of names means. A look is answered between cells, on the thread that
runs them: what it asks of an object must neither meet a cell's code in the middle, nor keep this
process from hearing an interrupt.
An outgoing one has ``live``: ``ready``; ``ask`` with the cell and the prompt of a question, and
whether a debugger asks; ``show`` with what is displayed; ``arrived`` where a cell waits to make a
strategy; ``bound`` if it cannot be freed; ``rejoined``, ``compared``, ``aligned`` or ``unable``;
``answer`` with the number of the cell and either what its last expression is worth, or what it
raised; ``looked`` with what was found.
"""

from __future__ import annotations

import ast
import asyncio
import bdb
import builtins
import ctypes
import functools
import inspect
import itertools
import json
import linecache
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from mwmagic.hooks import after_import
from mwmagic.model import variables
from mwmagic.model.live import CELL_BYTES, FREED, PROGRAM_CELL
from mwmagic.model.ownership import is_ours
from mwmagic.recovery.task import collectives, state
from mwmagic.recovery.task.collectives import CollectiveEnded, Collectives
from mwmagic.worker.exit import like_module, set_last, summary
from mwmagic.worker.line import descriptor, save_file
from mwmagic.worker.runtime import outlast_sleep

from .names import bundle, completions, described, figures

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, ModuleType, TracebackType

__all__ = ["ask", "place", "serve", "stay"]

RAISED_CHARACTERS = 4_000
"""The most of an exception's text that an answer holds."""

WAIT_SECONDS = 1.0
"""How long SIGTERM may go unnoticed between two cells."""

KIND_CHARACTERS = 200
"""The most of the name of its type."""

TRACE_CHARACTERS = 20_000
"""The most of a traceback that an answer holds, of its end."""

INSIST_SECONDS = 2.0
"""How long after a cell was freed, and has not ended, an exception is raised in it again."""

_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def serve() -> None:
    """Run cells until the other end of the line is closed."""
    names = vars(sys.modules["__main__"])
    names.pop("serve", None)
    names.pop("__file__", None)  # which children of `multiprocessing` would run, and serve again
    outlast_sleep()
    loop = _loop()
    loop.run()
    if loop.terminated:
        raise SystemExit(variables.TERMINATED_CODE)


def ask(prompt: object = "", /) -> str:
    """Return a line that the user types in the notebook, as `input` does."""
    return _loop().ask(prompt)


def stay(end: dict[str, Any]) -> None:
    """Report how the program ended, then run cells, which find its variables."""
    _loop().run({"live": "answer", "cell": PROGRAM_CELL, **end})


def place() -> tuple[str, str]:
    """Return this task's name, and the folder of its log."""
    return _loop().place


@cache
def _loop() -> _Loop:
    number = descriptor()
    if number is None:
        raise RuntimeError("live cells need the line to a supervisor; `%%mw_live` starts them")
    line = socket.socket(fileno=os.dup(number))
    line.settimeout(None)  # whatever a program set as the default
    return _Loop(line)


def _tame(pdb: ModuleType) -> None:
    """Have Ctrl-C interrupt what runs after a debugger's ``continue``, not call it again."""

    def sigint_handler(_debugger: object, _number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    pdb.Pdb.sigint_handler = sigint_handler


def _draw_without_windows(matplotlib: ModuleType) -> None:
    """Have Matplotlib draw for the notebook, unless the user has named a backend.

    Its variable would say so too, but a warm process may have read that.
    """
    if "MPLBACKEND" not in os.environ and hasattr(matplotlib, "use"):
        matplotlib.use("agg")


class _Loop:
    """Runs cells on the main thread, where frameworks expect code.

    Another thread reads the line, so that what concerns a running cell is taken while it runs.
    It is `terminated` if SIGTERM ended it, between two cells.
    """

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        # Cells may change the environment.
        report = os.environ.get(variables.FAILURE_REPORT, "")
        self.place = os.environ.get(variables.TASK, ""), os.path.dirname(report)  # noqa: PTH120
        self._packets = Packets(line, report)
        self._orders: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._running = False
        self._cell = PROGRAM_CELL  # the latest that has begun
        self._cancelled = 0  # the latest that was interrupted before it began
        self._deciding = threading.Lock()
        self._replies: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._input_lock = threading.Lock()
        self._listening = False
        self._events: asyncio.AbstractEventLoop | None = None
        self._collectives = Collectives(self._meet)
        self._meeting: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.terminated = False
        self._process = os.getpid()
        os.register_at_fork(after_in_child=line.close)
        after_import("pdb", _tame)

    @property
    def _names(self) -> dict[str, Any]:
        return vars(sys.modules["__main__"])

    def run(self, end: dict[str, Any] | None = None) -> None:
        """Run cells until the line ends; first tell the end of a program, if one ran."""
        builtins.input = self.ask  # which `breakpoint` uses too
        vars(builtins)["display"] = self._display  # as in IPython
        after_import("matplotlib", _draw_without_windows)
        after_import("matplotlib.pyplot", self._show_figures)
        self._collectives.install()
        self._listen()
        if end is not None:
            self._say(end)
        self._await_sigterm()
        self._say({"live": "ready"})
        while (order := self._next_order()) is not None:
            if order["do"] == "look":
                self._say({"live": "looked", "cell": 0, **self._looked(order)})
                continue
            if order["do"] != "cell":
                with self._meeting_sigterm():
                    recovered = _recovered(order)
                self._say({**recovered, "cell": order["cell"]})
                continue
            with self._meeting_sigterm():
                answer = self._settled(order)
                for stream in (sys.stdout, sys.stderr):
                    with suppress(BaseException):  # the user's code may have closed or replaced it
                        stream.flush()
            self._say({"live": "answer", "cell": order["cell"], **answer})

    def _next_order(self) -> dict[str, Any] | None:
        """Return what to do next, or None at the end of the line or after SIGTERM."""
        # CPython calls a handler on the main thread, between two bytecodes. A signal that comes
        # after the last of them, but before the wait has begun, does not end the wait, nor does
        # one that the kernel gave to another thread: so no wait is long.
        while not self.terminated:
            with suppress(queue.Empty):
                return self._orders.get(timeout=WAIT_SECONDS)
        return None

    def _await_sigterm(self) -> None:
        """Have SIGTERM end the loop, and with it the interpreter, unless the user handles it.

        The signal's own action would end the process at once, and lose what files that are open
        between two cells have not written.
        """
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminate)

    @contextmanager
    def _meeting_sigterm(self) -> Iterator[None]:
        """Have a cell meet SIGTERM as a program does.

        A handler of Python's would wait until a collective that hangs returns.
        """
        if signal.getsignal(signal.SIGTERM) == self._terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            yield
        finally:
            self._await_sigterm()

    def _terminate(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child that a thread forked between two cells
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.terminated = True
        self._orders.put(None)

    def _looked(self, order: dict[str, Any]) -> dict[str, Any]:
        """Return what names mean, or how the last of them continues."""
        look = completions if order["wanted"] == "names" else described
        found = None
        with suppress(Exception):  # the user's objects may raise anything
            found = look(order["text"], self._names)
        return {"look": order["look"], "found": found}

    def _listen(self) -> None:
        """Begin to read the line, unless that has begun."""
        with self._deciding:
            begun, self._listening = self._listening, True
        if not begun:
            threading.Thread(target=self._read, name="mwmagic-live", daemon=True).start()

    def _read(self) -> None:
        """Take what the supervisor sends; the end of the line is that of the loop."""
        while packet := self._received():
            self._ordered(json.loads(packet))
        self._orders.put(None)
        self._replies.put(None)

    def _received(self) -> bytes:
        """Return the next packet; at the end of the line, or after an error, an empty one."""
        with suppress(OSError):
            return self._line.recv(CELL_BYTES)
        return b""

    def ask(self, prompt: object = "", /) -> str:
        """Return a line that the user types in the notebook, as `input` does."""
        debugger = _debugs(sys._getframe(1))  # noqa: SLF001 - of `input`, or of `ask`
        self._listen()
        try:
            with self._input_lock:  # of one thread at a time
                text = self._answered(str(prompt)[:RAISED_CHARACTERS], debugger=debugger)
        except KeyboardInterrupt:
            if debugger:  # which would take it for a command of its own, and ask again
                raise bdb.BdbQuit from None
            raise
        if text is None:
            raise EOFError("EOF when reading a line")  # as without a keyboard
        return text

    def _answered(self, prompt: str, *, debugger: bool) -> str | None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the user's code may have closed or replaced it
                stream.flush()
        while not self._replies.empty():  # to a question that was interrupted
            self._replies.get()
        self._say({"live": "ask", "cell": self._cell, "prompt": prompt, "debugger": debugger})
        return self._replies.get()

    def _display(self, *values: object) -> None:
        """Show values in the notebook, as IPython's `display` does."""
        for value in values:
            self._say({"live": "show", "cell": self._cell, "value": bundle(value, none=True)})

    def _show_figures(self, pyplot: ModuleType) -> None:
        """Have `plt.show` display figures in the notebook, unless a backend has windows."""
        original = pyplot.show

        @functools.wraps(original)
        def show(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Matplotlib's
            if pyplot.get_backend().lower() == "agg":
                self._display(*figures())
            return original(*args, **kwargs)

        vars(pyplot).update(show=show)

    def _interrupt(self, cell: int) -> None:
        """Interrupt a cell, also one that has not begun."""
        with self._deciding:
            if cell > self._cell:
                self._cancelled = cell
            elif cell == self._cell:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _begin(self, cell: int) -> None:
        with self._deciding:
            self._running, self._cell = True, cell
            if cell == self._cancelled:
                raise KeyboardInterrupt
        state.settle()

    # Collectives.

    def _meet(self) -> None:
        """Wait until all tasks are about to make a strategy; where one is not, raise."""
        while not self._meeting.empty():
            self._meeting.get()
        self._say({"live": "arrived", "cell": self._cell})
        if self._meeting.get() == "abort":
            raise CollectiveEnded(FREED)

    def _free(self, cell: int) -> None:
        """Free a cell from the collective in which it waits, while the main thread is in there."""
        with self._deciding:
            if cell != self._cell or not self._running:
                return
        self._meeting.put("abort")
        obstacle = self._collectives.free()
        if obstacle is not None:
            self._say({"live": "bound", "cell": cell, "why": obstacle})
        self._insist_later(cell)

    def _insist_later(self, cell: int) -> None:
        timer = threading.Timer(INSIST_SECONDS, self._insist, (cell,))
        timer.daemon = True
        timer.start()

    def _insist(self, cell: int) -> None:
        """Raise in a cell that has been freed, and has taken no notice, until it ends."""
        with self._deciding:
            if cell != self._cell or not self._running:
                return
            if self._collectives.ended:
                _raise_in_main()
        self._insist_later(cell)

    def _end(self) -> None:
        """End a cell: nothing is raised in it from now on."""
        while not self._ended():
            pass

    def _ended(self) -> bool:
        """End a cell; return False if something comes meanwhile that was sent to it."""
        try:
            with self._deciding:
                self._running = False
            for _ in range(2):  # what was raised in this thread comes here at the latest
                pass
        except (CollectiveEnded, KeyboardInterrupt):
            return False
        return True

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        if self._running:
            raise KeyboardInterrupt

    def _ordered(self, order: dict[str, Any]) -> None:
        if order["do"] == "interrupt":
            self._interrupt(order["cell"])
        elif order["do"] == "reply":
            self._replies.put(order["text"])
        elif order["do"] == "abort":
            self._free(order["cell"])
        elif order["do"] == "meet":
            self._meeting.put("meet")
        else:
            self._orders.put(order)

    def _say(self, message: dict[str, Any]) -> None:
        if not self._packets.send(message):  # nobody is there any more, so this process may end
            self._orders.put(None)

    # A cell.

    def _settled(self, order: dict[str, Any]) -> dict[str, Any]:
        """Run a cell; return its value or what it raised, whatever comes meanwhile."""
        began = time.monotonic()
        try:
            answer = self._answer(order)
        except BaseException as error:  # noqa: BLE001 - a second interrupt, while one is reported
            self._end()
            answer = self._failed(error, order)
        return {**answer, "seconds": time.monotonic() - began}

    def _answer(self, order: dict[str, Any]) -> dict[str, Any]:
        try:
            try:
                if signal.getsignal(signal.SIGINT) != self._interrupted:  # the last cell took it
                    signal.signal(signal.SIGINT, self._interrupted)
                self._begin(order["cell"])
                value = self._executed(order["source"], order["name"])
                self._display(*figures())
                return {"ok": True, "value": bundle(value)}
            finally:
                self._end()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the interpreter lives
            self._end()
            return self._failed(error, order)

    def _failed(self, error: BaseException, order: dict[str, Any]) -> dict[str, Any]:
        freed = self._collectives.is_freed(error)  # perhaps by another task's end of it
        return {"ok": False, "freed": freed, "raised": _raised(error, order["name"])}

    def _executed(self, source: str, name: str) -> Any:  # noqa: ANN401 - the user's
        """Run a cell, and return the value of its last expression unless a semicolon follows."""
        for known in (name, os.path.abspath(name)):  # noqa: PTH100 - the second is what pdb looks for
            linecache.cache[known] = (len(source), None, source.splitlines(keepends=True), known)
        tree = compile(source, name, "exec", ast.PyCF_ONLY_AST | _AWAIT, dont_inherit=True)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        if tree.body:
            self._evaluated(compile(tree, name, "exec", _AWAIT, dont_inherit=True))
        if last is None:
            return None
        shown = compile(ast.Expression(last.value), name, "eval", _AWAIT, dont_inherit=True)
        value = self._evaluated(shown)
        return None if source.rstrip().endswith(";") else value

    def _evaluated(self, code: Any) -> Any:  # noqa: ANN401 - the user's
        value = eval(code, self._names)  # noqa: S307 - running it is the point
        if code.co_flags & inspect.CO_COROUTINE:
            self._events = self._events or asyncio.new_event_loop()
            return self._events.run_until_complete(value)
        return value


def _raise_in_main() -> None:
    """Have the main thread raise `CollectiveEnded` as soon as it runs Python code.

    It is never taken back: for that Python 3.11 sets a mark that only an exception removes, and
    code that is traced does not get past it.
    """
    main = ctypes.c_ulong(threading.main_thread().ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(CollectiveEnded))


def _recovered(order: dict[str, Any]) -> dict[str, Any]:
    """Carry out an order of a recovery, and return what to say."""
    try:
        if order["do"] == "rejoin":
            joined = collectives.rejoin(order["epoch"])
            return {"live": "rejoined", "standing": state.standing() if joined else None}
        if order["do"] == "compare":
            return {"live": "compared", **state.compare(order["done"])}
        state.align(order["own"], order["done"], order["names"], order["averaged"])
    except BaseException as error:  # noqa: BLE001 - whatever it is, the interpreter lives
        return {"live": "unable", "why": f"{type(error).__name__}: {error}"[:RAISED_CHARACTERS]}
    return {"live": "aligned"}


def _debugs(frame: FrameType | None) -> bool:
    """Return whether a question is a debugger's, which asks through the module `cmd`."""
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") == "cmd"


def _raised(error: BaseException, name: str) -> dict[str, Any]:
    """Return what a cell raised, and at which of its lines."""
    trace = _theirs(error.__traceback__)
    if not isinstance(error, bdb.BdbQuit):  # a debugger that was left is not what to debug
        set_last(error, trace)
    if isinstance(error, SyntaxError) and error.filename == name:
        line, trace = error.lineno, None
    else:
        lines = [one.lineno for one in traceback.extract_tb(trace) if one.filename == name]
        line = lines[-1] if lines else None
    try:
        message = f"{summary(error)}{like_module(error)}"
        text = _printed(error, trace)
    except BaseException:  # noqa: BLE001 - the user's own `__str__` may raise anything
        message = text = "<its text is not available>"
    kind = type(error).__name__[:KIND_CHARACTERS]
    cut = {"message": message[:RAISED_CHARACTERS], "trace": text[-TRACE_CHARACTERS:]}
    return {"type": kind, "line": line, "left": isinstance(error, bdb.BdbQuit), **cut}


def _printed(error: BaseException, trace: TracebackType | None) -> str:
    """Return the traceback as Python prints it, without what mwmagic does in between."""
    told = traceback.TracebackException(type(error), error, trace)
    left, seen = [told], set[int]()
    while left:
        one = left.pop()
        if id(one) not in seen:
            seen.add(id(one))
            own = [frame for frame in one.stack if not is_ours(frame.filename)]
            one.stack = traceback.StackSummary.from_list(own)
            left += [other for other in (one.__cause__, one.__context__) if other is not None]
    return "".join(told.format())


def _theirs(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without this file's frames at its top."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


LONGEST_BYTES = 2**15
"""The longest message that is sent as a packet; a longer one goes to a file."""

SHORT_CHARACTERS = 1_000
"""The most of a text in a message that cannot be sent whole; JSON takes up to 12 bytes for each."""


class Packets:
    """Sends messages, each a JSON object."""

    def __init__(self, line: socket.socket, report: str) -> None:
        self._line = line
        self._beside = report.removesuffix(".json")
        self._numbers = itertools.count(1)

    def send(self, message: dict[str, Any]) -> bool:
        """Send a message, or in short what it says; return whether anybody is there."""
        try:
            packet = json.dumps(message, allow_nan=False).encode()
            if len(packet) > LONGEST_BYTES:
                packet = self._left(message, packet)
        except Exception as error:  # noqa: BLE001 - a full disk, or a value that JSON cannot hold
            packet = json.dumps(_short(message, error)).encode()
        try:
            self._line.sendall(packet)
        except OSError:  # the supervisor is gone, or the user's code closed the line
            return False
        return True

    def _left(self, message: dict[str, Any], packet: bytes) -> bytes:
        """Leave a message in a file, and return the packet that names it."""
        if not self._beside:
            raise FileNotFoundError("its log is not known")
        path = f"{self._beside}.said-{next(self._numbers)}.json"
        save_file(path, packet)
        return json.dumps({"live": message["live"], "cell": message["cell"], "file": path}).encode()


def _short(message: dict[str, Any], error: Exception) -> dict[str, Any]:
    """Return what a message says without what cannot be sent, and why not."""
    why = f"{type(error).__name__}: {error}"[:SHORT_CHARACTERS]
    if message["live"] == "compared":
        return {"live": "unable", "cell": message["cell"], "why": why}
    kept = ("live", "cell", "ok", "freed", "seconds", "look", "code", "signal", "debugger")
    short = {name: message[name] for name in kept if name in message}
    if message.get("value"):
        text = message["value"]["text/plain"][:SHORT_CHARACTERS]
        short["value"] = {"text/plain": f"{text} … (the rest could not be sent: {why})"}
    if message.get("raised"):
        raised = message["raised"]
        cut = {name: raised[name][-SHORT_CHARACTERS:] for name in ("message", "trace")}
        short["raised"] = {**raised, **cut}
    if "prompt" in message:
        short["prompt"] = message["prompt"][:SHORT_CHARACTERS]
    return {**short, "found": None, "report": None}
