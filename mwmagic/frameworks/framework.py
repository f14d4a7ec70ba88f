"""What mwmagic has to know about a framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from mwmagic.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mwmagic.model.cluster import ClusterSpec, Task

__all__ = ["GLOO_CONNECTED", "GLOO_NOTICE", "Framework", "Milestone"]


class Milestone(NamedTuple):
    """A line by which a framework shows how far a task's start-up is.

    Attributes
    ----------
    kind : str
        ``server``: it listens for the others. ``joined``: it reached the
        coordination service. ``connected``: all tasks have met. ``missing``:
        it still waits for the ``count`` tasks that the pattern captures.
        ``stragglers``: the next lines name some of them. ``straggler``: such a
        line; the pattern captures ``job`` and ``index``. ``arrived``: that
        task has come.
    pattern : str
        A regular expression.
    native : bool
        Whether the line is one of absl's C++ logging; the pattern is matched
        where its text begins. Otherwise the pattern is searched for in the
        whole line.
    """

    kind: str
    pattern: str
    native: bool = True


GLOO_NOTICE = r"\[Gloo\] Rank \d+ is connected to \d+ peer ranks\. Expected [\w ]+: \d+$"
"""What Gloo prints while it connects; every framework here uses it on CPUs."""

GLOO_CONNECTED = Milestone(
    "connected",
    r"\[Gloo\] Rank \d+ is connected to (\d+) peer ranks\. "
    r"Expected number of connected peer ranks is : \1(?!\d)",
    native=False,
)
"""The same once it has reached all the others."""


class Framework:
    """One framework; a subclass states what differs from these defaults.

    Everything about logs is data: regular expressions as text, compiled by the
    modules that read logs when they first need them. These modules often cannot
    know which framework printed a line (Keras on JAX imports TensorFlow), so they
    look for what any registered framework prints.

    Attributes
    ----------
    name : str
        What ``--framework`` takes.
    title : str
        How messages call it.
    module : str
        Its Python module.
    requirements : mapping of str to str
        For each module that user code may import, what pip installs it.
    warm : tuple of str
        The modules that a warm process imports, where they are installed.
    task_types : tuple of str
        The types of task that it knows.
    ranks, sizes : tuple of str
        The variables that hold a process's rank, and how many processes there are.
    keras_backend : str or None
        The value of KERAS_BACKEND; None leaves the choice to Keras.
    holds_port : mapping of str to str
        Variables that let its server bind a port that mwmagic holds.
    slurm : mapping of str to str
        Variables of a task, and those of Slurm that hold their values there.
    defaults : mapping of str to str
        Variables that every task has unless the user set them, whatever its
        framework, since Keras imports more than one.
    device_variable : str or None
        The variable that holds the number of virtual CPU devices.
    early : tuple of str
        Prefixes of variables that may be read while it is imported.
    late : tuple of str
        Those variables with such a prefix that are read only after the import.
    not_inherited : tuple of str
        Variables of the notebook's own environment that would mislead a task.
    imports_set : mapping of str to str
        Variables that its import sets in the process that imports it.
    threads : mapping of str to int
        Variables that hold a number of threads, with the smallest that works.
    log_level : tuple of (str, str), optional
        The variable, and its value, at which its log shows which tasks listen
        and which have joined; None if it never does.
    server : str or None
        The file in ``mwmagic/worker`` that the tasks of a coordinator run; None
        if no process can coordinate a cluster from outside.
    export_kinds : tuple of str
        The kinds of script that its runs can be exported as.
    notices : tuple of str
        How lines begin that mean nothing to a user.
    native_notices : mapping of str to str
        For files of absl's C++ logging the warnings and errors that are harmless.
    native_failures : tuple of str
        What makes even a line of absl's info level worth reading.
    continuations : tuple of str
        How further lines of a notice begin.
    graph_dumps, batch_dumps : tuple of str
        Ends of lines after which a protocol buffer or a batch's arrays follow.
    batch_lines : tuple of str
        How lines of such arrays begin.
    milestones : tuple of Milestone
        How its log shows the phases of a start-up.
    server_addresses : tuple of str
        How its log tells the address of a task's server, captured.
    duplicates : tuple of str
        How the leader's log names a task that joins twice: job and index, captured.
    consequences : tuple of str
        What an error says when another task is gone; case does not matter.
    mismatches : tuple of str
        What it says, often in the same message, when the tasks do not fit together,
        so that the failure is the task's own.
    port_taken : tuple of str
        What the log says when the task's port is in use.
    blames : tuple of str
        How an error names the task that is responsible: job and index, captured.
    blames_ranks : tuple of str
        The same for a list of ranks, captured.
    blames_leader : tuple of str
        What an error contains when the leader cannot be reached.
    frames : tuple of str
        Paths of the files whose functions wait for other tasks.
    """

    name: str
    title: str
    module: str
    requirements: ClassVar[Mapping[str, str]] = {}
    warm: tuple[str, ...] = ()

    task_types: tuple[str, ...] = ("chief", "worker")
    ranks: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    keras_backend: str | None = None
    holds_port: ClassVar[Mapping[str, str]] = {}
    slurm: ClassVar[Mapping[str, str]] = {}

    defaults: ClassVar[Mapping[str, str]] = {}
    device_variable: str | None = None
    early: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    not_inherited: tuple[str, ...] = ()
    imports_set: ClassVar[Mapping[str, str]] = {}
    threads: ClassVar[Mapping[str, int]] = {}
    log_level: tuple[str, str] | None = None

    server: str | None = None
    export_kinds: tuple[str, ...] = ("script", "slurm")

    notices: tuple[str, ...] = (GLOO_NOTICE,)
    native_notices: ClassVar[Mapping[str, str]] = {}
    native_failures: tuple[str, ...] = ()
    continuations: tuple[str, ...] = ()
    graph_dumps: tuple[str, ...] = ()
    batch_dumps: tuple[str, ...] = ()
    batch_lines: tuple[str, ...] = ()
    milestones: tuple[Milestone, ...] = (GLOO_CONNECTED,)
    server_addresses: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()

    consequences: tuple[str, ...] = (
        r"Connection (?:reset|closed) by peer",
        r"Connection refused",
        r"Socket closed",
        r"Broken pipe",
    )
    mismatches: tuple[str, ...] = ()
    port_taken: tuple[str, ...] = ()
    blames: tuple[str, ...] = ()
    blames_ranks: tuple[str, ...] = ()
    blames_leader: tuple[str, ...] = ()
    frames: tuple[str, ...] = ()

    def environment(self, spec: ClusterSpec, task: Task) -> dict[str, str]:
        """Return the variables that `task` reads to find the others of `spec`.

        Raises
        ------
        ClusterError
            The cluster has no such task, or one that the framework does not know.
        """
        raise NotImplementedError

    def check(self, tasks: Iterable[Task]) -> None:
        """Refuse tasks of types that the framework does not know.

        Raises
        ------
        ClusterError
            The message names them.
        """
        odd = [str(task) for task in tasks if task.type not in self.task_types]
        if odd:
            raise ClusterError(
                f"{self.title} clusters have workers only; remove {', '.join(odd)} or use "
                "--framework tensorflow"
            )

    def settings(self, devices: int) -> dict[str, str]:
        """Return the variables of every task that follow from the cluster's options."""
        return {self.device_variable: str(devices)} if self.device_variable and devices else {}

    def export_note(self, *, keras: str, devices: int) -> str:  # noqa: ARG002 - for subclasses
        """Return comments for an exported script: what mwmagic does and the script cannot."""
        return ""

    def logs_start(self, env: Mapping[str, str]) -> bool:
        """Return whether a task's log tells its start-up in this environment."""
        if self.log_level is None:
            return False
        name, level = self.log_level
        return env.get(name, level) == level

    def _peers(self, spec: ClusterSpec, task: Task) -> tuple[tuple[Task, ...], Task]:
        """Return the tasks in the order of their ranks, and the task itself."""
        self.check(spec.tasks)
        return spec.members, spec.find(task)
