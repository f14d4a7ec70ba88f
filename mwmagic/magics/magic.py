"""The magics: arguments in, one call of the Python interface, its result out."""

from __future__ import annotations

import inspect
import re
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from traitlets import Bool, Enum, Float, Int, Unicode

from mwmagic.client.cluster import Cluster
from mwmagic.client.following import follow
from mwmagic.errors import BadArguments, NoCluster, NoRun, WaitInterrupted
from mwmagic.frameworks import FRAMEWORKS
from mwmagic.logs.reading import read
from mwmagic.model.cluster import Task, TaskName, make_tasks
from mwmagic.model.config import KERAS_MODES
from mwmagic.model.options import options
from mwmagic.record import runs

from .arguments import PARSERS, HelpShown
from .display import Displays
from .tables import RunTable, StatusTable

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from mwmagic.client.run import Run
    from mwmagic.client.stacks import Stacks
    from mwmagic.record import Record

__all__ = ["MWMagic"]

_TELLING = ("mw_worker", "mw_logs", "mw_stop", "mw_restart", "mw_kill", "mw_stacks", "mw_export")
"""The magics that print or display what there is to see; the others' results show it."""


def _reads(method: Callable[[MWMagic, Namespace, str], Any]) -> Callable[..., Any]:
    """Parse a magic's line, and do with its result what the common options say."""
    parser = PARSERS[method.__name__]

    def magic(self: MWMagic, line: str, cell: str = "") -> object:
        try:
            given = parser.read(line)
        except HelpShown:
            return None
        result = method(self, given, cell)
        if given.out:
            self.shell.user_ns[given.out] = result
        if given.quiet or given.out or method.__name__ in _TELLING:
            _hide(result)
        return result

    magic.__name__ = method.__name__
    magic.__doc__ = parser.format_help()
    return magic


def _hide(result: object) -> None:
    """Let the cell show nothing where its last line is the magic itself, with this result.

    Whoever assigns it may show it. IPython puts its own hook back when the cell ends.
    """
    show = sys.displayhook

    def hook(value: object) -> None:
        sys.displayhook = show
        frame = inspect.currentframe()
        calls = frame.f_back.f_code.co_names if frame and frame.f_back else ()
        if value is not result or not {"run_line_magic", "run_cell_magic"} & {*calls}:
            show(value)

    sys.displayhook = hook


@magics_class
class MWMagic(Magics):
    """Multi-worker training from a notebook."""

    framework = Enum(
        list(FRAMEWORKS), "tensorflow", help="What the processes of a cluster read to meet."
    ).tag(config=True)
    keras = Enum(
        list(KERAS_MODES), "auto", help="Repair Keras 3, leave it alone, or use tf-keras."
    ).tag(config=True)
    restarts = Int(0, min=0, help="How often in a row a gang starts again after a failure.").tag(
        config=True
    )
    grace = Float(3.0, min=0.0, help="Seconds between SIGTERM and SIGKILL in %mw_stop.").tag(
        config=True
    )
    stall_timeout = Float(
        60.0,
        min=0.0,
        help="Seconds without progress after which a run counts as stalled; 0 is off.",
    ).tag(config=True)
    warm = Bool(
        default_value=True, help="Keep a process that has imported the framework, to fork from."
    ).tag(config=True)
    name = Unicode("cluster", help="The name of a cluster that is given none.").tag(config=True)

    def __init__(self, shell: Any) -> None:  # noqa: ANN401 - IPython is not typed
        super().__init__(shell)
        self._clusters: dict[str, Cluster] = {}
        self._current: str | None = None
        self._displays = Displays()

    def close(self) -> None:
        """End every cluster that does not outlive the kernel."""
        for cluster in self._clusters.values():
            if not cluster.config.detach:
                cluster.close()
        self._clusters.clear()
        self._displays.close()

    # What is there.

    def cluster(self) -> Cluster:
        """Return the cluster that magics act on.

        Raises
        ------
        NoCluster
            None was declared, or it ended.
        """
        cluster = self._clusters.get(self._current or "")
        if cluster is None:
            raise NoCluster("no cluster was declared; `%mw_cluster 2` declares one of 2 workers")
        if cluster.closed:
            raise NoCluster(
                f"the cluster {self._current!r} ended; `%mw_cluster` with its options declares it"
            )
        return cluster

    def latest(self) -> Run:
        """Return the latest run.

        Raises
        ------
        NoRun
            Nothing was launched yet.
        """
        run = self.cluster().latest
        if run is None:
            raise NoRun("nothing was launched yet; a `%%mw_worker` cell launches its code")
        return run

    # The magics.

    @line_magic
    @_reads
    def mw_cluster(self, given: Namespace, _cell: str) -> Cluster:
        """Declare a cluster."""
        name = given.name or self.name
        wanted = self._wanted(given, name)
        old = self._clusters.get(name)
        if old is None or old.closed:
            old = self._found(name)
        if old is not None and (given.workers is None or self._alike(old, wanted)):
            self._say(given, f"reusing the cluster {name!r}; `%mw_stop --cluster` ends it")
            cluster = old
            if cluster.config.coordinator:
                cluster.serve()
        else:
            self._end(old)
            cluster = self._declare(given, wanted)
        self._clusters[name], self._current = cluster, name
        return cluster

    def _declare(self, given: Namespace, wanted: dict[str, Any]) -> Cluster:
        if given.workers is None and not given.chief:
            raise BadArguments(
                f"there is no cluster {wanted['name']!r} to go on with, so say how many workers "
                "to declare: `%mw_cluster 2`"
            )
        self._displays.prepare()
        return Cluster(**wanted)

    def _wanted(self, given: Namespace, name: str) -> dict[str, Any]:
        return {
            "workers": given.workers or 0,
            "chief": given.chief,
            "ps": given.ps,
            "evaluator": given.evaluator,
            "coordinator": given.coordinator,
            "name": name,
            "framework": given.framework or self.framework,
            "engine": given.engine,
            "keras": given.keras or self.keras,
            "devices": given.devices,
            "gpus": given.gpus,
            "threads": given.threads,
            "restarts": self.restarts if given.restarts is None else given.restarts,
            "grace": self.grace if given.grace is None else given.grace,
            "stall": self.stall_timeout if given.stall_timeout is None else given.stall_timeout,
            "on_stall": given.on_stall,
            "env": options(given.env),
            "warm": self.warm and not given.no_warm,
            "detach": given.detach,
        }

    def _found(self, name: str) -> Cluster | None:
        """Return the cluster that an earlier kernel left running, if there is one."""
        try:
            return Cluster.attach(name)
        except NoCluster:
            return None

    def _alike(self, old: Cluster, wanted: dict[str, Any]) -> bool:
        shape = {name: wanted[name] for name in ("chief", "ps", "evaluator")}
        config = old.config
        names = ("framework", "keras", "devices", "engine", "gpus", "threads", "coordinator")
        same = {name: getattr(config, name) for name in names}
        policy = (config.policy.restarts, config.policy.grace)
        return (
            make_tasks(wanted["workers"], **shape) == old.tasks
            and same == {name: wanted[name] for name in same}
            and policy == (wanted["restarts"], wanted["grace"])
        )

    def _end(self, old: Cluster | None) -> None:
        if old is None:
            return
        run = old.latest
        if run is not None and not run.over:
            raise BadArguments(
                f"the cluster {old.config.name!r} is busy with run {run.number} "
                f"({run.words}); `%mw_stop` it first, or give the new one a --name"
            )
        old.close()

    @cell_magic
    @_reads
    def mw_worker(self, given: Namespace, cell: str) -> Run | None:
        """Write the cell to a file and launch it."""
        cluster = None if given.no_run else self.cluster()
        task = self._task(given)
        if cluster is not None and task is not None:
            cluster.spec.find(task)
        Path(given.file).write_text(cell, encoding="utf-8")
        if cluster is None:
            self._say(given, f"wrote {given.file}")
            return None
        run = cluster.run(
            given.file,
            source=cell,
            args=shlex.split(given.args),
            env=options(given.env),
            task=task,
            restarts=given.restarts,
            cell=self._cell(),
        )
        if not given.quiet:
            self._show(run)
        if given.wait:
            self._wait(run, given.timeout, quiet=True)
        return run

    def _cell(self) -> str:
        """Name the cell that is being executed, whose input is the latest in the history.

        ``execution_count`` is its number only up to IPython 8, later the next one's.
        """
        if self.shell is None or self.shell.history_manager is None:
            return ""
        return f"In [{len(self.shell.history_manager.input_hist_parsed) - 1}]"

    def _task(self, given: Namespace) -> Task | None:
        if given.index is None and given.type is None:
            return None
        return Task(given.type or "worker", given.index or 0)

    def _show(self, run: Run) -> None:
        self._displays.show(run)

    @line_magic
    @_reads
    def mw_wait(self, given: Namespace, _cell: str) -> Run:
        """Wait for the run."""
        return self._wait(self.latest(), given.timeout, quiet=given.quiet)

    def _wait(self, run: Run, timeout: float | None, *, quiet: bool) -> Run:
        run.expect_end(timeout)
        try:
            if not quiet:
                self._displays.wait(run, timeout)
            return run.wait(0.0 if not quiet and timeout is not None else timeout)
        except KeyboardInterrupt:
            raise WaitInterrupted(
                f"stopped waiting; run {run.number} goes on ({run.words}). "
                "`%mw_wait` waits again, `%mw_stop` stops it"
            ) from None
        finally:
            self._displays.finish(run)

    @line_magic
    @_reads
    def mw_status(self, _given: Namespace, _cell: str) -> StatusTable:
        """Show the run and its tasks."""
        if self.cluster_gone():
            return StatusTable(self._record(None).status)
        return StatusTable(self.latest().status())

    @line_magic
    @_reads
    def mw_logs(self, given: Namespace, _cell: str) -> str | None:
        """Show what tasks printed."""
        record = self._record(given.run)
        if given.follow and given.run is None:
            self._follow(given, self.latest())
            return None
        text = "\n".join(self._log_lines(given, record))
        if not given.quiet and not given.out:
            print(text)  # noqa: T201 - the output of the cell
        return text

    def _record(self, number: int | None) -> Record:
        if number is None and self._current is not None and not self.cluster_gone():
            return self.latest().record
        known = {record.number: record for record in runs()}
        if not known:
            raise NoRun("no runs are recorded here yet; a `%%mw_worker` cell launches one")
        chosen = max(known) if number is None else number
        if chosen not in known:
            raise NoRun(f"there is no run {chosen}; %mw_runs lists those there are")
        return known[chosen]

    def cluster_gone(self) -> bool:
        """Whether the current cluster ended."""
        cluster = self._clusters.get(self._current or "")
        return cluster is None or cluster.closed

    def _log_lines(self, given: Namespace, record: Record) -> list[str]:
        chosen = [Task.parse(given.task)] if given.task is not None else list(record.tasks)
        lines: list[str] = []
        for task in chosen:
            head = [f"--- {task} ---"] if given.task is None else []
            lines += head + self._one_log(given, record, task)
        return lines

    def _one_log(self, given: Namespace, record: Record, task: TaskName) -> list[str]:
        try:
            path = record.log_path(task, given.attempt)
        except NoRun as error:
            if given.task is not None:
                raise
            return [str(error)]
        return read(path, raw=given.raw, ansi=given.ansi, tail=given.tail, grep=given.grep)

    def _follow(self, given: Namespace, run: Run) -> None:
        """Print the lines that come, until the run is over."""
        wanted = re.compile(given.grep or "")
        for task, line in follow(run, given.task, raw=given.raw):
            if wanted.search(line):
                print(line if given.task is not None else f"[{task}] {line}")  # noqa: T201

    @line_magic
    @_reads
    def mw_stop(self, given: Namespace, _cell: str) -> Cluster | None:
        """Stop the run, or end the cluster."""
        if self.cluster_gone():
            self._say(given, "nothing is running")
            return None
        cluster = self.cluster()
        run = cluster.latest
        active = run is not None and not run.over
        if run is not None and active:
            run.stop(given.task, given.grace)
            what = f"run {run.number}" if run.over else f"{given.task} of run {run.number}"
            self._say(given, f"stopped {what}")
        elif given.task is not None:
            raise NoRun(f"nothing is running, so there is no {given.task} to stop")
        if given.cluster or not active:
            cluster.close()
            self._say(given, f"ended the cluster {cluster.config.name!r}; nothing is left running")
        if run is not None:
            self._displays.finish(run)
        return cluster

    @line_magic
    @_reads
    def mw_restart(self, given: Namespace, _cell: str) -> Run:
        """Start the gang again."""
        run = self.cluster().restart()
        if not given.quiet:
            self._show(run)
        return run

    @line_magic
    @_reads
    def mw_kill(self, given: Namespace, _cell: str) -> Run:
        """Send a task's process a signal."""
        number = _signal(given.signal)
        run = self.latest()
        run.kill(given.task, number)
        self._say(given, f"sent {number.name} to {run.cluster.spec.find(given.task)}")
        return run

    @line_magic
    @_reads
    def mw_stacks(self, given: Namespace, _cell: str) -> Stacks:
        """Show where each task is."""
        stacks = self.latest().stacks()
        self._say(given, stacks.full if given.full else str(stacks))
        return stacks

    @line_magic
    @_reads
    def mw_export(self, given: Namespace, _cell: str) -> Path:
        """Write a script that does the latest run without mwmagic."""
        run = self.latest()
        text = run.export(given.kind)
        suffix = {"script": ".sh", "slurm": ".sbatch"}[given.kind]
        path = Path(given.file or Path(run.status().script).with_suffix(suffix).name)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        self._say(given, f"wrote {path}")
        return path

    @line_magic
    @_reads
    def mw_runs(self, _given: Namespace, _cell: str) -> RunTable:
        """List the runs."""
        return RunTable(runs())

    def _say(self, given: Namespace, text: str) -> None:
        if not given.quiet:
            print(text)  # noqa: T201 - the output of the cell


def _signal(text: str) -> signal.Signals:
    """Read a signal's name or number."""
    try:
        if text.isdecimal():
            return signal.Signals(int(text))
        return signal.Signals[f"SIG{text.upper().removeprefix('SIG')}"]
    except (KeyError, ValueError):
        known = "KILL, TERM, INT, STOP, CONT, USR1 and the others of signal(7)"
        raise BadArguments(f"there is no signal {text!r}; there are {known}") from None
