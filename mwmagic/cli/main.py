"""The command line: ``mwmagic run -n 2 main.py`` and what goes with it."""

from __future__ import annotations

import argparse
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic import __version__
from mwmagic.client.cluster import Cluster, clusters
from mwmagic.client.following import follow, pieces
from mwmagic.errors import BadArguments, MwmagicError, NoCluster, NoRun, RunStopped, WorkerFailed
from mwmagic.gang import Policy
from mwmagic.logs.reading import read
from mwmagic.model.config import Config
from mwmagic.model.options import cluster_options, options
from mwmagic.record import runs
from mwmagic.words.run import headline, remarks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mwmagic.client.run import Run
    from mwmagic.model.cluster import TaskName
    from mwmagic.record import Record

__all__ = ["main", "parser"]

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 and SIGINT's number, as shells have it."""

_COLOURS = (36, 33, 32, 35, 34, 31)


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    top = argparse.ArgumentParser("mwmagic", description="Multi-worker training on this machine.")
    top.add_argument("--version", action="version", version=f"mwmagic {__version__}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    _run(commands.add_parser("run", help="run a script on every task of a new cluster"))
    demo = commands.add_parser("demo", help="execute the quickstart notebook: two workers train")
    demo.add_argument("--directory", default="mwmagic-demo", help="where (mwmagic-demo)")
    demo.set_defaults(action=_demo)
    ps = commands.add_parser("ps", help="list the clusters that run")
    ps.set_defaults(action=_list)
    _logs(commands.add_parser("logs", help="show what the tasks of a run here printed"))
    stop = commands.add_parser("stop", help="end clusters, and everything they run")
    stop.add_argument("name", nargs="?", help="only those of this name; by default all")
    stop.set_defaults(action=_stop)
    return top


def _run(command: argparse.ArgumentParser) -> None:
    command.add_argument("-n", "--workers", type=int, default=1, help="how many workers (1)")
    cluster_options(command)
    command.add_argument("--raw", action="store_true", help="show the framework's notices too")
    what = "keep a live table of the tasks below what they print"
    command.add_argument("--dashboard", action="store_true", help=what)
    # In one: on its own, a script would take a `--` that follows it for argparse's.
    what = "the file that every task runs, and its arguments"
    command.add_argument("command", nargs=argparse.REMAINDER, metavar="SCRIPT [ARG ...]", help=what)
    command.set_defaults(action=_start)


def _logs(command: argparse.ArgumentParser) -> None:
    command.add_argument("task", nargs="?", help="1, worker:1 or chief; by default every task")
    command.add_argument("--run", type=int, help="the run's number; by default the last")
    command.add_argument("--raw", action="store_true", help="byte for byte")
    command.add_argument("--tail", type=int, default=0, help="only the last lines")
    command.add_argument("--grep", help="only lines that match this regular expression")
    command.set_defaults(action=_show)


def _start(given: argparse.Namespace) -> int:
    script, *args = given.command[given.command[:1] == ["--"] :] or [None]
    if script is None:
        raise BadArguments("there is no script to run: mwmagic run -n 2 main.py")
    cluster = Cluster(
        given.workers,
        chief=given.chief,
        ps=given.ps,
        evaluator=given.evaluator,
        framework=given.framework or "tensorflow",
        engine=given.engine,
        keras=given.keras or "auto",
        devices=given.devices,
        gpus=given.gpus,
        threads=given.threads,
        restarts=given.restarts or 0,
        env=options(given.env),
        on_stall=given.on_stall,
        # One process per task is started once: importing beforehand gains nothing.
        warm=bool(given.restarts),
        grace=Policy.grace if given.grace is None else given.grace,
        stall=Config.stall if given.stall_timeout is None else given.stall_timeout,
    )
    with cluster:
        run = cluster.run(script, args=args)
        return _finish(run, _table if given.dashboard else _lines, raw=given.raw)


def _lines(run: Run, *, raw: bool) -> None:
    """Print the lines of a run until its end."""
    label = _labels(run)
    for task, line in follow(run, raw=raw):
        print(label[task], line, flush=True)
    for remark in remarks(run.status()):
        print(f"mwmagic: {remark}", file=sys.stderr)


def _table(run: Run, *, raw: bool) -> None:
    """Print the lines of a run until its end, above a live table of its tasks."""
    from mwmagic.dashboard.terminal import live

    label = _labels(run)
    with live(run) as console:
        for lines in filter(None, pieces(run, raw=raw)):
            told = "\n".join(f"{label[task]} {line}" for task, line in lines)
            console.out(told, highlight=False)


def _finish(run: Run, show: Callable[..., None], *, raw: bool) -> int:
    """Show a run until its end; return the exit code of the first failure."""
    try:
        show(run, raw=raw)
        run.wait()
    except KeyboardInterrupt:
        run.stop()
        print(f"mwmagic: run {run.number} stopped", file=sys.stderr)
        return INTERRUPTED
    except WorkerFailed as error:
        print(f"mwmagic: {error}", file=sys.stderr)
        return _code(run)
    return 0


def _labels(run: Run) -> dict[str, str]:
    """Return what stands before each task's lines, in colour on a terminal."""
    names = list(run.status().tasks)
    width = max(map(len, names))
    texts = {name: f"[{name}]{'':{width - len(name)}}" for name in names}
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return texts
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
    return {name: f"\x1b[{colours[name]}m{text}\x1b[0m" for name, text in texts.items()}


def _code(run: Run) -> int:
    """Return a shell's exit code for the run: the first failure's, or 128 and its signal."""
    status = run.status()
    task = status.tasks.get(status.cause.task) if status.cause else None
    if task is not None and task.signal:
        return 128 + task.signal
    return (task.code if task is not None else None) or 1


def _demo(given: argparse.Namespace) -> int:
    from .demo import demo

    return demo(Path(given.directory))


def _list(_given: argparse.Namespace) -> int:
    found = list(clusters())
    for cluster in found:
        run = cluster.latest
        what = headline(run.status()) if run else "no run yet"
        kept = "detached" if cluster.config.detach else "owned"
        print(f"{cluster.config.name}  {len(cluster.tasks)} tasks  {kept}  {what}")
        print(f"  {cluster.config.directory}")
    if not found:
        print("no cluster is running")
    return 0


def _recorded(number: int | None) -> Record:
    known = {record.number: record for record in runs()}
    if not known:
        raise NoRun(f"no runs are recorded below {Path.cwd()}")
    chosen = max(known) if number is None else number
    if chosen not in known:
        raise NoRun(f"there is no run {chosen}; there are {', '.join(map(str, known))}")
    return known[chosen]


def _show(given: argparse.Namespace) -> int:
    record = _recorded(given.run)
    if given.task is not None:
        _print_log(record, given.task, given)
        return 0
    for task in record.tasks:
        print(f"--- {task} ---")
        try:
            _print_log(record, task, given)
        except NoRun as error:
            print(error)
    return 0


def _print_log(record: Record, task: TaskName, given: argparse.Namespace) -> None:
    for line in read(record.log_path(task), raw=given.raw, tail=given.tail, grep=given.grep):
        print(line)


def _stop(given: argparse.Namespace) -> int:
    wanted = [one for one in clusters() if given.name in (None, one.config.name)]
    if given.name is not None and not wanted:
        raise NoCluster(f"no cluster {given.name!r} is running; `mwmagic ps` lists those there are")
    for cluster in wanted:
        cluster.close()
        print(f"ended {cluster.config.name} of {cluster.config.directory}")
    if not wanted:
        print("no cluster is running")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; by default the process's own.
    """
    given = parser().parse_args(argv)
    # A log may hold what the terminal's encoding has not.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    action: Callable[[argparse.Namespace], int] = given.action
    try:
        return action(given)
    except RunStopped as error:
        print(f"mwmagic: {error}", file=sys.stderr)
        return 1
    except (MwmagicError, FileNotFoundError) as error:
        print(f"mwmagic: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output closed it; do not complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
