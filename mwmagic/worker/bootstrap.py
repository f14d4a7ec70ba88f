"""Runs the user's file as ``python main.py`` would, in a process of a gang.

The agent starts it as ``python bootstrap.py SCRIPT [ARG ...]``, or calls `main`
in a process forked from its zygote. What it needs to know beyond that is in
the environment, in the variables of `mwmagic.model.variables`.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import faulthandler
import functools
import gc
import io
import os
import signal
import sys
import time
import types
from importlib.machinery import SourceFileLoader

TYPE_CHECKING = False  # a worker starts without what it may never need
if TYPE_CHECKING:
    from typing import Any

MESSAGE_CHARACTERS = 6000
"""The most of an exception's text that the report holds."""

ORIGIN_LIMIT = 3
"""Maximum number of chained exceptions in a report."""

ORIGIN_CHARACTERS = 2000
"""Maximum length of each one's message."""

LINGER_SECONDS = 5.0
"""Time limit for exit handlers after a failure.

JAX's and TensorFlow's wait for the other processes, which wait for this one.
"""

_FOLDER = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - `pathlib` takes a while to import


def _find_package() -> None:
    """Import the mwmagic that this file belongs to, and let user code find it.

    Another installed version may not fit the supervisor that started this process.
    """
    parent = os.path.dirname(os.path.dirname(_FOLDER))  # noqa: PTH120 - as above
    if "mwmagic" not in sys.modules:
        sys.path.insert(0, parent)
        try:
            import mwmagic  # noqa: F401 - it is to be found later
        finally:
            sys.path.remove(parent)
    if parent not in sys.path:
        sys.path.append(parent)


def _standard(name: str) -> Any:  # noqa: ANN401 - a module
    """Import one of Python's own modules when it is needed; see `mwmagic.worker.standard`."""
    from mwmagic.worker.standard import standard

    return standard(name)


def _enable_stacks() -> None:
    """Dump every thread's stack on a signal; works inside a blocked collective too."""
    from mwmagic.model import variables

    faulthandler.enable()
    path = os.environ.get(variables.STACKS)
    if path:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        faulthandler.register(variables.STACKS_SIGNAL, file=descriptor, all_threads=True)
        _give_way(variables.STACKS_SIGNAL, descriptor)


def _give_way(number: int, descriptor: int) -> None:
    """Close the file of stacks when user code takes its signal.

    The open file marks the handler as ours.
    """
    take, file = signal.signal, os.fstat(descriptor)

    @functools.wraps(take)
    def signal_(signalnum: int, handler: object) -> object:
        import threading

        main = threading.current_thread() is threading.main_thread()  # others may set none
        if signalnum == number and main:
            faulthandler.unregister(number)
            with contextlib.suppress(OSError):  # user code closed it, or has another in its place
                if os.path.samestat(file, os.fstat(descriptor)):
                    os.close(descriptor)
        return take(signalnum, handler)  # type: ignore[arg-type]

    vars(signal).update(signal=signal_)


def preload() -> None:
    """Import what workers use, in a process that they are forked from; install nothing."""
    _find_package()
    from mwmagic import repairs
    from mwmagic.model import variables

    # What `main` and `_run` import, and what `fit` does once there is Keras.
    from mwmagic.worker import preparation, source, watch  # noqa: F401 - for workers

    if os.environ.get(variables.KERAS, "auto") == "auto":
        repairs.look()


def _announce(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _main_module(script: str) -> types.ModuleType:
    """Make the module that user code sees as ``__main__``."""
    module = types.ModuleType("__main__")
    vars(module).update(__file__=script, __cached__=None, __annotations__={})
    vars(module).update(__builtins__=builtins, __loader__=SourceFileLoader("__main__", script))
    sys.modules["__main__"] = module
    return module


# What was raised.


def _where(error: BaseException, script: str) -> dict[str, object] | None:
    """Return the innermost line of the user's own code."""
    from mwmagic.model.ownership import is_users

    if isinstance(error, SyntaxError) and is_users(error.filename or "", script):
        return _place(error.filename, error.lineno, "<module>", error.text)
    frames = _standard("traceback").extract_tb(error.__traceback__)
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
        origin, handled = _origin(error)
        if origin is None or id(origin) in seen:
            break
        found.append((origin, handled))
        seen.add(id(origin))
        error = origin
    return found


def _origin(error: BaseException) -> tuple[BaseException | None, bool]:
    """Return what an error was raised from, or else while handling; of a group, a member."""
    members = getattr(error, "exceptions", None)
    if isinstance(members, tuple) and members and isinstance(members[0], BaseException):
        return members[0], False
    if error.__cause__ is not None or error.__suppress_context__:
        return error.__cause__, False
    return error.__context__, True


def _message(error: BaseException, characters: int) -> str:
    """Return an error's text; TensorFlow names the cause at the end of a long one."""
    try:
        text, half = str(error), characters // 2
        return text if len(text) <= characters else f"{text[:half]}\n...\n{text[-half:]}"
    except Exception:  # noqa: BLE001 - the user's own `__str__` may raise anything
        return "<its text is not available>"


def _told(error: BaseException, characters: int) -> dict[str, object]:
    return {"type": type(error).__name__, "message": _message(error, characters)}


def _report(error: BaseException, script: str, path: str | None) -> dict[str, object]:
    """Return what was raised and where, after reporting it to the supervisor in a file, if any."""
    moment = time.monotonic()
    chain = _origins(error)
    origins = [{**_told(one, ORIGIN_CHARACTERS), "handled": handled} for one, handled in chain]
    report = {**_told(error, MESSAGE_CHARACTERS), "time": moment, "origins": origins}
    # At once, since this process may be killed while it looks for the places.
    _write(path, report)
    for origin, (one, _) in zip(origins, chain, strict=True):
        origin["where"] = _where(one, script)
    report["where"] = _where(error, script)
    _write(path, report)
    return report


def _write(path: str | None, report: dict[str, object]) -> None:
    """Write the report as a whole, or not at all."""
    if not path:
        return
    draft = f"{path}.draft"
    # Without it the exit code and the log remain; the record may be gone.
    with contextlib.suppress(OSError):
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            # Escapes would make it six times as long.
            _standard("json").dump(report, file, ensure_ascii=False)
        os.replace(draft, path)  # noqa: PTH105 - both are strings


def _without_own(error: BaseException) -> types.TracebackType | None:
    """Return an error's traceback without this file's own frames at its top."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _print(error: BaseException) -> int:
    """Show what was raised as the interpreter does, and return the exit code."""
    trace, traceback = _without_own(error), _standard("traceback")
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    if sys.excepthook is sys.__excepthook__:
        # The interpreter's own would read the lines from the file as it is now.
        traceback.print_exception(type(error), error, trace)
        return 1
    try:
        sys.excepthook(type(error), error, trace)
    except SystemExit as request:
        return _exit_code(request)
    except BaseException as second:  # noqa: BLE001 - the user's hook may raise anything
        _announce("Error in sys.excepthook:")
        traceback.print_exception(type(second), second, _without_own(second))
        _announce("\nOriginal exception was:")
        traceback.print_exception(type(error), error, trace)
    return 1


# The end.


def _dismantle(script: str) -> None:
    """Drop the user's modules, so that the objects they hold are finalized.

    TensorFlow's writers, for example, write out their buffers then.
    """
    from mwmagic.model.ownership import is_users

    for name, module in list(sys.modules.items()):
        if name == "__main__" or is_users(getattr(module, "__file__", None) or "", script):
            del sys.modules[name]
    gc.collect()


def _flush() -> None:
    """Flush open files, as the interpreter does when it finalizes them."""
    files = [one for one in gc.get_objects() if issubclass(type(one), io.IOBase)]
    buffers = (io.BufferedWriter, io.BufferedRandom)
    for file in [*sorted(files, key=lambda one: isinstance(one, buffers)), sys.stdout, sys.stderr]:
        # A file may be closed, half made, or of a class of the user's.
        with contextlib.suppress(Exception):
            file.flush()


def _forsake_others() -> None:
    """Drop JAX's exit handler, which would wait for processes that wait for this one."""
    clean_up = getattr(sys.modules.get("jax._src.api"), "clean_up", None)
    if clean_up is not None:
        atexit.unregister(clean_up)


def _send_reports() -> None:
    """Send the last reports, if there are any."""
    outbox = sys.modules.get("mwmagic.worker.outbox")
    if outbox is not None:
        outbox.farewell()


def _take_leave() -> None:
    """Let the task that coordinates the others end after them."""
    from mwmagic.worker import coordination

    coordination.take_leave()


def _is_success(code: object) -> bool:
    """Return whether an exit code means success; a task that asks to be resumed has saved."""
    from mwmagic.model import variables

    return code in (None, 0, variables.RESUME_CODE)


def _leave(code: int, script: str, process: int) -> None:
    """Exit as the interpreter would, but without tearing the framework down.

    That takes TensorFlow a second or more, and after a failure it may wait forever
    for the other processes.

    Parameters
    ----------
    code : int
        The exit code, or a signal's number with a minus.
    script : str
        The user's file.
    process : int
        The worker's own process; this one may be a fork of it.
    """
    well = _is_success(code)
    if not well:
        _forsake_others()
        last = code if code > 0 else 128 - code
        timer = _standard("threading").Timer(LINGER_SECONDS, os._exit, (last,))
        timer.daemon = True
        timer.start()
    _send_reports()
    wait = getattr(sys.modules.get("threading"), "_shutdown", None)  # as Py_Exit does
    if wait is not None:
        wait()
    atexit._run_exitfuncs()  # noqa: SLF001 - as Py_Exit does
    if well:
        _dismantle(script)
    _flush()
    _send_reports()
    if well and os.getpid() == process:
        _take_leave()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _exit_code(request: SystemExit) -> int:
    """Return the code that ``sys.exit`` asked for, as the interpreter reads it."""
    if request.code is None:
        return 0
    if isinstance(request.code, int):
        return request.code & 0xFF
    _announce(str(request.code))
    return 1


def _run(script: str) -> BaseException | None:
    """Run the user's file and return what it raised."""
    from mwmagic.worker.source import read

    try:
        code = compile(read(script), script, "exec", dont_inherit=True)
        exec(code, vars(_main_module(script)))  # noqa: S102 - running it is the point
    except BaseException as error:  # noqa: BLE001 - reported, printed, and told by the exit code
        if isinstance(error, SyntaxError) and error.filename == script and error.text is not None:
            # The compiler took it from the file, which may be another by now.
            error.text = _standard("linecache").getline(script, error.lineno or 0)
        return error
    return None


def run_again(main: dict[str, object]) -> None:
    """Run the worker's code in a child that it spawned.

    Parameters
    ----------
    main : dict
        The namespace of the child's main module, as `multiprocessing` made it.
    """
    _find_package()
    from mwmagic.model import variables
    from mwmagic.worker.source import read

    script = os.path.normpath(os.environ[variables.SCRIPT])  # as `multiprocessing` has it
    main.update(__file__=script, __doc__=None)
    sys.argv[0] = script
    exec(compile(read(script), script, "exec", dont_inherit=True), main)  # noqa: S102 - the point


def _execute(script: str, process: int) -> int:
    """Run the user's file and return its exit code, or a signal's number with a minus."""
    error = _run(script)
    if _stays(process):
        return _keep(error, script)
    if error is None:
        return 0
    from mwmagic.model import variables

    if _failed(error) and os.getpid() == process:  # and no fork of it
        _report(error, script, os.environ.get(variables.FAILURE_REPORT))
    return _ended(error)


def _failed(error: BaseException) -> bool:
    return not isinstance(error, SystemExit) or not _is_success(error.code)


def _ended(error: BaseException) -> int:
    """Show what was raised, and return the exit code, or a signal's number with a minus."""
    if isinstance(error, SystemExit):
        return _exit_code(error)
    code = _print(error)
    return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else code


def _stays(process: int) -> bool:
    """Return whether this process, which is no fork of the worker, stays with its variables."""
    from mwmagic.model import variables

    return variables.KEEP in os.environ and os.getpid() == process


def _keep(error: BaseException | None, script: str) -> int:
    """Report how the user's file ended, then run live cells until the worker may end."""
    # Not in the file, which tells at the process's end what that came from.
    report = _report(error, script, None) if error is not None and _failed(error) else None
    code = 0 if error is None else _ended(error)
    _flush()
    _send_reports()
    from mwmagic.worker import live

    end = {"code": code} if code >= 0 else {"code": None, "signal": -code}
    live.stay({"ok": report is None, **end, "report": report})
    return code


def main(argv: list[str]) -> None:
    """Run ``argv[0]`` as ``__main__`` with the arguments ``argv``; does not return.

    Parameters
    ----------
    argv : list of str
        The script's path and its arguments, as ``sys.argv`` shows them to it.
    """
    _find_package()
    _enable_stacks()
    from mwmagic.worker.preparation import prepare

    prepare(_announce)
    sys.argv = list(argv)
    folder = os.path.dirname(os.path.realpath(argv[0]))  # noqa: PTH120 - as above
    if sys.path and sys.path[0] == _FOLDER:
        sys.path[0] = folder
    else:
        sys.path.insert(0, folder)
    script = argv[0] if argv[0].startswith("/") else f"{os.getcwd()}/{argv[0]}"  # noqa: PTH109 - as above
    process = os.getpid()
    _leave(_execute(script, process), script, process)


if __name__ == "__main__":
    main(sys.argv[1:])
