"""Runs the user's file as ``python main.py`` would, in a process of a gang.

What it needs to know beyond the command is in the environment, in the variables of
`mwmagic.model.variables`. A worker starts as fast as it imports little: here and in what this
imports, Python's own modules are imported where they are needed.
"""

from __future__ import annotations

import builtins
import faulthandler
import os
import sys
import time
from _frozen_importlib_external import SourceFileLoader  # `importlib.machinery` is slower

from mwmagic.hooks.imports import after_import
from mwmagic.model import variables

from .preparation import prepare
from .source import read
from .standard import leave_name, standard

TYPE_CHECKING = False  # a worker starts without `typing`, and without `signal`
if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["main", "preload", "run_again"]

_FOLDER = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - `pathlib` takes a while to import


def preload() -> None:
    """Do what workers have in common in a process that they are forked from; see `preparation`."""
    from . import exit, failure, preparation, shown  # noqa: A004, F401 - most are for workers

    preparation.preload()


def main(argv: list[str], started: frozenset[str]) -> None:
    """Run ``argv[0]`` as ``__main__`` with the arguments ``argv``; then the interpreter may end."""
    _dump_stacks_on_request()
    prepare()
    if variables.ANSWERED in os.environ:
        _ask_in_the_notebook()
    after_import("matplotlib.pyplot", _keep_figures)
    sys.argv, sys.orig_argv = list(argv), [sys.orig_argv[0], *argv]
    folder = os.path.dirname(os.path.realpath(argv[0]))  # noqa: PTH120 - as above
    if sys.path and sys.path[0] == _FOLDER:
        sys.path[0] = folder
    else:
        sys.path.insert(0, folder)
    script = argv[0] if argv[0].startswith("/") else f"{os.getcwd()}/{argv[0]}"  # noqa: PTH109 - as above
    from .exit import finish_files, leave

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


def _keep_figures(pyplot: ModuleType) -> None:
    from .shown import keep_figures

    keep_figures(pyplot)


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
        report = _report(error, script, os.environ.get(variables.FAILURE_REPORT))
    return _ended(error), process, report


def _failed(error: BaseException) -> bool:
    from .exit import is_success

    return not isinstance(error, SystemExit) or not is_success(error.code)


def _report(error: BaseException, script: str, path: str | None) -> dict[str, object]:
    from .failure import report

    return report(error, script, path)


def _ended(error: BaseException) -> int:
    """Show what was raised, and return the exit code, or a signal's number with a minus."""
    from .exit import exit_code
    from .failure import show

    if isinstance(error, SystemExit):
        return exit_code(error)
    code = show(error)
    interrupted = isinstance(error, KeyboardInterrupt)
    return -standard("signal").SIGINT if interrupted else code


def _stays(process: int) -> bool:
    """Return whether this process, which is no fork of the worker, stays with its variables."""
    return variables.KEEP in os.environ and os.getpid() == process


def _keep(error: BaseException | None, script: str) -> int:
    """Report how the user's file ended, then run live cells until the worker may end."""
    from .exit import flush, send_reports
    from .live import cells

    # Not in the file, which tells at the process's end what that came from.
    report = _report(error, script, None) if error is not None and _failed(error) else None
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
        code = compile(read(script), script, "exec", dont_inherit=True)
        exec(code, vars(_main_module(script)))  # noqa: S102 - running it is the point
    except BaseException as error:  # noqa: BLE001 - reported, printed, and told by the exit code
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
    exec(compile(read(script), script, "exec", dont_inherit=True), main)  # noqa: S102 - the point


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
