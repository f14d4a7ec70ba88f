"""How a worker ends: what the program raised is reported and shown, and the interpreter finalizes.

Threads are joined, exit handlers run, modules are torn down, and C's exit handlers run. Before
that the supervisor learns how the program ended, so that a failure reaches the other tasks at
once. A raw thread reports what the end waits for, and cuts it off after a failure.
"""

from __future__ import annotations

import _thread
import atexit
import gc
import io
import os
import sys
import time

from mwmagic.model import variables
from mwmagic.model.ownership import is_ours, is_users

from .line import descriptor, replace_file
from .preparation import announce, standard

TYPE_CHECKING = False  # a worker starts without `typing`
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType, TracebackType
    from typing import Any

__all__ = [
    "MEMBERS_LIMIT",
    "exit_code",
    "finish_files",
    "flush",
    "is_success",
    "leave",
    "like_module",
    "report_failure",
    "send_reports",
    "set_last",
    "show_failure",
    "summary",
]

MESSAGE_CHARACTERS = 6000
"""The most of an exception's text that the report holds."""

ORIGIN_LIMIT = 3
"""Maximum number of chained exceptions in a report."""

ORIGIN_CHARACTERS = 2000
"""Maximum length of each one's message."""

RAISED_FILES_LIMIT = 8
"""How many of the files through which an exception came a report names: the innermost."""

FILE_CHARACTERS = 300
"""The most characters of a file's name in a report: the last."""


def _where(error: BaseException, script: str) -> dict[str, object] | None:
    """Return the innermost line of the user's own code."""
    if isinstance(error, SyntaxError) and is_users(error.filename or "", script):
        return _code_place(error.filename, error.lineno, "<module>", error.text)
    frames = standard("traceback").extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_users(frame.filename, script)]
    return (
        _code_place(own[-1].filename, own[-1].lineno, own[-1].name, own[-1].line) if own else None
    )


def _code_place(
    file: str | None, line: int | None, function: str, source: str | None
) -> dict[str, object]:
    text = (source or "").strip()[:500]
    return {"file": file, "line": line or 0, "function": function, "source": text}


def _origins(error: BaseException) -> list[tuple[BaseException, bool]]:
    """Return what an error came from, the nearest first, and whether it was being handled."""
    found: list[tuple[BaseException, bool]] = []
    seen = {id(error)}
    while len(found) < ORIGIN_LIMIT:
        inner = _members(error)
        nearest = [(one, False) for one in inner] if inner else [_origin(error)]
        new = [(one, handled) for one, handled in nearest if one and id(one) not in seen]
        if not new:
            break
        seen.update(id(one) for one, _ in new)
        found += new
        error = new[0][0]
    return found[:ORIGIN_LIMIT]


def _origin(error: BaseException) -> tuple[BaseException | None, bool]:
    """Return what an error was raised from, or else while handling."""
    if error.__cause__ is not None or error.__suppress_context__:
        return error.__cause__, False
    return error.__context__, True


def _message(error: BaseException, characters: int) -> str:
    """Return an error's text; TensorFlow names the cause at the end of a long one."""
    try:
        text, half = "\n".join([_grouped(error, str(error)), *_notes_of(error)]), characters // 2
        return text if len(text) <= characters else f"{text[:half]}\n...\n{text[-half:]}"
    except Exception:  # noqa: BLE001 - the user's own `__str__` may raise anything
        return "<its text is not available>"


CLOSE_RATIO = 0.8
"""How alike two modules' names must be, from 0 to 1, for one to be a misspelling of the other."""


def like_module(error: BaseException) -> str:
    """Say which module that is there has nearly the name of a missing one, as Python 3.15 does."""
    if not isinstance(error, ModuleNotFoundError) or not isinstance(error.name, str):
        return ""
    package, _, name = error.name.rpartition(".")
    try:
        folders = list(sys.modules[package].__path__) if package else None
        known = {one.name for one in standard("pkgutil").iter_modules(folders)}
    except Exception:  # noqa: BLE001 - import hooks of the user's may raise anything
        return ""
    if not package:
        known |= {*sys.stdlib_module_names}
    # Of `tensorflow` and `tensorflow_hub` neither is the other misspelled.
    known = {one for one in known if not one.startswith(("_", f"{name}_"))}
    names = {one.lower(): one for one in known if not name.startswith(f"{one}_")}
    found = standard("difflib").get_close_matches(name.lower(), names, 1, CLOSE_RATIO)
    close = ".".join(filter(None, [package, *(names[one] for one in found)]))
    return f". Did you mean: {close!r}?" if found and close != error.name else ""


def _told(error: BaseException, characters: int) -> dict[str, object]:
    text = _message(error, characters)
    return {"type": type(error).__name__, "message": text, "files": _files(error)}


def _files(error: BaseException) -> list[str]:
    """Return the files through which an error came, the innermost last.

    If the process is killed before it has printed the traceback, only these show it.
    """
    files: dict[str, None] = {}
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename[-FILE_CHARACTERS:]
        files.pop(name, None)
        files[name] = None
        trace = trace.tb_next
    return list(files)[-RAISED_FILES_LIMIT:]


def report_failure(error: BaseException, script: str, path: str | None) -> dict[str, object]:
    """Return what was raised and where, after reporting it to the supervisor in a file, if any."""
    moment = time.monotonic()
    chain = _origins(error)
    origins = [{**_told(one, ORIGIN_CHARACTERS), "handled": handled} for one, handled in chain]
    told = {**_told(error, MESSAGE_CHARACTERS), "time": moment, "origins": origins}
    # At once, since this process may be killed while it looks for the places.
    _write(path, told)
    for known, one in zip([told, *origins], [error, *(one for one, _ in chain)], strict=True):
        known["where"] = _where(one, script)
        known["message"] = f"{known['message']}{like_module(one)}"
    _write(path, told)
    return told


def _write(path: str | None, told: dict[str, object]) -> None:
    """Write the report as a whole, or not at all."""
    if not path:
        return
    # Without it the exit code and the log remain; the record may be gone.
    with standard("contextlib").suppress(OSError):
        # Escapes would make it six times as long.
        replace_file(path, standard("json").dumps(told, ensure_ascii=False))


def _without_own(error: BaseException) -> TracebackType | None:
    """Return an error's traceback without this package's own frames at its top."""
    trace = error.__traceback__
    while trace is not None and is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def set_last(error: BaseException, trace: TracebackType | None) -> None:
    """Put an error, with this traceback, where debuggers look for the last one."""
    BaseException.with_traceback(error, trace)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = error


def show_failure(error: BaseException) -> int:
    """Show what was raised as the interpreter does, and return the exit code."""
    trace, traceback = _without_own(error), standard("traceback")
    set_last(error, trace)
    if sys.excepthook is sys.__excepthook__:
        # The interpreter's own would read the lines from the file as it is now.
        traceback.print_exception(type(error), error, trace)
        return 1
    try:
        sys.excepthook(type(error), error, trace)
    except SystemExit as request:
        return exit_code(request)
    except BaseException as second:  # noqa: BLE001 - the user's hook may raise anything
        announce("Error in sys.excepthook:")
        traceback.print_exception(type(second), second, _without_own(second))
        announce("\nOriginal exception was:")
        traceback.print_exception(type(error), error, trace)
    return 1


MEMBERS_LIMIT = 5
"""Maximum number of a group's exceptions in its message."""


def _members(error: BaseException) -> list[BaseException]:
    """Return the exceptions in a group, those of groups in it instead of these; else none."""
    left, found = [error], list[BaseException]()
    while left and len(found) <= MEMBERS_LIMIT:
        one = left.pop(0)
        inner = getattr(one, "exceptions", None)  # which `exceptiongroup` gives Python 3.10
        if isinstance(inner, tuple) and inner and all(isinstance(e, BaseException) for e in inner):
            left[:0] = inner
        elif one is not error:
            found.append(one)
    return found


def _notes_of(error: BaseException) -> list[str]:
    """Return what `add_note` added to an error."""
    notes = getattr(error, "__notes__", ())
    return [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []


def summary(error: BaseException) -> str:
    """Return an error's text in a line, with its notes and, of a group, its exceptions."""
    text = str(error.msg if isinstance(error, SyntaxError) else error)
    first = _grouped(error, text.strip().partition("\n")[0])
    notes = "; ".join(note.strip().partition("\n")[0] for note in _notes_of(error))
    return f"{first} ({notes})" if notes else first


def _grouped(error: BaseException, text: str) -> str:
    """Return a group's text with its exceptions; another error's as it is."""
    inner = _members(error)
    told = [f"{type(one).__name__}: {summary(one)}".strip(": ") for one in inner[:MEMBERS_LIMIT]]
    more = ["..."] if len(inner) > MEMBERS_LIMIT else []
    return f"{text}: {'; '.join(told + more)}" if told else text


WAIT_NOTICE_SECONDS = 5.0
"""How long after the program's end a line says what the process waits for."""

SEND_SECONDS = 0.5
"""Time limit for telling the supervisor how the program ended."""

LAST_FLUSH_SECONDS = 0.5
"""Time limit for flushing files when the end is cut off; a thread may hold one of them."""

_FILE: type = io.IOBase.__mro__[1]
"""The class that all files derive from. To ask `io.IOBase`, which is abstract, takes far longer."""

FREE_SECONDS = 0.5
"""Time limit for TensorFlow to free iterators, for which it may take a minute."""

_CODES: list[int] = []
"""The program's exit code, once it is over."""


def exit_code(request: SystemExit) -> int:
    """Return the code that ``sys.exit`` asked for, as the interpreter reads it."""
    if request.code is None:
        return 0
    if isinstance(request.code, int):
        return request.code & 0xFF
    announce(str(request.code))
    return 1


def flush() -> None:
    """Flush open files, as the interpreter does when it finalizes them."""
    files = [one for one in gc.get_objects() if issubclass(type(one), _FILE)]
    buffers = (io.BufferedWriter, io.BufferedRandom)
    for file in [*sorted(files, key=lambda one: isinstance(one, buffers)), sys.stdout, sys.stderr]:
        try:  # noqa: SIM105 - the user's folder may hold another `contextlib`
            file.flush()
        except Exception:  # noqa: BLE001, PERF203, S110 - it is closed, half made, or the user's
            pass


def _flush_texts() -> None:
    """Flush open text files.

    If a text file of a module's and the file below it, to which it writes the rest, become garbage
    together, CPython may close the lower one first: then that rest is lost.
    """
    for file in gc.get_objects():
        if type(file) is io.TextIOWrapper:
            try:
                if type(file.buffer) in (io.BufferedWriter, io.BufferedRandom):
                    file.flush()
            except Exception:  # noqa: BLE001, S110 - it is closed, half made, or detached
                pass


def send_reports() -> None:
    """Send the last reports, if there are any."""
    reports = sys.modules.get("mwmagic.worker.reports")
    if reports is not None:
        reports.farewell()


def is_success(code: object) -> bool:
    """Return whether an exit code means success; a task that asks to be resumed has saved."""
    return code in (None, 0, variables.RESUME_CODE)


def finish_files(process: int) -> None:
    """Have the last exit handler finish what the interpreter would not.

    Call it before the user's code runs: handlers run in the reverse order.
    """
    atexit.register(_finish, process)


def _finish(process: int) -> None:
    # The interpreter joins threads, calls the exit handlers in reverse order, and then finalizes:
    # it empties modules and frees objects, while daemon threads and those of C++ still run. In that
    # phase TensorFlow may abort a process whose program succeeded: a thread that returns to
    # Python from it is made to exit, which C++ turns into "FATAL: exception not rethrown". So
    # all that could happen then happens here, in the handler that runs last. If something is
    # still being freed after that, the process ends without finalizing.
    _flush_texts()
    send_reports()
    if os.getpid() != process or not _CODES or "tensorflow" not in sys.modules:
        return
    from . import runtime

    [code] = _CODES
    if is_success(code):
        runtime.take_leave()
    if not runtime.settled(FREE_SECONDS):  # or the interpreter's own end could abort
        flush()
        os._exit(_status(code))


def _status(code: int) -> int:
    """Return the exit code of a process that no signal ends; see `leave`."""
    return code if code >= 0 else 128 - code


def _forsake_others() -> None:
    """Drop JAX's exit handler, which would wait for processes that are ended meanwhile."""
    clean_up = getattr(sys.modules.get("jax._src.api"), "clean_up", None)
    if clean_up is not None:
        atexit.unregister(clean_up)


def leave(code: int, process: int, report: Mapping[str, Any] | None = None) -> None:
    """Let the interpreter end this process; call it last in the main module."""
    well = is_success(code)
    if os.getpid() == process:
        _CODES.append(code)
        send_reports()
        _report_end(code, report)
        _thread.start_new_thread(_watch, (code, _thread.get_ident(), well))
    if not well:
        _forsake_others()
    if code < 0:
        _silence()
        raise KeyboardInterrupt
    if code:
        raise SystemExit(code)


def _silence() -> None:
    """Have the interpreter not print again what was shown, and keep what was raised last."""
    kept = [(sys.last_value, sys.last_traceback)]

    def hook(*_: object) -> None:
        # It must not outlive this: it would keep all that the traceback holds.
        error, trace = kept.pop()
        if error is not None:
            set_last(error, trace)
        sys.excepthook = sys.__excepthook__

    sys.excepthook = hook


def _report_end(code: int, report: Mapping[str, Any] | None) -> None:
    """Report to the supervisor how the program ended; the process may take a while to end."""
    number = descriptor()
    if number is None or variables.KEEP in os.environ:
        return
    how = f'"code": {code}, "signal": null' if code >= 0 else f'"code": null, "signal": {-code}'
    told = "null" if report is None else standard("json").dumps(report, ensure_ascii=False)
    packet = f'{variables.OVER}{how}, "report": {told}}}'.encode("utf-8", "backslashreplace")
    if len(packet) > variables.OVER_BYTES:  # it is in the file too
        packet = f'{variables.OVER}{how}, "report": null}}'.encode()
    try:
        os.set_blocking(number, False)
        _send(number, packet)
    except OSError:  # the other end is gone, or user code closed the descriptor
        pass


def _send(number: int, packet: bytes) -> None:
    """Send a packet as soon as there is room; give up after a while."""
    deadline = time.monotonic() + SEND_SECONDS
    while not _sent(number, packet) and time.monotonic() < deadline:
        time.sleep(0.005)


def _sent(number: int, packet: bytes) -> bool:
    try:
        os.write(number, packet)
    except BlockingIOError:
        return False
    return True


# What the end waits for.


def _watch(code: int, main: int, well: bool) -> None:
    """Say what the end waits for; after a failure, cut it off."""
    time.sleep(WAIT_NOTICE_SECONDS)
    limit = "" if well else f", {variables.FINISH_SECONDS:g} s after it failed at most"
    _say(f"the program is over, and its process waits for {_awaited(main)}{limit}")
    if well:
        return
    time.sleep(max(0.0, variables.FINISH_SECONDS - WAIT_NOTICE_SECONDS))
    _say(
        f"{_awaited(main)} was still running {variables.FINISH_SECONDS:g} s after the program "
        "failed, and is cut off"
    )
    _thread.start_new_thread(flush, ())
    time.sleep(LAST_FLUSH_SECONDS)
    os._exit(_status(code))


def _say(text: str) -> None:
    try:  # noqa: SIM105 - as above
        os.write(2, f"{variables.ANNOUNCED}{text}\n".encode("utf-8", "backslashreplace"))
    except OSError:  # user code closed it
        pass


def _awaited(main: int) -> str:
    """Name what the main thread waits for while the interpreter ends."""
    frames = sys._current_frames()  # noqa: SLF001 - a module of Python's own
    del frames[_thread.get_ident()]  # it would keep them all alive
    outer = frames.get(main)
    if outer is None:
        return "an exit handler"
    while outer.f_back is not None:
        outer = outer.f_back
    threading = sys.modules.get("threading")
    if threading is None or outer.f_globals is not vars(threading):
        return f"the exit handler {_place(outer)}"
    threads = [one for one in threading.enumerate() if not one.daemon and one.ident != main]
    names = [f"the thread {one.name}{_running(frames.get(one.ident))}" for one in threads]
    return " and ".join(names[:3]) or "a thread"


def _running(frame: FrameType | None) -> str:
    """Return the innermost place of a thread outside of Python's own modules, if any."""
    folder = os.path.dirname(os.__file__)  # noqa: PTH120 - `pathlib` takes a while to import
    while frame is not None and frame.f_code.co_filename.startswith((folder, "<")):
        frame = frame.f_back
    return "" if frame is None else f", in {_place(frame)},"


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_name} ({os.path.basename(code.co_filename)}, line {frame.f_lineno})"  # noqa: PTH119 - as above
