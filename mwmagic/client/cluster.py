"""Clusters, as scripts, magics and the command line use them."""

from __future__ import annotations

import os
import subprocess
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic.errors import (
    ClusterError,
    NoCluster,
    NotInstalled,
    SupervisorError,
    SupervisorLost,
)
from mwmagic.frameworks import framework_for, tf_config
from mwmagic.frameworks.requirements import check_installed
from mwmagic.gang import Policy
from mwmagic.model.cluster import ClusterSpec, Task, TaskName, find_task, make_tasks
from mwmagic.model.config import CHIEF, KERAS_MODES, ON_STALL, Config
from mwmagic.model.machine import MachineStatus

from . import sockets
from .connection import Connection, start_supervisor
from .coordinator import Coordinator, check_coordinator, server_of
from .export import export
from .inheritance import inherited
from .run import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from mwmagic.model.messages import Message

__all__ = ["Cluster", "clusters"]

CLOSE_SECONDS = 15.0


def _read(path: Path) -> str:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} to run")
    # Byte for byte, whatever encoding it declares: the interpreter is to judge that.
    return path.read_bytes().decode("utf-8", "surrogateescape")


def _variables(env: Mapping[str, str] | None) -> dict[str, str]:
    """Return environment variables as text: ``env={"EPOCHS": 3}`` means the obvious."""
    return {str(name): str(value) for name, value in (env or {}).items()}


def _remove(path: Path) -> None:
    """Remove a dead supervisor's socket, and its log beside it."""
    path.unlink(missing_ok=True)
    path.with_suffix(".log").unlink(missing_ok=True)


def _check_keras(mode: str) -> None:
    if mode not in KERAS_MODES:
        raise ClusterError(f"unknown Keras mode {mode!r}; the modes are {', '.join(KERAS_MODES)}")
    if mode == "legacy" and find_spec("tf_keras") is None:
        raise NotInstalled('Keras 2 is not installed: pip install "tf-keras"')


def _spec(news: Message) -> ClusterSpec:
    """Return a cluster's tasks and addresses."""
    addresses = news["cluster"]["addresses"]
    return ClusterSpec(tuple((Task.parse(name), at) for name, at in addresses.items()))


def _config_of(news: Mapping[str, Any]) -> Config:
    """Return what a running cluster was declared as."""
    return Config(
        name=news["name"],
        directory=news["directory"],
        tasks=[
            name for name in news["addresses"] if not (news["coordinator"] and name == str(CHIEF))
        ],
        owner=os.getpid(),
        framework=news["framework"],
        engine=news["engine"],
        keras=news["keras"],
        devices=news["devices"],
        gpus=news["gpus"],
        threads=news["threads"],
        given=news["given"],
        coordinator=news["coordinator"],
        policy=Policy(restarts=news["restarts"], grace=news["grace"]),
        detach=news["detached"],
    )


class Cluster:
    """Tasks on machines, with a port held for each, ready to run code.

    Parameters
    ----------
    workers : int
        How many workers.
    chief, evaluator : bool
        Whether there is one besides.
    ps : int
        How many parameter servers.
    coordinator : bool
        Whether this process is the chief: the tasks run TensorFlow's servers
        from now on, and ``ClusterCoordinator`` works here. TF_CONFIG is set
        until the cluster ends.
    name : str
        Under which `attach` finds it again.
    directory : path, optional
        Below which the record is kept; by default the current one.
    framework : str
        ``tensorflow``, ``jax`` or ``torch``: what the processes read to meet.
    engine : str
        ``local``: what places tasks on machines.
    keras : str
        ``auto`` repairs what Keras 3 lacks under several workers, ``plain``
        leaves it alone, ``legacy`` uses tf-keras.
    devices : int
        Virtual CPU devices per task; 0 leaves it to the framework.
    gpus : int, optional
        GPUs for each chief and worker; by default the machine's are divided
        between them, and nobody has one where there are fewer than tasks.
    threads : int, optional
        Threads for each task's operations; 0 leaves them to the framework; by
        default the machine's processors are divided between its tasks. What
        the environment sets stays.
    restarts : int
        How many times in a row the gang starts again after a failure.
    grace : float
        Seconds between SIGTERM and SIGKILL when somebody stops a run.
    stall : float
        Seconds without any task's output or CPU time after which a run counts
        as stalled; 0 is never.
    on_stall : str
        ``report`` says where each task is, ``restart`` makes it a failure too.
    env : mapping of str to str, optional
        Variables for the workers, besides those of this process.
    warm : bool
        Whether to keep a process that has imported the framework, to fork
        workers from: they are ready in a fraction of a second.
    detach : bool
        Whether the cluster outlives this process.

    Raises
    ------
    ClusterError
        The description cannot work.
    NotInstalled, SupervisorError
        It cannot be started.

    Examples
    --------
    >>> with Cluster(workers=2) as cluster:
    ...     run = cluster.run("main.py")
    ...     run.wait()
    """

    def __init__(
        self,
        workers: int = 1,
        *,
        chief: bool = False,
        ps: int = 0,
        evaluator: bool = False,
        coordinator: bool = False,
        name: str = "cluster",
        directory: Path | str | None = None,
        framework: str = "tensorflow",
        engine: str = "local",
        keras: str = "auto",
        devices: int = 0,
        gpus: int | None = None,
        threads: int | None = None,
        restarts: int = 0,
        grace: float = Policy.grace,
        stall: float = Config.stall,
        on_stall: str = Config.on_stall,
        env: Mapping[str, str] | None = None,
        warm: bool = True,
        detach: bool = False,
    ) -> None:
        _check_keras(keras)
        if on_stall not in ON_STALL:
            raise ClusterError(f"on_stall is {' or '.join(ON_STALL)}, not {on_stall!r}")
        tasks = make_tasks(workers, chief=chief, ps=ps, evaluator=evaluator)
        if coordinator:
            check_coordinator(chief=chief, ps=ps, evaluator=evaluator, framework=framework)
        module = framework_for(framework).module
        given = _variables(env)
        whole = {**inherited(), **given}
        self.config = Config(
            name=name,
            directory=str(Path(directory or ".").resolve()),
            tasks=[str(task) for task in tasks],
            owner=os.getpid(),
            framework=framework,
            engine=engine,
            keras=keras,
            devices=devices,
            gpus=gpus,
            threads=threads,
            coordinator=coordinator,
            policy=Policy(restarts=restarts, grace=grace),
            stall=stall,
            on_stall=on_stall,
            warm=warm and find_spec(module) is not None,
            detach=detach,
            env=whole,
            given=given,
        )
        path = sockets.fresh(name, Path(self.config.directory))
        process = start_supervisor(self.config, path)
        self._bind(Connection(path, owner=True), process)
        try:
            self._coordinate()
        except BaseException:
            self.close()
            raise

    @classmethod
    def attach(cls, name: str = "cluster", directory: Path | str | None = None) -> Cluster:
        """Return a cluster that outlived its owner, such as a restarted kernel.

        Raises
        ------
        NoCluster
            There is none of that name below `directory`.
        SupervisorError
            There is one, but it has an owner already, or is of another version.
        """
        root = Path(directory or ".").resolve()
        refusals: list[str] = []
        for path in sockets.existing(name, root):
            found = cls._reach(path, refusals, owner=True)
            if found is not None:
                found._coordinate()  # noqa: SLF001 - of this class
                return found
        if refusals:
            raise SupervisorError(f"cluster {name!r} of {root}: {refusals[0]}")
        raise NoCluster(f"no detached cluster {name!r} is running for {root}")

    @classmethod
    def _reach(cls, path: Path, refusals: list[str], *, owner: bool) -> Cluster | None:
        """Connect to the cluster behind a socket, or note why it does not want that."""
        try:
            return cls._connect(path, owner=owner)
        except SupervisorError as error:
            refusals.append(str(error))
            return None

    @classmethod
    def _connect(cls, path: Path, *, owner: bool) -> Cluster | None:
        """Return the cluster behind a socket; None, and no socket, where nobody listens."""
        try:
            connection = Connection(path, owner=owner)
        except SupervisorLost:
            _remove(path)
            return None
        cluster = cls.__new__(cls)
        cluster.config = _config_of(connection.news["cluster"])
        cluster._bind(connection, None)  # noqa: SLF001 - of this class
        return cluster

    def _bind(self, connection: Connection, process: subprocess.Popen[bytes] | None) -> None:
        self._connection = connection
        self._process = process
        self._coordinator: Coordinator | None = None

    def _coordinate(self) -> None:
        """Be the chief of the cluster from now on, where that is asked for."""
        if not self.config.coordinator:
            return
        self._coordinator = Coordinator(self.config)
        self.serve()
        self._connection.listen(self._follow)
        self._follow(self._connection.news)

    def _follow(self, news: Message) -> None:
        if self._coordinator is None:
            return
        if self.closed:
            self._coordinator.leave()
        else:
            self._coordinator.meet(_spec(news))

    def serve(self) -> None:
        """Start the servers that this process coordinates, if they do not run."""
        run = self.latest
        if run is None or run.over:
            server = server_of(self.config.framework)
            self.run(server.name, source=server.read_text(), cwd=self.config.directory)

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
        if self.closed:
            return f"Cluster {self.config.name!r}: ended"
        head = f"Cluster {self.config.name!r} ({self.config.framework}, {self.config.engine})"
        lines = (
            f"  {task}  {at}" + ("" if task in self.tasks else "  this process")
            for task, at in self.spec.placed
        )
        return "\n".join([head, *lines])

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks, in rank order."""
        return self.config.members

    @property
    def spec(self) -> ClusterSpec:
        """The tasks and their addresses, as they are now."""
        return _spec(self._connection.news)

    @property
    def closed(self) -> bool:
        """Whether the cluster ended."""
        return self._connection.lost

    @property
    def machines(self) -> tuple[MachineStatus, ...]:
        """The machines that the tasks are on, as they are now."""
        return tuple(map(MachineStatus.read, self._connection.news["cluster"]["machines"]))

    @property
    def latest(self) -> Run | None:
        """The run that began last on this cluster, if any."""
        news = self._connection.news["run"]
        return None if news is None else Run(self, self._connection, news)

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
        task: TaskName | None = None,
        source: str | None = None,
        cwd: Path | str | None = None,
        restarts: int | None = None,
        cell: str = "",
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
        task : int, str or Task, optional
            Launch it on this task only: in the run that waits for it, or in a
            new one that waits for the others.
        source : str, optional
            The code, where it is not to be read from `script`.
        cwd : path, optional
            Where it runs; by default the current directory.
        restarts : int, optional
            How many times in a row the gang starts again after a failure,
            where it is not as declared for the cluster.
        cell : str
            The notebook's cell that holds `source` below its first line, as
            ``In [7]``: failures then tell the line in it too.

        Returns
        -------
        Run
            It goes on in the background.

        Raises
        ------
        ClusterError, FileNotFoundError
            There is no such task, or file.
        NotInstalled
            The code imports a framework that is missing.
        RunActive
            The cluster is busy.
        """
        folder = Path(cwd or ".").resolve()
        tasks = [] if task is None else [str(find_task(task, self.tasks))]
        text = _read(folder / script) if source is None else source
        check_installed(text)
        news = self._connection.request(
            "launch",
            tasks=tasks,
            script=str(script),
            source=text,
            args=[str(arg) for arg in args],
            env={**inherited(), **self.config.given, **_variables(env)},
            given=_variables(env),
            cwd=str(folder),
            policy={} if restarts is None else {"restarts": restarts},
            cell=cell,
        )
        return Run(self, self._connection, news["run"])

    def restart(self) -> Run:
        """Start the latest run's gang again; as a new run where it is over.

        Raises
        ------
        NoRun
            Nothing ran yet.
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
        """Return a script that runs a file on every task, where mwmagic is not.

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
        given = {**self.config.given, **_variables(env)}
        config = replace(self.config, shares=self._connection.news["cluster"]["shares"])
        return export(kind, config, [str(script), *map(str, args)], given)

    def detach(self) -> None:
        """Let the cluster outlive this process; `attach` finds it again."""
        self._connection.request("detach")
        self.config = replace(self.config, detach=True)

    def listen(self, listener: Callable[[Message], None]) -> Callable[[], None]:
        """Have `listener` called with each snapshot, on a thread; return how to end that."""
        return self._connection.listen(listener)

    def close(self) -> None:
        """End the cluster: every process, every port."""
        if not self._connection.lost:
            try:
                self._connection.request("close")
                self._connection.wait(lambda _: False, CLOSE_SECONDS)
            except SupervisorError:
                pass  # gone, which is what was asked for; or it hangs, and is killed below
        gone = self._connection.lost
        self._connection.close()
        if self._coordinator is not None:
            self._coordinator.leave()
        if self._process is not None:
            self._reap(self._process)
        if gone or self._process is not None:
            _remove(self._connection.path)  # which a supervisor that was killed leaves behind

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()  # and its agents end with it
            process.wait()


def clusters(directory: Path | str | None = None) -> Iterable[Cluster]:
    """Connect to each cluster of this user that runs, without owning it.

    Parameters
    ----------
    directory : path, optional
        Only those whose record is kept below it.
    """
    root = None if directory is None else Path(directory).resolve()
    refusals: list[str] = []
    for path in sockets.existing():
        found = Cluster._reach(path, refusals, owner=False)  # noqa: SLF001 - of this module
        if found is not None and root in (None, found.config.root):
            yield found
    for refusal in refusals:
        warnings.warn(refusal, stacklevel=2)
