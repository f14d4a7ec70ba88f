"""``mwmagic run``, a script on every task of a new cluster; ``ps`` and ``stop``.

Signals that ask a command to end become exceptions, so that what it started ends too.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic.client.arguments import add_cluster_options, add_params, typed
from mwmagic.client.cluster import Cluster, end
from mwmagic.client.lookup import running, unreachable
from mwmagic.client.reading import pieces
from mwmagic.client.run import program_text
from mwmagic.errors import BadArguments, NoCluster, WorkerFailed
from mwmagic.model.values import counted
from mwmagic.model.variables import ANNOUNCED, PARAMETER
from mwmagic.words.comparison import changed_line
from mwmagic.words.host import idle_words, jobs_words, left_words
from mwmagic.words.run import again_words, headline, lacking, longest, remarks, setback_words

from .output import say, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

    from mwmagic.client.run import Run
    from mwmagic.errors import SupervisorError

__all__ = [
    "INTERRUPTED_CODE",
    "Terminated",
    "add_ps",
    "add_run",
    "add_stop",
    "die",
    "follow",
    "listening",
    "repeats",
]

_COLOURS = (36, 33, 32, 35, 34, 31)


def add_run(command: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_cluster_options(command, notebook=False)
    what = "Show all that the tasks print, with the framework's notices and every update of a bar."
    command.add_argument("--raw", action="store_true", help=what)
    what = "Keep a live table of the tasks below their output."
    command.add_argument("--dashboard", action="store_true", help=what)
    add_params(command)
    what = "List the program's parameters, which -p sets, and launch nothing."
    command.add_argument("--params", dest="listed", action="store_true", help=what)
    # One argument for both: argparse would consume a `--` after a separate script argument.
    what = (
        "The file that every task runs, and its arguments; with an engine that has a scheduler, "
        "`-- ARG ... --` before it are the scheduler's."
    )
    command.add_argument("command", nargs=argparse.REMAINDER, metavar="SCRIPT [ARG ...]", help=what)
    command.set_defaults(action=_run)


def _run(given: argparse.Namespace) -> int:
    options = typed(given)
    program = _program(given.command, options)
    if not program:
        raise BadArguments("there is no script to run: mwmagic run -n 2 main.py")
    script, *args = program
    if given.listed or (args == ["--params"] and "--params" not in program_text(Path(script))):
        return _list(script, args if given.listed else [])
    _check_place(script, args)
    with listening(), Cluster.declare(say, **{"warm": repeats(options), **options}) as cluster:
        run = cluster.run(script, args=args, env=options.get("env"), params=given.params)
        return follow(run, dashboard=given.dashboard, raw=given.raw)


def _check_place(script: str, args: list[str]) -> None:
    """Refuse a ``-p`` behind a script that has such a parameter, but no option of that name."""
    from mwmagic.experiments.parameters import matching, parameters

    settings = [(a, b) for a, b in pairwise(args) if a in ("-p", "--param") and "=" in b]
    source = program_text(Path(script)) if settings else ""
    if not settings or any(f"{quote}{settings[0][0]}{quote}" in source for quote in "\"'"):
        return
    with suppress(SyntaxError):  # the workers report it
        known = parameters(source)
        found = [f"-p {one}" for _, one in settings if matching(one.partition("=")[0], known)]
        if found:
            right = " ".join(found)
            raise BadArguments(
                f"{script} gets all that follows it, and has no option {settings[0][0]}; to set "
                f"its parameters, write `mwmagic run {right} {script}`"
            )


def repeats(options: Mapping[str, Any]) -> bool:
    """Return whether tasks may start more than once; else importing beforehand gains nothing."""
    return bool(options.get("restarts"))


def _list(script: str, args: list[str]) -> int:
    """Print what a program's parameters are, and which of them can be set."""
    from mwmagic.experiments.parameters import parameters, values

    source = program_text(Path(script))
    try:
        known, now = parameters(source), values(source, args, os.environ)
    except SyntaxError as error:
        raise BadArguments(f"the parameters of {script} cannot be read: {error}") from error
    width = max((len(one.name) for one in known), default=0)
    for one in known:
        value = repr(now.get(one.name, one.value))
        how = _variable_words(one.variable) if one.variable else one.way.flag if one.way else ""
        facts = [f"line {one.line}", how, f"cannot be set: {one.refusal}" if one.refusal else ""]
        if one.hidden:
            facts.append(f"not {one.name} of line {one.hidden}")
        show(f"{one.name:<{width}}  {value}  ({', '.join(filter(None, facts))})")
    if not known:
        print(f"{script} has no parameters that -p could set")
    return 0


def _variable_words(name: str) -> str:
    return "mwmagic.worker.params" if name.startswith(PARAMETER) else f"the variable {name}"


def _program(words: list[str], options: dict[str, Any]) -> list[str]:
    """Return the script and its arguments; what is the scheduler's joins the options."""
    if words[:1] != ["--"]:
        return words
    words = words[1:]
    if "--" not in words or "engine" not in options:
        return words
    at = words.index("--")
    options["scheduler"] = (*options.get("scheduler", ()), *words[:at])
    return words[at + 1 :]


def _lines(run: Run, *, raw: bool) -> None:
    """Print the lines of a run until it ends."""
    label, news = _labels(run), _News(run)
    for lines in pieces(run, raw=raw):
        for task, line in lines:
            print(label[task], line, flush=True)
        for line in news.new():
            say(line)


def _table(run: Run, *, raw: bool) -> None:
    """Print the lines of a run until it ends, above a live table of its tasks."""
    from mwmagic.dashboard.terminal import live

    label, news = _labels(run), _News(run)
    with live(run) as console:
        for lines in pieces(run, raw=raw):
            texts = [f"{label[task]} {line}" for task, line in lines]
            texts += [f"{ANNOUNCED}{line}" for line in news.new()]
            if texts:
                console.out("\n".join(texts), highlight=False)


class _News:
    """What is to be said of a run beside its output, once: failures that it survives, remarks."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._said: set[str | int] = set()

    def new(self) -> list[str]:
        """Return the lines that were not there at the last call."""
        run = self._run.status()
        news: list[tuple[str | int, str]] = [
            *((one.attempt, setback_words(run, one)) for one in run.setbacks),
            (f"attempt {run.attempt}", again_words(run)),
            *((one, one) for one in remarks(run)),
        ]
        new = {key: line for key, line in news if line and key not in self._said}
        self._said.update(new)
        return list(new.values())


class _Showing:
    """Shows a run until it is over, on a thread: a signal gets between no two of its lines."""

    def __init__(self, run: Run, show: Callable[..., None], *, raw: bool) -> None:
        self._error: BaseException | None = None
        self._over = threading.Event()
        arguments = (run, show, raw)
        threading.Thread(
            target=self._show, args=arguments, name="mwmagic-show", daemon=True
        ).start()

    def _show(self, run: Run, show: Callable[..., None], raw: bool) -> None:
        try:
            show(run, raw=raw)
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
        finally:
            _say_lacking(run)
            self._over.set()

    def wait(self) -> None:
        """Wait until everything is shown; raise what kept it from that."""
        self._over.wait()
        if self._error is not None:
            raise self._error


def follow(run: Run, *, dashboard: bool = False, raw: bool = False) -> int:
    """Show a run until it ends; return the exit code of the first failure."""
    showing = _Showing(run, _table if dashboard else _lines, raw=raw)
    try:
        showing.wait()
        run.wait()
    except KeyboardInterrupt as request:
        _stop_run(run)
        showing.wait()
        say(f"run {run.number} stopped")
        if isinstance(request, Terminated):
            raise
        return INTERRUPTED_CODE
    except WorkerFailed as error:
        say(str(error))
        return _code(run)
    if changed := changed_line(run.record):
        say(changed)
    return INCOMPLETE_CODE if run.status().trouble else 0


def _say_lacking(run: Run) -> None:
    """Say what the run's record lacks, all of which was printed."""
    lacks = lacking(run.status())
    if lacks:
        say(lacks)


def _stop_run(run: Run) -> None:
    """Stop a run with its grace, or without it after a second Ctrl-C."""
    try:
        run.stop()
    except KeyboardInterrupt:
        run.stop(grace=0.0)
        raise


def _labels(run: Run) -> dict[str, str]:
    """Return the prefix of each task's lines, in colour on a terminal."""
    names = list(run.status().tasks)
    width = max(map(len, names))
    texts = {name: f"[{name}]{'':{width - len(name)}}" for name in names}
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return texts
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
    return {name: f"\x1b[{colours[name]}m{text}\x1b[0m" for name, text in texts.items()}


def _code(run: Run) -> int:
    """Return the exit code as a shell would: the first failure's, or 128 plus its signal."""
    status = run.status()
    task = status.tasks.get(status.cause.task) if status.cause else None
    if task is not None and task.signal:
        return 128 + task.signal
    return (task.code if task is not None else None) or 1


INCOMPLETE_CODE = os.EX_IOERR
"""The exit code of a run that finished, but whose record is incomplete."""

INTERRUPTED_CODE = 130
"""The exit code after Ctrl-C: 128 plus SIGINT's number, as in a shell."""

_NUMBERS = (signal.SIGTERM, signal.SIGHUP)
"""What schedulers, service managers, containers and closing terminals send."""


class Terminated(KeyboardInterrupt):
    """A signal asks this process to end, as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _raise(number: int, _frame: FrameType | None) -> None:
    raise Terminated(number)


@contextmanager
def listening() -> Iterator[None]:
    """Raise `Terminated` for these signals, except those that are ignored, as under nohup."""
    main = threading.current_thread() is threading.main_thread()
    heard = [one for one in _NUMBERS if main and signal.getsignal(one) is signal.SIG_DFL]
    for number in heard:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, signal.SIG_DFL)


def die(request: Terminated) -> None:
    """Die of the signal, so that its sender sees that it was obeyed."""
    with suppress(OSError):
        sys.stdout.flush()
    os.kill(os.getpid(), request.number)


def add_ps(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command that lists clusters."""
    command.set_defaults(action=_ps)


def add_stop(command: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command that ends clusters."""
    command.add_argument("name", nargs="?", help="Only clusters with this name (default: all).")
    command.set_defaults(action=_stop)


def _ps(_given: argparse.Namespace) -> int:
    refusals: list[SupervisorError] = []
    found = list(running(refusals))
    for cluster in found:
        run, options = cluster.latest, cluster.options
        what = headline(run.status()) if run else "no run yet"
        hosts = len(cluster.machines)
        tasks = counted(len(cluster.tasks), "task")
        tasks += f" on {counted(hosts, 'host')}" if hosts > 1 else ""
        busy = longest(run.status()) if run else ""
        facts = [options.name, tasks, _owner(cluster), jobs_words(cluster.machines), what, busy]
        show("  ".join(filter(None, facts)))
        show(f"  {options.directory}")
    if not found and not refusals:
        print("no cluster is running")
    return _told(refusals)


def _owner(cluster: Cluster) -> str:
    """Say what keeps a cluster running."""
    how = "detached" if cluster.options.detach else "kept for a new owner"
    if cluster.idle is not None and cluster.reserved is not None:
        return f"{how}, {idle_words(cluster.idle)}, {left_words(cluster.reserved)}"
    return "detached" if cluster.options.detach else "owned"


def _stop(given: argparse.Namespace) -> int:
    refusals: list[SupervisorError] = []
    wanted = list(running(refusals, name=given.name, wake=True))
    code = _told(refusals)
    if given.name is not None and not wanted and not refusals:
        raise NoCluster(
            f"no cluster {given.name!r} is running; `mwmagic ps` lists the running ones"
        )
    end(wanted)
    for cluster in wanted:
        show(f"ended {cluster.options.name} of {cluster.options.directory}")
    if not wanted and not refusals:
        print("no cluster is running")
    return code


def _told(refusals: Sequence[SupervisorError]) -> int:
    """Say which clusters are running and cannot be reached; return the exit code."""
    for refusal in refusals:
        say(unreachable(refusal))
    return 2 if refusals else 0
