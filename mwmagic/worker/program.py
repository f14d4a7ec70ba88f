"""Runs the user's file as ``python main.py`` would, in a process of a gang.

Everything that it needs to know beyond the command is in the environment, in the variables of
`mwmagic.model.variables`. A worker starts as fast as it imports little: here and in what this
imports, Python's own modules are imported where they are needed.

The code that runs is the copy in the record, under the name of the user's file: in it, ``__file__``
is the user's file, as under ``python main.py``, so that ``Path(__file__).parent`` finds the files
next to it. But that file may already hold the code of another launch. Whatever reads the code again
therefore gets the copy: tracebacks, `inspect` and TensorFlow's AutoGraph, which read its lines, and
the children of `multiprocessing`'s ``spawn`` and ``forkserver``, and of loky's ``loky_init_main``,
which run the main module again. The interpreter's own tracebacks, of what nothing catches in a
thread, an exit handler or a finalizer, show the lines of the file as it is now; hooks print the
same through `traceback`, unless user code sets others.
"""

from __future__ import annotations

import builtins
import faulthandler
import os
import sys
import time
from _frozen_importlib_external import SourceFileLoader  # `importlib.machinery` is slower

from mwmagic.hooks import after_import
from mwmagic.model import variables

from .exit import (
    exit_code,
    finish_files,
    flush,
    is_success,
    leave,
    report_failure,
    send_reports,
    show_failure,
)
from .preparation import leave_name, prepare, standard

TYPE_CHECKING = False  # a worker starts without `signal`, `threading`, `traceback` and `typing`
if TYPE_CHECKING:
    import threading
    from types import ModuleType
    from typing import Any

__all__ = ["main", "preload", "run_again"]

_FOLDER = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - `pathlib` takes a while to import


def preload() -> None:
    """Do what workers have in common in a process that they are forked from; see `preparation`."""
    from . import preparation

    preparation.preload()


def main(argv: list[str], started: frozenset[str]) -> None:
    """Run ``argv[0]`` as ``__main__`` with the arguments ``argv``; then the interpreter may end."""
    _dump_stacks_on_request()
    prepare()
    if variables.ANSWERED in os.environ:
        _ask_in_the_notebook()
    sys.argv, sys.orig_argv = list(argv), [sys.orig_argv[0], *argv]
    folder = os.path.dirname(os.path.realpath(argv[0]))  # noqa: PTH120 - as above
    if sys.path and sys.path[0] == _FOLDER:
        sys.path[0] = folder
    else:
        sys.path.insert(0, folder)
    script = argv[0] if argv[0].startswith("/") else f"{os.getcwd()}/{argv[0]}"  # noqa: PTH109 - as above
    if f"{__package__}.warm" in sys.modules:  # the process that this one was forked from has it
        from . import warm

        _begin_anew()
        warm.time_imports(script)
        warm.watch_variables(script)
    else:
        _step_aside(folder, started)
    process = os.getpid()
    finish_files(process)
    leave(*_execute(script, process))


def _begin_anew() -> None:
    """Give modules of Python that the warm process has imported what is each process's own."""
    logging, process = map(sys.modules.get, ("logging", "multiprocessing.process"))
    if logging is not None:  # what `relativeCreated` counts from, in nanoseconds since Python 3.13
        whole = isinstance(vars(logging)["_startTime"], int)
        vars(logging).update(_startTime=time.time_ns() if whole else time.time())
    if process is not None:
        process.current_process().authkey = os.urandom(32)


def _ask_in_the_notebook() -> None:
    """Have `input`, and with it Python's debugger, ask in the notebook; but not in children."""
    home, plain = os.getpid(), builtins.input

    def ask(prompt: object = "", /) -> str:
        if os.getpid() != home:
            return plain(prompt)
        from .live.cells import ask

        return ask(prompt)

    ask.__name__ = "input"
    builtins.input = ask


def _step_aside(folder: str, started: frozenset[str]) -> None:
    """Forget modules that only this package has imported, if the user's folder has such ones.

    This package has its own references to them, and `standard` for those that it imports later.
    """
    leave_name(folder)
    own = {one.partition(".")[0] for one in sys.modules if one not in started} - {"mwmagic"}
    ends = (".py", "/__init__.py")
    beside = {one for one in own if any(os.path.exists(f"{folder}/{one}{end}") for end in ends)}  # noqa: PTH110 - as above
    for name in [one for one in sys.modules if one.partition(".")[0] in beside]:
        if name not in started:
            del sys.modules[name]


def _execute(script: str, process: int) -> tuple[int, int, dict[str, object] | None]:
    """Run the user's file; return how it ended, as `leave` takes it."""
    error = _run(script)
    if _stays(process):
        return _keep(error, script), process, None
    if error is None:
        return 0, process, None
    report = None
    if _failed(error) and os.getpid() == process:  # and no fork of it
        report = report_failure(error, script, os.environ.get(variables.FAILURE_REPORT))
    return _ended(error), process, report


def _failed(error: BaseException) -> bool:
    return not isinstance(error, SystemExit) or not is_success(error.code)


def _ended(error: BaseException) -> int:
    """Show what was raised, and return the exit code, or a signal's number with a minus."""
    if isinstance(error, SystemExit):
        return exit_code(error)
    code = show_failure(error)
    interrupted = isinstance(error, KeyboardInterrupt)
    return -standard("signal").SIGINT if interrupted else code


def _stays(process: int) -> bool:
    """Return whether this process, which is no fork of the worker, stays with its variables."""
    return variables.KEEP in os.environ and os.getpid() == process


def _keep(error: BaseException | None, script: str) -> int:
    """Report how the user's file ended, then run live cells until the worker may end."""
    from .live import cells

    # Not in the file, which says at the process's end what that came from.
    report = report_failure(error, script, None) if error is not None and _failed(error) else None
    code = 0 if error is None else _ended(error)
    flush()
    send_reports()

    end = {"code": code} if code >= 0 else {"code": None, "signal": -code}
    cells.stay({"ok": report is None, **end, "report": report})
    return code


def _main_module(script: str) -> ModuleType:
    """Make the module that user code sees as ``__main__``."""
    module = type(sys)("__main__")
    vars(module).update(__file__=script, __cached__=None, __annotations__={})
    vars(module).update(__builtins__=builtins, __loader__=SourceFileLoader("__main__", script))
    sys.modules["__main__"] = module
    if "__mp_main__" in sys.modules:  # as `multiprocessing` has it; a warm process imported that
        sys.modules["__mp_main__"] = module
    return module


def _run(script: str) -> BaseException | None:
    """Run the user's file and return what it raised."""
    try:
        code = compile(_code_of(script), script, "exec", dont_inherit=True)
        exec(code, vars(_main_module(script)))  # noqa: S102 - running it is the point
    except BaseException as error:  # noqa: BLE001 - reported, printed, and shown by the exit code
        _flush_standard()
        if isinstance(error, SyntaxError) and error.filename == script and error.text is not None:
            # The compiler took it from the file, which may be another by now.
            error.text = standard("linecache").getline(script, error.lineno or 0)
        return error
    return None


def _flush_standard() -> None:
    """Print what the program did before what it raised, as the interpreter does."""
    for stream in (sys.stderr, sys.stdout):
        try:  # noqa: SIM105 - `contextlib` takes a while to import
            stream.flush()
        except Exception:  # noqa: BLE001, PERF203, S110 - it may be anything of the user's
            pass


def run_again(main: dict[str, object]) -> None:
    """Run the worker's code in a child that it spawned."""
    script = os.path.normpath(os.environ[variables.SCRIPT])  # as `multiprocessing` has it
    leave_name(os.path.dirname(script))  # noqa: PTH120 - `pathlib` takes a while to import
    main.update(__file__=script, __doc__=None)
    sys.argv[0] = script
    exec(compile(_code_of(script), script, "exec", dont_inherit=True), main)  # noqa: S102 - the point


def _dump_stacks_on_request() -> None:
    """Dump every thread's stack on a signal; works inside a blocked collective too."""
    faulthandler.enable()
    path = os.environ.get(variables.STACKS)
    if path:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        faulthandler.register(variables.STACKS_SIGNAL, file=descriptor, all_threads=True)
        file = os.fstat(descriptor)
        after_import("signal", lambda signal: _give_way(signal, descriptor, file))


def _give_way(signal: ModuleType, descriptor: int, file: os.stat_result) -> None:
    """Close the file of stacks when user code takes its signal.

    The open file marks the handler as ours.
    """
    import contextlib
    import functools

    take = getattr(signal, "signal", None)
    if take is None:  # a module of the user's
        return

    @functools.wraps(take)
    def signal_(signalnum: int, handler: object) -> object:
        import threading

        main = threading.current_thread() is threading.main_thread()  # others may set none
        if signalnum == variables.STACKS_SIGNAL and main:
            faulthandler.unregister(signalnum)
            with contextlib.suppress(OSError):  # user code closed it, or has another in its place
                if os.path.samestat(file, os.fstat(descriptor)):
                    os.close(descriptor)
        return take(signalnum, handler)

    vars(signal).update(signal=signal_)


# The code that runs, and what reads it again.

SPAWNED = f"{os.path.dirname(__file__)}/bootstrap.py"  # noqa: PTH120 - as above
"""What runs as the main module of a child, and becomes the code."""

_SPAWNERS = ("multiprocessing.spawn", "loky.backend.spawn", "joblib.externals.loky.backend.spawn")
"""The modules that tell a child which file its main module is."""


def _code_of(script: str) -> bytes:
    """Return the code to run, and make whatever reads it again get the same."""
    copy = os.environ.get(variables.SOURCE)
    with open(copy or script, "rb") as file:  # noqa: PTH123 - as above
        source = file.read()
    after_import("linecache", lambda module: _keep_lines(script, source, module))
    if copy:
        os.environ[variables.SCRIPT] = script
        _hook_exceptions()
        for name in _SPAWNERS:
            after_import(name, lambda module: _hand_down(script, module))
    return source


def _keep_lines(script: str, source: bytes, linecache: ModuleType) -> None:
    """Serve later reads of source lines from the copy, since the file may have changed.

    TensorFlow's AutoGraph reads them again before it transforms a function.
    """
    import functools

    update, size, lines = getattr(linecache, "updatecache", None), len(source), _lines(source)
    if update is None:
        return  # a module of the user's own that has this name

    @functools.wraps(update)
    def updatecache(filename: str, module_globals: dict[str, object] | None = None) -> list[str]:
        if filename != script:
            found: list[str] = update(filename, module_globals)
            return found
        linecache.cache[script] = (size, None, lines, script)
        return lines

    vars(linecache).update(updatecache=updatecache)
    updatecache(script)


def _lines(source: bytes) -> list[str]:
    """Return the lines of a source file, in the encoding that it declares."""
    import io
    import tokenize

    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    except SyntaxError:  # which the compiler reports
        encoding = "utf-8"
    end = b"" if source.endswith((b"\n", b"\r")) else b"\n"  # as `linecache` has it
    return list(io.TextIOWrapper(io.BytesIO(source + end), encoding, errors="replace"))


def _hand_down(script: str, spawn: ModuleType) -> None:
    """Make children import the copy as their main module instead of the file."""
    import functools

    prepare, main = spawn.get_preparation_data, os.path.normpath(script)

    @functools.wraps(prepare)
    def get_preparation_data(*args: object, **kwargs: object) -> dict[str, Any]:
        data: dict[str, Any] = prepare(*args, **kwargs)
        known = {variables.SOURCE, variables.SCRIPT} <= os.environ.keys()
        if known and data.get("init_main_from_path") == main:
            data["init_main_from_path"] = SPAWNED
        return data

    vars(spawn).update(get_preparation_data=get_preparation_data)


_PYTHONS = sys.__unraisablehook__


def _hook_exceptions() -> None:
    """Print what nothing catches outside the main thread's code."""
    after_import("threading", _watch_threads)
    sys.unraisablehook = sys.__unraisablehook__ = _unraisable


def _watch_threads(module: ModuleType) -> None:
    hook = getattr(module, "excepthook", None)
    if hook is None:  # a module of the user's
        return
    from functools import update_wrapper

    def thread(args: threading.ExceptHookArgs) -> None:
        error, one = args.exc_value, args.thread
        if isinstance(error, SystemExit) or error is None or one is None or sys.stderr is None:
            hook(args)
        else:
            _print(f"Exception in thread {one.name}:", error, chain=True)

    update_wrapper(thread, hook)
    vars(module).update(excepthook=thread, __excepthook__=thread)  # by which programs restore it


def _unraisable(args: sys.UnraisableHookArgs) -> None:
    """Print what an exit handler or a finalizer raised, as the interpreter does."""
    if args.exc_value is None or sys.stderr is None or sys.is_finalizing():
        _PYTHONS(args)
    else:
        about = "" if args.object is None else f" {_shown(args.object)}"
        title = f"{args.err_msg or 'Exception ignored in'}:{about}"
        _print(title, args.exc_value, chain=False)


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - the user's own `__repr__` may raise anything
        return "<object repr() failed>"


def _print(title: str, error: BaseException, *, chain: bool) -> None:
    """Print in one piece, between the lines of other threads."""
    traceback = standard("traceback")
    lines = traceback.format_exception(type(error), error, error.__traceback__, chain=chain)
    sys.stderr.write("".join([f"{title}\n", *lines]))
    sys.stderr.flush()
