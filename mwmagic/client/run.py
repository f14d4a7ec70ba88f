"""Runs, and where their tasks are, as scripts, magics and the command line use them."""

from __future__ import annotations

import signal as signals
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from mwmagic.errors import (
    BadArguments,
    ClusterError,
    NoRun,
    NotInstalled,
    RunStopped,
    SupervisorError,
    WaitTimeout,
    WorkerFailed,
)
from mwmagic.frameworks import check_installed
from mwmagic.model.cluster import TaskName, find_task
from mwmagic.model.findings import Examination
from mwmagic.model.option import check_seconds
from mwmagic.model.options import OPTIONS
from mwmagic.model.status import RunState, RunStatus, TaskState
from mwmagic.record import Record
from mwmagic.record.metrics import data_frame, frame_of
from mwmagic.record.paths import expanded
from mwmagic.words.failure import position
from mwmagic.words.live import kept_words
from mwmagic.words.run import blame, words

from .connection import CLOSE_SECONDS, REPLY_SECONDS
from .starting import attributes, inherited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mwmagic.model.findings import Cause
    from mwmagic.model.messages import Launch
    from mwmagic.model.options import ClusterOptions

    from .cluster import Cluster
    from .connection import Connection

__all__ = ["Run", "Stacks", "launch", "program_text", "tracked"]

EXAMINE_SECONDS = 60.0
"""Time limit for the tasks to be examined."""


@dataclass(frozen=True)
class Stacks(Examination):
    """Where each task of a run is, those that hold up the others first."""

    @property
    def lines(self) -> list[str]:
        """Where each task is, in words."""
        return [position(one) for one in self.positions]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    @property
    def full(self) -> str:
        """Where each task is, followed by the stacks of all its threads."""
        texts = (f"--- {task} ---\n{text}" for task, text in self.texts.items())
        return "\n".join([*self.lines, *texts])


class Run:
    """One execution of code on a cluster.

    `Cluster.run` returns it; its properties are always current.
    """

    def __init__(self, cluster: Cluster, connection: Connection, news: Mapping[str, Any]) -> None:
        self.cluster = cluster
        self._connection = connection
        self._news: Mapping[str, Any] | None = news
        self._last = RunStatus.from_json(news)
        self.number = self._last.number
        self.directory = Path(self._last.directory)

    def __repr__(self) -> str:
        return f"<Run {self.number}: {self.words}>"

    @property
    def record(self) -> Record:
        """The run's record on disk; of a live session with all cells that are over."""
        if not self._last.over and (self._last.live or self._last.state is RunState.KEPT):
            with suppress(SupervisorError):
                self._connection.request("snapshot")
        return Record(self.directory, self.number)

    @property
    def state(self) -> str:
        """Its state in one word, as `mwmagic.model.status.RunState` names it."""
        return self.status().state.value

    @property
    def words(self) -> str:
        """Its state in a few words."""
        return words(self.status())

    @property
    def over(self) -> bool:
        """Whether it ended, or was lost with its supervisor."""
        return self.status().over

    @property
    def kept(self) -> bool:
        """Whether its programs are over, and their processes stay with their variables."""
        return self.status().state is RunState.KEPT

    @property
    def cause(self) -> Cause | None:
        """The first failure, where it failed."""
        return self.status().cause

    def status(self) -> RunStatus:
        """Return the status of the run and of each task."""
        news = self._connection.news["run"]
        if news is not None and news["number"] == self.number:
            self._on_news(news)
        elif not self._last.over:
            self._last = self.record.status
        if self._connection.lost and not self._last.over:
            self._last = self._left()
        return self._last

    def _on_news(self, news: Mapping[str, Any]) -> None:
        """Read the news of this run, unless they were read before; the last are not kept twice."""
        if news is not self._news and not self._last.over:
            self._last = RunStatus.from_json(news)
            self._news = None if self._last.over else news

    def _left(self) -> RunStatus:
        """Return the run's status after the connection ended.

        Its record says whether it ended, or whether it still runs after this side hung
        up. If the supervisor was killed, the last news may be newer than the record.
        """
        kept = self.record.status
        if kept.state is not RunState.LOST and (kept.over or self._connection.closed):
            return kept
        return self._last.lost()

    def _ended(self) -> bool:
        """Return whether it reached its end; a run that was lost did not."""
        status = self.status()
        return status.over and status.state is not RunState.LOST

    def _settled(self) -> bool:
        """Return whether its programs reached their end."""
        return self._ended() or self.kept

    def logs(self, task: TaskName, attempt: int | None = None) -> bytes:
        """Return what a task printed, byte for byte.

        Raises
        ------
        ClusterError, NoRun
            There is no such task, or it was not started.
        """
        return self.record.log(find_task(task, self.cluster.tasks), attempt)

    def metrics(self, *, frame: bool = False) -> Any:  # noqa: ANN401 - pandas may be missing
        """Return what the tasks have measured so far.

        Parameters
        ----------
        frame : bool
            Return a pandas DataFrame, a column for each metric.

        Returns
        -------
        list of dict
            In the order of arrival, each with ``task``, ``attempt``, ``epoch``,
            ``step``, ``kind`` (``train``, ``validation``, ``evaluate``; ``report`` from
            `mwmagic.worker.report`), ``final`` at the end of an epoch, ``metrics``, and
            ``wall``, seconds since 1970.

        Raises
        ------
        NotInstalled
            A frame without pandas.
        """
        entries = self.record.metrics()
        return data_frame(entries) if frame else entries

    def usage(self, *, frame: bool = False) -> Any:  # noqa: ANN401 - pandas may be missing
        """Return what the tasks have used of their machines so far.

        Parameters
        ----------
        frame : bool
            Return a pandas DataFrame.

        Returns
        -------
        list of dict
            In the order of arrival, every two seconds for each task, later less often. Each has
            ``task``, ``attempt``, ``wall``, seconds since 1970, and ``seconds`` since the run
            began; ``cpus``, how many were busy with the task's processes; their ``memory``, in
            bytes; bytes a second ``read`` from disks and ``written``; bytes a second that the
            network of the task's machine has ``received`` and ``sent``, which includes other
            programs; and with a driver of NVIDIA's ``gpu``, the mean part of the time in which
            the task's GPUs computed, and the bytes of their ``gpu_memory``.

        Raises
        ------
        NotInstalled
            A frame without pandas.
        """
        entries = self.record.usage()
        return frame_of(entries) if frame else entries

    def figure(self, *metrics: str) -> Any:  # noqa: ANN401 - matplotlib may be missing
        """Return the curves of metrics as a figure, whose `savefig` writes PNG, SVG or PDF.

        Parameters
        ----------
        metrics : str
            Their names; by default a loss and an accuracy.

        Returns
        -------
        matplotlib.figure.Figure
            A chart for each, with the workers' mean and spread.

        Raises
        ------
        BadArguments, NoRun
            There is no such metric, or none at all.
        NotInstalled
            There is no matplotlib.
        """
        from mwmagic.experiments.compare import figure  # which few need

        return figure([self.record], metrics)

    def history(self) -> dict[str, list[float]]:
        """Return what the last `fit` returned on the chief: ``History.history``.

        Raises
        ------
        NoRun
            No `fit` has ended.
        """
        return self.record.history()

    def wait(
        self,
        timeout: float | None = None,
        progress: Callable[[RunStatus], None] | None = None,
    ) -> Run:
        """Wait for the end.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most.
        progress : callable, optional
            Called with each new status while waiting, and with that of the end.

        Returns
        -------
        Run
            This one, finished; its processes may be kept.

        Raises
        ------
        WorkerFailed
            A task failed.
        RunStopped
            It was stopped.
        WaitTimeout
            It is still going.
        SupervisorLost
            Its supervisor went away.
        ClusterError
            The timeout is invalid, or the run has no end of its own: it is a live session, or this
            process coordinates its servers.
        """
        if timeout is not None:
            timeout = check_seconds("timeout", timeout)
        self._check_end(timeout)
        if progress is not None:
            stop = self._connection.listen(lambda _: progress(self.status()))
        try:
            ended = self._connection.wait(lambda _: self._settled(), timeout)
        finally:
            if progress is not None:
                stop()
        if progress is not None and ended:
            progress(self.status())  # listeners are called after those that wait are woken
        if not ended:
            raise WaitTimeout(
                f"run {self.number} is still going after {timeout:g} s ({self.words}); "
                "wait() waits again, stop() stops it"
            )
        return self._judge()

    def reply(self, task: TaskName, text: str | None) -> None:
        """Answer what a task asks, as its status says; None raises EOFError there.

        Raises
        ------
        NoRun, SupervisorError
            The run is over, or the task asks nothing.
        """
        name = str(find_task(task, self.cluster.tasks))
        self._connection.request("reply", task=name, text=text)

    def _check_end(self, timeout: float | None) -> None:
        """Refuse to wait for what never ends by itself."""
        if self.cluster.options.coordinator and timeout is None and not self.over:
            raise ClusterError(
                "this process coordinates the run's servers, which serve until they are stopped: "
                "there is no end to wait for"
            )
        if self.status().live and timeout is None and not self.over:
            raise ClusterError(
                f"run {self.number} is a live session, which takes cells until it is stopped: "
                "there is no end to wait for"
            )

    def ended_within(self, seconds: float) -> bool:
        """Wait for at most that long; return whether the run is over, or kept.

        Raises
        ------
        ClusterError
            It is negative, or not a finite number.
        SupervisorLost
            Its supervisor went away.
        """
        return self._connection.wait(lambda _: self._settled(), check_seconds("seconds", seconds))

    def stirred_within(self, seconds: float) -> bool:
        """Wait for at most that long; return whether the run is over or kept, or a task asks.

        Raises
        ------
        ClusterError
            It is negative, or not a finite number.
        SupervisorLost
            Its supervisor went away.
        """
        limit = check_seconds("seconds", seconds)
        return self._connection.wait(lambda _: self._settled() or bool(self.status().asks), limit)

    def _judge(self) -> Run:
        self.cluster._judged.add(self.number)  # noqa: SLF001 - of this package
        status = self.status()
        if status.result is RunState.FAILED:
            lines = ([] if status.cause else ["no task reported a cause"]) + blame(status)
            kept = [f"  {kept_words(status)}"] if status.state is RunState.KEPT else []
            text = f"run {self.number} failed: " + "\n".join([*lines, *kept])
            raise WorkerFailed(text, run=self, cause=status.cause)
        if status.state is RunState.STOPPED:
            raise RunStopped(f"run {self.number} was stopped before its end", run=self)
        return self

    def stop(self, task: TaskName | None = None, grace: float | None = None) -> None:
        """End the run, or one task of it, and wait until it is gone.

        Parameters
        ----------
        task : int, str or Task, optional
            An evaluator or a worker beside parameter servers can be stopped
            alone; any other takes the run with it.
        grace : float, optional
            Seconds between SIGTERM and SIGKILL.

        Raises
        ------
        SupervisorError
            The supervisor does not listen.
        WaitTimeout
            Something takes longer to end than a signal that cannot be ignored.
        """
        if self._ended():
            return
        name = None if task is None else str(find_task(task, self.cluster.tasks))
        seconds = None if grace is None else OPTIONS["grace"].check(grace)
        with suppress(NoRun):  # it has ended since
            self._connection.request("stop", seconds=REPLY_SECONDS, task=name, grace=seconds)
        limit = (self.cluster.options.grace if seconds is None else seconds) + CLOSE_SECONDS
        if not self._connection.wait(lambda _: self._gone(name), limit):
            raise WaitTimeout(
                f"run {self.number} was asked to end {limit:g} s ago ({self.words}); "
                "`%mw_stop --cluster`, or Cluster.shutdown(), ends everything"
            )

    def _gone(self, task: str | None) -> bool:
        status = self.status()
        ended = task is not None and status.tasks[task].state is TaskState.ENDED
        return status.state is not RunState.LOST and (status.over or ended)

    def kill(self, task: TaskName, signal: int = signals.SIGKILL) -> None:
        """Send a task's process a signal, to inject a fault.

        Raises
        ------
        ClusterError
            The system has no such signal, or the run has no such task.
        NoRun, SupervisorError
            The run is over, or the task has no process.
        """
        if signal not in signals.valid_signals():
            raise ClusterError(f"signal must be one of signal.valid_signals(), not {signal!r}")
        if self._ended():
            raise NoRun(f"run {self.number} is over; there is no process to send a signal to")
        name = str(find_task(task, self.cluster.tasks))
        self._connection.request("signal", task=name, signal=int(signal))

    def export(self, kind: str) -> str:
        """Return a script that repeats this run without mwmagic; see `Cluster.export`.

        It runs the code in the run's record.

        Raises
        ------
        ClusterError
            The tasks run different files, or this cluster cannot be run in that way.
        NoRun
            The record of the run is gone.
        """
        from .export import export_record

        return export_record(kind, self.record)

    def stacks(self) -> Stacks:
        """Find out where each task is.

        Returns
        -------
        Stacks
            ``lines`` says where each task is, those that hold up the others
            first; ``texts`` holds every thread's stack, by task.

        Raises
        ------
        NoRun, SupervisorError
            The run is over or about to be, or no task has a process.
        """
        if self._ended():
            raise NoRun(f"run {self.number} is over; there is no process to examine")
        before = self.status().examined
        self._connection.request("stacks")
        self._connection.wait(
            lambda _: self._ended() or self.status().examined > before, EXAMINE_SECONDS
        )
        found = self.record.stacks()
        return Stacks(found.positions, found.texts)


def program_text(path: Path) -> str:
    """Return a program's text, byte for byte: its encoding is for the interpreter to judge."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} to run")
    return path.read_bytes().decode("utf-8", "surrogateescape")


def launch(
    cluster: Cluster,
    what: Launch,
    source: str | None,
    task: TaskName | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    draft: Path | None = None,
    restarts: int | None = None,
    replace: bool | None = None,
) -> Run:
    """Launch a program on a cluster, as `Cluster.run` says, which takes less.

    `draft` takes its file's place as soon as the launch is accepted.
    """
    connection, options = cluster._connection, cluster.options  # noqa: SLF001 - of this package
    tasks = [] if task is None else [str(find_task(task, cluster.tasks))]
    again = options.restarts if restarts is None else restarts
    what, text = _prepared(what, source, options.env, params, restarts=again)
    if options.python is None:  # another one has packages of its own
        check_installed(text)
    before, replaces = cluster.latest, options.replace if replace is None else replace
    if before is not None and (before.kept if what.keep else replaces and _is_going(before)):
        before.stop()
    with tracked(what, options) as what:
        news = connection.request(
            "launch",
            tasks=tasks,
            source=text,
            draft="" if draft is None else str(draft.resolve()),
            options={} if restarts is None else {"restarts": restarts},
            **what.as_json(),
        )
    return Run(cluster, connection, news["run"])


def _prepared(
    launch: Launch,
    source: str | None,
    env: Mapping[str, str],
    params: Mapping[str, Any] | None,
    *,
    restarts: int,
) -> tuple[Launch, str]:
    """Return a launch with all that its processes inherit, and the text that it runs.

    `env` has the cluster's variables, and `restarts` how often its tasks may restart.
    """
    launch = replace(launch, cwd=str(expanded(launch.cwd).resolve()))
    text = program_text(launch.path) if source is None else source
    if launch.keep and restarts:
        raise BadArguments(
            "restarts end the processes of a run that failed, and the processes to be kept are "
            "those; leave one of them out, or add `--restarts 0` if the cluster has restarts"
        )
    args, given = launch.args, OPTIONS["env"].check(launch.given)
    if params:
        from mwmagic.experiments.parameters import settings  # which few launches need

        chosen = settings(text, params, args, given)
        text, args, given = chosen.source, tuple(chosen.args), {**given, **chosen.env}
    every = {**inherited(), **env, **given}
    if "environ" in text or "getenv" in text:
        from mwmagic.experiments.parameters import numbers_in

        given = {**numbers_in(text, every), **given}
    return replace(launch, args=args, env=every, given=given, attributes=attributes()), text


@contextmanager
def tracked(launch: Launch, options: ClusterOptions) -> Iterator[Launch]:
    """Yield a launch whose tasks are one run of the tracker that the cluster was declared with.

    Variables that were given are left as they are.
    """
    name = {"mlflow": "MLFLOW_RUN_ID", "wandb": "WANDB_RUN_GROUP"}.get(options.tracker)
    if options.tracker == "tensorboard" and find_spec("tensorboard") is None:
        raise NotInstalled("--tracker tensorboard needs TensorBoard: pip install tensorboard")
    if name is None or name in {**options.env, **launch.given}:
        yield launch
    elif name == "WANDB_RUN_GROUP":
        group = f"{launch.path.stem}-{time.strftime('%Y%m%d-%H%M%S')}-{token_hex(2)}"
        yield replace(launch, env={**launch.env, name: group})
    else:
        from mwmagic.experiments.trackers import mlflow_run  # which imports MLflow

        with mlflow_run(launch.path.name, launch.env) as variables:
            yield replace(launch, env={**launch.env, **variables})


def _is_going(run: Run) -> bool:
    """Return whether a run is a program that is going, with all of its tasks launched."""
    status = run.status()
    return not (status.settled or status.live or status.state is RunState.FORMING)
