"""Clusters, as scripts, magics and the command line use them."""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic.errors import MwmagicError, NoCluster, SupervisorError
from mwmagic.frameworks import tf_config
from mwmagic.model.cluster import ClusterSpec, Task, TaskName, find_task
from mwmagic.model.machine import MachineStatus
from mwmagic.model.messages import Launch
from mwmagic.model.options import OPTIONS, ClusterOptions, parameters, signature
from mwmagic.model.status import RunState
from mwmagic.record.paths import expanded

from . import starting
from .connection import REPLY_SECONDS, Connection, fetched, placed
from .run import Run, launch
from .starting import Coordinator, connections, declared, discard, server_of, start_supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from mwmagic.experiments.sweep import Sweep
    from mwmagic.model.machine import Fetch
    from mwmagic.model.messages import Message

    from .ending import Ending
    from .live.session import Live

__all__ = ["Cluster", "end"]

_LOGGER = logging.getLogger("mwmagic")

AT_EXIT_SECONDS = 1.0
"""Time limit for a supervisor's answer to an owner that exits."""


def _spec(news: Message) -> ClusterSpec:
    """Return a cluster's tasks and addresses."""
    addresses = news["cluster"]["addresses"]
    return ClusterSpec(tuple((Task.parse(name), at) for name, at in addresses.items()))


class Cluster:
    """Tasks on machines, with a port held for each, ready to run code.

    Parameters
    ----------
    {parameters}

    Raises
    ------
    ClusterError
        The declaration is invalid.
    NotInstalled, SupervisorError
        It cannot be started.

    Examples
    --------
    >>> with Cluster(workers=2) as cluster:
    ...     run = cluster.run("main.py")
    ...     run.wait()
    """

    __signature__ = signature()

    def __init__(self, workers: int = 1, **options: Any) -> None:  # noqa: ANN401 - see ClusterOptions
        self._open(_LOGGER.warning, workers=workers, **options)

    @classmethod
    def declare(
        cls,
        on_message: Callable[[str], None],
        while_starting: Callable[[], None] | None = None,
        **options: Any,  # noqa: ANN401 - see ClusterOptions
    ) -> Cluster:
        """Return a new cluster; `on_message` gets what a scheduler says while machines are pending.

        `while_starting` is called while the supervisor starts, and so costs little time of its own.
        """
        cluster = cls.__new__(cls)
        cluster._open(on_message, while_starting, **options)  # noqa: SLF001 - of this class
        return cluster

    def _open(
        self,
        on_message: Callable[[str], None],
        while_starting: Callable[[], None] | None = None,
        **options: Any,  # noqa: ANN401 - see ClusterOptions
    ) -> None:
        start = declared(**options)
        path = starting.new_socket(start.options.name, start.options.root)
        process = start_supervisor(start, path, while_starting)
        try:
            self._bind(Connection(path, owner=True), process, owner=True)
        except BaseException:
            discard(process, path)
            raise
        try:
            placed(self._connection, on_message)
            self._coordinate()
        except BaseException:
            self.close()
            raise

    @classmethod
    def attach(cls, name: str = "cluster", directory: Path | str | None = None) -> Cluster:
        """Return a cluster that outlived its owner, such as a restarted kernel.

        If it is ending, this waits until it has ended.

        Raises
        ------
        NoCluster
            There is none of that name below `directory`.
        ClusterOwned
            There is one, but it belongs to another process.
        SupervisorError
            There is one, but it is of another version.
        """
        return cls._attach(name, expanded(directory or ".").resolve(), lambda: None)

    @classmethod
    def _attach(cls, name: str, root: Path, waits: Callable[[], None]) -> Cluster:
        """Attach; `waits` is called if it is ending, before the wait for its end."""
        refusals: list[SupervisorError] = []
        found = starting.existing_sockets(name, root)
        for connection in connections(found, refusals, owner=True, waits=waits):
            cluster = cls._of(connection, owner=True)
            placed(connection, _LOGGER.warning)
            cluster._coordinate()  # noqa: SLF001 - of this class
            return cluster
        if refusals:
            raise type(refusals[0])(f"cluster {name!r} of {root}: {refusals[0]}")
        raise NoCluster(
            f"no detached cluster {name!r} is running for {root}; `mwmagic ps` lists those that are"
        )

    @classmethod
    def _of(cls, connection: Connection, *, owner: bool) -> Cluster:
        """Return the cluster at the other end of a connection."""
        cluster = cls.__new__(cls)
        cluster._bind(connection, None, owner=owner)  # noqa: SLF001 - of this class
        return cluster

    def _bind(
        self, connection: Connection, process: subprocess.Popen[bytes] | None, *, owner: bool
    ) -> None:
        self._connection = connection
        self._process = process
        self._owner = owner
        self._coordinator: Coordinator | None = None
        self._home = os.getpid()
        self._judged: set[int] = set()  # the runs whose outcome a wait has reported
        self._declared: tuple[Mapping[str, Any], ClusterOptions] | None = None  # as last read
        self._latest: Run | None = None
        if owner:
            atexit.register(self._farewell)

    def _farewell(self) -> None:
        """Have the supervisor end the cluster, with grace after this process, or keep it."""
        ours = os.getpid() == self._home  # and not a fork's
        if ours and not self.closed:
            with suppress(MwmagicError):
                self._connection.request("leave", seconds=AT_EXIT_SECONDS)

    def _coordinate(self) -> None:
        """Make this process the cluster's chief, if it was declared as the coordinator."""
        if not self.options.coordinator:
            return
        self._coordinator = Coordinator(self.options.framework)
        self._serve()
        self._connection.listen(self._follow)
        self._follow(self._connection.news)

    def _follow(self, news: Message) -> None:
        if self._coordinator is None:
            return
        if self.closed:
            self._coordinator.leave()
        else:
            self._coordinator.meet(_spec(news))

    def _serve(self) -> None:
        """Start the servers that this process coordinates, if they are not running."""
        run = self.latest
        if self.options.coordinator and (run is None or run.over):
            server = server_of(self.options.framework)
            self.run(server.name, source=server.read_text(), cwd=self.options.directory)

    def __enter__(self) -> Cluster:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        options = self.options
        if self.closed:
            return f"Cluster {options.name!r}: {self._end_words()}"
        head = f"Cluster {options.name!r} ({options.framework}, {options.engine})"
        lines = (
            f"  {task}  {at}" + ("" if task in self.tasks else "  this process")
            for task, at in self.spec.placed
        )
        return "\n".join([head, *lines])

    def _end_words(self) -> str:
        run = self.latest
        if run is None or run.status().state is not RunState.LOST:
            return "ended"
        return f"its supervisor was killed, and run {run.number} was lost with it"

    @property
    def options(self) -> ClusterOptions:
        """The options that the cluster was declared with, including later updates."""
        given = self._connection.news["cluster"]["options"]
        if self._declared is None or self._declared[0] != given:
            self._declared = given, ClusterOptions.from_json(given)
        return self._declared[1]

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks, in rank order."""
        return self.options.members

    @property
    def spec(self) -> ClusterSpec:
        """The tasks and their current addresses."""
        return _spec(self._connection.news)

    @property
    def reserved(self) -> float | None:
        """Until when the cluster is reserved for a new owner, in seconds of the wall clock.

        None if it is not: it has an owner, something runs, it waits for ever, or it ended.
        """
        until: float | None = self._connection.news["cluster"]["reserved"]
        return None if self.closed else until

    @property
    def idle(self) -> float | None:
        """Since when the cluster has had no owner and run nothing, in seconds of the wall clock."""
        since: float | None = self._connection.news["cluster"]["idle"]
        return None if self.closed else since

    @property
    def closed(self) -> bool:
        """Whether the cluster ended, or `close` hung up on it."""
        return self._connection.lost or self._connection.closed

    @property
    def machines(self) -> tuple[MachineStatus, ...]:
        """The machines that the tasks run on, in their current state."""
        return tuple(map(MachineStatus.read, self._connection.news["cluster"]["machines"]))

    @property
    def latest(self) -> Run | None:
        """The run that began last on this cluster, if any."""
        news = self._connection.news["run"]
        if news is None:
            return None
        if self._latest is None or self._latest.number != news["number"]:
            self._latest = Run(self, self._connection, news)
        return self._latest

    def fetch(
        self,
        task: TaskName,
        path: Path | str,
        to: Path | str | None = None,
        *,
        overwrite: bool = False,
        on_message: Callable[[Fetch], None] = lambda _: None,
    ) -> Path:
        """Fetch a file or a directory from the machine that a task is on.

        Parameters
        ----------
        task : int, str or Task
            The task.
        path : path
            Its path there; a relative one is below the directory that the task runs in.
        to : path, optional
            Where to put it, or the directory to put it into; by default a relative path
            leads to the same place here, and what has an absolute one goes into the
            directory that the run was launched in.
        overwrite : bool
            Whether it replaces what is there.
        on_message : callable, optional
            Called with the `mwmagic.model.machine.Fetch` while it is on its way.

        Returns
        -------
        Path
            Where it is.

        Raises
        ------
        ClusterError, ClusterPending
            There is no such task, or the cluster has no machines yet.
        FileTrouble
            It cannot or must not be written.
        SupervisorError
            It cannot be read there, or the machine is lost.
        """
        name = str(find_task(task, self.tasks))
        wish = None if to is None else str(expanded(to).absolute())
        request = {"task": name, "path": str(path), "to": wish, "overwrite": overwrite}
        return Path(fetched(self._connection, on_message, **request).to)

    def tf_config(self, task: TaskName) -> str:
        """Return the TF_CONFIG of a task, as JSON.

        Raises
        ------
        ClusterError
            There is no such task.
        """
        spec = self.spec
        return tf_config(spec, spec.find(task))

    def run(
        self,
        script: Path | str,
        *,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        task: TaskName | None = None,
        source: str | None = None,
        cwd: Path | str | None = None,
        restarts: int | None = None,
        keep: bool = False,
        answered: bool = False,
        replace: bool | None = None,
    ) -> Run:
        """Launch a file on every task, or on one.

        Parameters
        ----------
        script : path
            The file, as ``python script`` would name it.
        args : sequence of str
            Its arguments.
        env : mapping of str to str, optional
            Further variables.
        params : mapping of str to object, optional
            Values of the program's parameters by name: of literals at its top level, of arguments
            and of variables that it reads. The file stays as it is; a copy of it runs with them.
        task : int, str or Task, optional
            Launch it on this task only: in the run that waits for it, or in a
            new one that waits for the others.
        source : str, optional
            The code, where it is not to be read from `script`.
        cwd : path, optional
            The directory that it runs in; by default the current one.
        restarts : int, optional
            How many times in a row all tasks restart after a failure; by default
            as declared for the cluster.
        keep : bool
            Whether the processes stay with their variables when the file has run, well or not,
            until the run is stopped: `live` then runs cells in them. An earlier run's that are
            kept are let go.
        answered : bool
            Whether `Run.reply` will answer what the file asks by `input` or a debugger. By default
            it fails at once if it asks.
        replace : bool, optional
            Whether a program that is going is stopped first, as `Run.stop` does; by default as
            declared for the cluster.

        Returns
        -------
        Run
            It continues in the background.

        Raises
        ------
        BadArguments
            Processes are to be kept that restarts would end; or the program has no such parameter,
            or it cannot be set to this value.
        ClusterError, FileNotFoundError
            There is no such task, or file.
        NotInstalled
            The code imports a framework that is missing.
        RunActive
            The cluster is busy.
        """
        what = Launch(
            str(script),
            args=tuple(map(str, args)),
            given=env or {},
            cwd=str(cwd or "."),
            keep=keep,
            answered=answered,
        )
        return launch(self, what, source, task, params=params, restarts=restarts, replace=replace)

    def sweep(
        self,
        script: Path | str,
        space: Mapping[str, Any] | Iterable[Mapping[str, Any]],
        *,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        random: int | None = None,
        seed: int = 0,
        repeat: int = 1,
        parallel: int | str = 1,
        metric: str = "",
        stop_when: str = "",
        progress: Callable[[str], None] | None = print,
        study: Any = None,  # noqa: ANN401 - Optuna may be missing
    ) -> Sweep:
        """Run a file with many combinations of its parameters, and wait for all of them.

        Parameters
        ----------
        script : path
            The file, as ``python script`` would name it.
        space : mapping of str to object
            For the name of each parameter the values to try, or a range as ``"log(1e-4,1e-1)"``;
            or one mapping of values for each trial, in any iterable.
        args, env : sequence of str, mapping of str to str
            The file's arguments, and further variables.
        random, seed : int, optional
            How many combinations to draw, and what determines which; by default all are tried.
        repeat : int
            How many times each is tried, each time with another seed if the program has a `seed`.
        parallel : int or str
            How many trials run at once, each on a cluster of its own; ``"auto"`` fills the CPUs.
        metric, stop_when : str
            What says which is best, by default the first loss that there is; and a filter such as
            ``val_loss>2 and epoch>=3`` that ends a trial early.
        progress : callable, optional
            Called with a line when a trial begins or ends, and with what was found.
        study : optuna.Study, optional
            It suggests the values of `random` trials, and its pruner ends some by their `metric`.

        Returns
        -------
        Sweep
            It is in the record. Trials that failed do not end it.

        Raises
        ------
        BadArguments
            The program has no such parameter, or it cannot be set to one of the values.
        """
        from .sweep import sweep_on

        words, variables = tuple(map(str, args)), OPTIONS["env"].check(env or {})
        plan = {"args": words, "env": variables, "metric": metric, "stop_when": stop_when}
        plan |= {"random": random, "seed": seed, "repeat": repeat, "study": study}
        return sweep_on(self, str(script), space, parallel=parallel, progress=progress, **plan)

    def live(self) -> Live:
        """Return the session of live cells; begin one if there is none.

        Each task has an interpreter that keeps its variables from cell to cell. If the latest run's
        processes are kept, it uses those, with the variables of their program.

        Raises
        ------
        RunActive
            The cluster is busy with a program.
        """
        from .live.session import session_of

        return session_of(self, self._connection)

    def restart(self) -> Run:
        """Restart all tasks of the latest run, as a new run if that one is over.

        Raises
        ------
        NoRun
            Nothing has been run yet.
        RunActive
            The latest run is being stopped.
        """
        return Run(self, self._connection, self._connection.request("restart")["run"])

    def export(
        self,
        kind: str,
        script: Path | str,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> str:
        """Return a script that runs a file on every task without mwmagic.

        Parameters
        ----------
        kind : str
            ``script`` for the shell and one machine, ``slurm`` for ``sbatch``.
        script : path
            The file, as seen from where the script will be run.
        args : sequence of str
            Its arguments.
        env : mapping of str to str, optional
            Variables besides those declared for the cluster.

        Raises
        ------
        ClusterError
            The kind is unknown, or this cluster cannot be run in that way.
        """
        from .export import Shared, export

        given = {**self.options.env, **OPTIONS["env"].check(env or {})}
        shared = Shared(self.options, self._connection.news["cluster"]["shares"])
        return export(kind, shared, [str(script), *map(str, args)], given)

    def update(self, **changes: Any) -> ClusterOptions:  # noqa: ANN401 - see ClusterOptions
        """Change options of the running cluster.

        Parameters
        ----------
        changes
            New values of options that a running cluster adopts; the error for any other
            names them. Later launches use them; an active run keeps the options that it
            was launched with.

        Returns
        -------
        ClusterOptions
            All options, with the changes.

        Raises
        ------
        ClusterError
            An option cannot be changed, or not to that value.
        """
        updated = self.options.updated(changes)
        values = {name: getattr(updated, name) for name in changes}
        self._connection.request("update", options=values)
        return self.options

    def detach(self) -> None:
        """Give up the cluster, which then outlives this process; `attach` finds it again."""
        self._connection.request("detach")
        self._owner = False
        atexit.unregister(self._farewell)

    def close(self) -> None:
        """End the cluster if this process owns it; otherwise hang up and leave it running."""
        if self._owner:
            self.shutdown()
        else:
            self._hang_up()

    def shutdown(self) -> None:
        """End the cluster, even one that another process owns: every process, every port.

        A run that is going is stopped with its grace.

        Raises
        ------
        SupervisorError
            A process of the cluster could not be ended.
        """
        end([self])

    def _end(self, ending: Ending) -> None:
        """Wait for the cluster's end, and clean up after it."""
        try:
            ending.complete(self.options.grace)
        finally:
            self._hang_up()
            if self._process is not None:
                self._reap(self._process)
            # A supervisor that was killed leaves it behind.
            starting.remove_socket(self._connection.path)

    def _hang_up(self) -> None:
        atexit.unregister(self._farewell)
        self._connection.close()
        if self._coordinator is not None:
            self._coordinator.leave()

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(REPLY_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


Cluster.__doc__ = (Cluster.__doc__ or "").replace("    {parameters}", parameters())


def end(which: Iterable[Cluster]) -> None:
    """End clusters, all at the same time; see `Cluster.shutdown`."""
    from .ending import Ending  # with psutil, which is only needed here

    endings = [(one, Ending(one._connection)) for one in which]  # noqa: SLF001 - of this module
    with ExitStack() as stack:  # so that all are waited for, whatever one of them raises
        for cluster, ending in endings:
            stack.callback(cluster._end, ending)  # noqa: SLF001 - of this module
