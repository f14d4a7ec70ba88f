"""What the user's code raised: reported to the supervisor, and shown as Python shows it."""

from __future__ import annotations

import sys
import time

from mwmagic.model.ownership import is_ours, is_users

from .exit import exit_code, set_last
from .line import replace_file
from .preparation import announce, standard

TYPE_CHECKING = False  # `standard` imports Python's own modules
if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["MEMBERS_LIMIT", "report", "show", "summary"]

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
        return _place(error.filename, error.lineno, "<module>", error.text)
    frames = standard("traceback").extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_users(frame.filename, script)]
    return _place(own[-1].filename, own[-1].lineno, own[-1].name, own[-1].line) if own else None


def _place(
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


def report(error: BaseException, script: str, path: str | None) -> dict[str, object]:
    """Return what was raised and where, after reporting it to the supervisor in a file, if any."""
    moment = time.monotonic()
    chain = _origins(error)
    origins = [{**_told(one, ORIGIN_CHARACTERS), "handled": handled} for one, handled in chain]
    told = {**_told(error, MESSAGE_CHARACTERS), "time": moment, "origins": origins}
    # At once, since this process may be killed while it looks for the places.
    _write(path, told)
    for origin, (one, _) in zip(origins, chain, strict=True):
        origin["where"] = _where(one, script)
    told["where"] = _where(error, script)
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


def show(error: BaseException) -> int:
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
