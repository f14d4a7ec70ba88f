"""Live cells: code in interpreters that keep their variables, one for each task.

Values move between this process and the tasks in files. On this machine the files are in memory
where there is room. On others they go beside the tasks' logs, and the supervisor brings them there
and back.
"""

from __future__ import annotations

import math
import os
import secrets
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any, Protocol

from mwmagic.client.run import launch
from mwmagic.errors import BadArguments, MwmagicError, NoRun, RunActive, WorkerFailed
from mwmagic.model.cluster import find_task
from mwmagic.model.live import EXCHANGE, LIVE_SCRIPT, Answer, CellNews, parcel_name
from mwmagic.model.messages import Launch
from mwmagic.words.live import (
    busy_words,
    failed_words,
    lost_words,
    program_words,
    unknown_words,
    withdrawn_words,
)

from .cell import LISTEN_SECONDS, DeferredInterrupt, LiveCell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from mwmagic.client.cluster import Cluster
    from mwmagic.client.connection import Connection
    from mwmagic.client.run import Run
    from mwmagic.model.cluster import TaskName
    from mwmagic.model.status import LastRaised

__all__ = ["Live", "session_of"]

_SESSION = "from mwmagic.worker.live.cells import serve\n\nserve()\n"
"""The program that the tasks run."""

COMPLETION_SECONDS = 0.3
"""How long a completion may take: its user is typing."""

HELP_SECONDS = 5.0
"""How long the documentation of a name may take."""

DEATH_SECONDS = 60.0
"""How long a session may take to end once a task's process has ended."""

INTERRUPT_SECONDS = 5.0
"""How long an interrupted cell may take to end before it is no longer waited for."""


def _silent(_task: str, _prompt: str) -> None:
    """Answer nothing."""


class Live:
    """A session of live cells; `Cluster.live` returns it."""

    def __init__(self, cluster: Cluster, run: Run, connection: Connection) -> None:
        self.cluster = cluster
        self.process = run
        self._connection = connection
        self._tasks = cluster.tasks  # which are the same as long as it lives

    def __repr__(self) -> str:
        return f"<Live session, run {self.process.number}: {self.process.words}>"

    def __enter__(self) -> Live:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def begin(
        self,
        source: str,
        tasks: Sequence[TaskName] | None = None,
        *,
        name: str = "<cell>",
        alone: bool = False,
    ) -> LiveCell:
        """Send a cell to tasks, and return it while it runs.

        Parameters
        ----------
        source : str
            The code.
        tasks : sequence of int, str or Task, optional
            The tasks; by default all.
        name : str
            The cell's name in tracebacks.
        alone : bool
            Whether each task runs it for itself: an error on one ends no collective of the others.

        Raises
        ------
        ClusterError
            There is no such task.
        NoRun
            The session has ended.
        """
        self._check_open()
        names = self._names(tasks)
        said = self._connection.converse("cell", tasks=names, name=name, source=source, alone=alone)
        return LiveCell(said, len(names) or len(self._tasks))

    def run(
        self,
        source: str,
        tasks: Sequence[TaskName] | None = None,
        *,
        name: str = "<cell>",
        alone: bool = False,
        ask: Callable[[str, str], str | None] = _silent,
    ) -> dict[str, Answer]:
        """Run a cell on tasks, and return their answers.

        Parameters
        ----------
        source, tasks, name, alone
            See `begin`.
        ask : callable
            Called with a task and its prompt where the cell calls `input`; returns the answer. By
            default `input` raises EOFError.

        Returns
        -------
        dict of str to Answer
            By task.

        Raises
        ------
        WorkerFailed
            The cell raised on some task, or some task is gone.
        KeyboardInterrupt
            Ctrl-C, which interrupts the cell on all tasks.
        """
        with DeferredInterrupt() as interrupt:
            cell = self.begin(source, tasks, name=name, alone=alone)
            try:
                with interrupt.gap:
                    self._answer(cell, ask)
            except KeyboardInterrupt:
                with interrupt.gap:
                    self.interrupt(cell)
                raise
        self.check(cell, name)
        return cell.ranked()

    def _answer(self, cell: LiveCell, ask: Callable[[str, str], str | None]) -> None:
        """Answer what a cell asks, until it is over."""
        for news in self.follow(cell, None):
            if news is not None and news[0] is CellNews.ASK:
                task, prompt = news[1]["task"], news[1]["prompt"]
                self.reply(task, ask(task, prompt))

    def complete(self, text: str, tasks: Sequence[TaskName] | None = None) -> list[str]:
        """Return the names that complete the last one of a text such as ``model.fi``.

        A task that is idle looks in its variables, without running code of theirs; if none is, or
        it takes longer than `COMPLETION_SECONDS`, there are no names.

        Parameters
        ----------
        text : str
            Names with dots between them.
        tasks : sequence of int, str or Task, optional
            The tasks that may be asked; by default all.
        """
        try:
            _, found = self._look("names", text, tasks, COMPLETION_SECONDS)
        except Empty:
            return []
        return found if isinstance(found, list) else []

    def describe(self, text: str, tasks: Sequence[TaskName] | None = None) -> str:
        """Return the signature, type and documentation of what a name is on an idle task.

        Parameters
        ----------
        text, tasks
            See `complete`.

        Raises
        ------
        RunActive
            No task is idle.
        BadArguments
            The name has no value there, or one that only running code would tell.
        """
        try:
            task, found = self._look("help", text, tasks, HELP_SECONDS)
        except Empty:
            task = None
        if task is None:
            raise RunActive(busy_words())
        if not isinstance(found, str):
            raise BadArguments(unknown_words(text, task))
        return found

    def _look(
        self, wanted: str, text: str, tasks: Sequence[TaskName] | None, seconds: float
    ) -> tuple[str | None, object]:
        """Return the task that was asked, if one was, and what it found."""
        self._check_open()
        names = self._names(tasks)
        told = self._connection.converse("look", tasks=names, wanted=wanted, text=text)
        _, said = told.next(seconds)
        return said["task"], said["found"]

    def pull(self, *expressions: str, task: TaskName = 0) -> Any:  # noqa: ANN401 - the user's
        """Return what expressions are worth on a task.

        Parameters
        ----------
        *expressions : str
            Such as ``"history.history"``.
        task : int, str or Task
            The task.

        Returns
        -------
        object or tuple
            An array (also for a tensor), a value of pandas, or plain data; for several expressions
            a tuple.

        Raises
        ------
        WorkerFailed
            An expression raises there, or is worth something else.
        """
        [found] = self.pull_all(*expressions, tasks=[task]).values()
        return found

    def pull_all(
        self, *expressions: str, tasks: Sequence[TaskName] | None = None
    ) -> dict[str, Any]:
        """Return what expressions are worth on several tasks, by default on all, by task.

        See `pull`.
        """
        found = _pull(self, expressions, tasks)
        picked = {task: tuple(of[one] for one in expressions) for task, of in found.items()}
        return {task: one[0] if len(one) == 1 else one for task, one in picked.items()}

    def carry(self, path: str, tasks: Sequence[TaskName] | None, *, back: bool) -> None:
        """Bring a file beside the logs to the tasks' machines, or ``back`` from them."""
        names = self._names(tasks)
        self._connection.converse("carry", tasks=names, path=path, back=back).next(None)

    def push(self, tasks: Sequence[TaskName] | None = None, **values: Any) -> None:  # noqa: ANN401 - the user's
        """Set variables on tasks.

        Parameters
        ----------
        tasks : sequence of int, str or Task, optional
            The tasks; by default all.
        **values
            Arrays, tensors, numbers, texts, bytes, None, DataFrames, Series and indexes of pandas,
            and lists, tuples and dicts of these.

        Raises
        ------
        BadArguments
            A value is something else.
        """
        _push(self, values, tasks)

    def follow(
        self, cell: LiveCell, seconds: float | None = LISTEN_SECONDS
    ) -> Iterator[tuple[CellNews, Mapping[str, Any]] | None]:
        """Yield what happens to a cell until it is over, as `LiveCell.news` returns it."""
        while not cell.over:
            yield cell.news(seconds)

    def reply(self, task: str, text: str | None) -> None:
        """Answer what a task asks with `input`; None raises EOFError there."""
        self._connection.request("reply", task=task, text=text)

    def raised(self) -> dict[str, LastRaised]:
        """Return what tasks raised last and can be debugged, by task."""
        self._connection.request("snapshot")
        tasks = self.process.status().tasks
        return {name: task.raised for name, task in tasks.items() if task.raised is not None}

    def interrupt(self, cell: LiveCell) -> None:
        """Interrupt a cell on the tasks that have not answered, and wait a moment for its end."""
        while not cell.number and not cell.over:
            cell.news(LISTEN_SECONDS)
        if not cell.over:
            self._connection.request("interrupt", cell=cell.number)
        until = time.monotonic() + INTERRUPT_SECONDS
        while not cell.over and time.monotonic() < until:
            cell.news(LISTEN_SECONDS)

    def _names(self, tasks: Sequence[TaskName] | None) -> list[str]:
        """Return the names of tasks; none stand for all."""
        return [str(find_task(task, self._tasks)) for task in tasks or ()]

    def _check_open(self) -> None:
        if self.process.over:
            raise NoRun(
                f"the live session has ended ({self.process.words}); `Cluster.live()` begins "
                "another one"
            )

    def check(self, cell: LiveCell, name: str) -> None:
        """Raise the error of a cell that failed on some task, or that another client withdrew."""
        if cell.why == "ended":
            self._lost(name)
        raised = [one for one in cell.answers.values() if one.raised is not None]
        if raised:
            raise WorkerFailed(failed_words(raised, cell.unanswered, name), run=self.process)
        if cell.unanswered:
            raise NoRun(withdrawn_words(reset=cell.why == "reset"))

    def reset(self) -> None:
        """Give every task a fresh interpreter; all variables are lost.

        Raises
        ------
        NoRun
            The session has ended.
        RunActive
            Its processes are those of a program, which would run again.
        """
        self._check_open()
        if self.process.kept:
            raise RunActive(program_words(self.process.number))
        self.process = self.cluster.restart()

    def _lost(self, name: str) -> None:
        """Raise the error of the run, and say in which cell it was, and what is lost with it."""
        self._connection.wait(lambda _: self.process.over, DEATH_SECONDS)
        try:
            self.process.wait(DEATH_SECONDS)
        except WorkerFailed as error:
            text = f"{error}\n{lost_words(name)}"
            raise WorkerFailed(text, run=error.run, cause=error.cause) from None

    def close(self) -> None:
        """End the session, or let go of the processes that were kept, and of the variables."""
        if not self.process.over:
            self.process.stop()


def living(cluster: Cluster, connection: Connection) -> Live | None:
    """Return a cluster's session of live cells, if there is one; refuse while a program runs."""
    run = cluster.latest
    if run is None or run.over:
        return None
    if not run.status().live and not run.kept:
        raise RunActive(
            f"run {run.number} is still going ({run.words}); `%mw_wait` waits for it, and "
            "`%mw_stop` stops it"
        )
    return Live(cluster, run, connection)


def session_of(cluster: Cluster, connection: Connection) -> Live:
    """Return a cluster's session of live cells; begin one if there is none."""
    found = living(cluster, connection)
    if found is not None:
        return found
    program = Launch(LIVE_SCRIPT, cwd=".", live=True)
    run = launch(cluster, program, _SESSION, restarts=0)
    return Live(cluster, run, connection)


MEMORY = Path("/dev/shm")  # noqa: S108 - in a private directory of it
"""A folder whose files are in memory: a value of 100 MB takes 0.1 s there and back."""

_TASK = f"__import__('{EXCHANGE}', fromlist=['parcel'])"

LITERAL_BITS, LITERAL_CHARACTERS = 64, 200
"""The largest integers and texts that a push writes in its cell."""


def _pull(
    live: Live, expressions: Sequence[str], tasks: Sequence[TaskName] | None
) -> dict[str, dict[str, Any]]:
    """Return the values of expressions on tasks; by task, and there by expression."""
    from mwmagic.worker.live import parcel

    pairs = ", ".join(f"{text!r}: ({text}\n)" for text in expressions)
    with _meeting(live) as way:
        source = f"{_TASK}.give({way.there!r}, {{{pairs}}});"
        said = live.run(source, tasks, name="%mw_pull", alone=True)
        try:
            return {task: parcel.read(str(way.fetch(task))) for task in said}
        except parcel.NotPlain as error:
            raise BadArguments(str(error)) from None


def _push(live: Live, values: Mapping[str, Any], tasks: Sequence[TaskName] | None) -> None:
    """Set variables on tasks; by default on all."""
    from mwmagic.worker.live import parcel

    name = f"%mw_push {', '.join(values)}"
    plain = {one: value for one, value in values.items() if _is_literal(value)}
    source = "".join(f"{one} = {value!r}\n" for one, value in plain.items())
    if len(plain) == len(values):
        live.run(source, tasks, name=name, alone=True)
        return
    try:
        packed = parcel.Parcel({one: values[one] for one in values.keys() - plain.keys()})
    except parcel.NotPlain as error:
        raise BadArguments(str(error)) from None
    with _meeting(live) as way:
        chosen = parcel.roomy(list(map(str, way.here)), packed.size)
        packed.write(chosen)
        place = way.bring(chosen, tasks)
        source += f"globals().update({_TASK}.take({place!r}));"
        live.run(source, tasks, name=name, alone=True)


def _is_literal(value: object) -> bool:
    """Return whether a value can be written in a cell, so that the record holds it."""
    if type(value) is int:
        return value.bit_length() <= LITERAL_BITS
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) is bool or _is_short(value)


def _is_short(value: object) -> bool:
    return type(value) is str and len(value) <= LITERAL_CHARACTERS and value.isprintable()


class _Way(Protocol):
    """Where values are exchanged: the files here, and what tasks call them, in the same order.

    The first that has room is enough.
    """

    here: Sequence[Path]
    there: Sequence[str]

    def bring(self, path: str, tasks: Sequence[TaskName] | None) -> str:
        """Bring one of the files to tasks, and return what they call it."""

    def fetch(self, task: str) -> Path:
        """Return where what a task wrote is here, after fetching it."""


class _OneMachine:
    """Private directories of this machine: in memory, and on a disk that may have more room."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.here: Sequence[Path] = [Path(folder, "values") for folder in folders]
        self.there: Sequence[str] = list(map(str, self.here))

    def bring(self, path: str, _tasks: Sequence[TaskName] | None) -> str:
        return path

    def fetch(self, task: str) -> Path:
        found = (Path(parcel_name(place, task)) for place in self.there)
        return next(path for path in found if path.exists())


class _Machines:
    """A file beside the logs, which only their owner can read either."""

    def __init__(self, live: Live) -> None:
        name = f"values-{secrets.token_hex(8)}"
        status = live.process.status()
        self.here: Sequence[Path] = [live.process.record.paths.attempt(status.attempt) / name]
        self.there: Sequence[str] = [name]
        self._live = live

    def bring(self, path: str, tasks: Sequence[TaskName] | None) -> str:
        self._live.carry(path, tasks, back=False)
        return self.there[0]

    def fetch(self, task: str) -> Path:
        path = Path(parcel_name(str(self.here[0]), task))
        self._live.carry(str(path), [task], back=True)
        return path

    def clean(self) -> None:
        """Remove the files, here and there."""
        for path in self.here[0].parent.glob(f"{self.here[0].name}*"):
            path.unlink(missing_ok=True)
        with suppress(MwmagicError):  # the session may be over
            self._live.run(f"{_TASK}.drop({self.there[0]!r});", name="%mw_pull", alone=True)


@contextmanager
def _meeting(live: Live) -> Iterator[_Way]:
    """Yield where values are exchanged; what was written there is removed."""
    with ExitStack() as stack:
        if live.cluster.options.engine == "local":
            shelves = [str(MEMORY)] if os.access(MEMORY, os.W_OK) else []
            private = [
                tempfile.TemporaryDirectory(prefix=f"mwmagic-{os.getpid()}-", dir=shelf)
                for shelf in [*shelves, None]
            ]
            yield _OneMachine([stack.enter_context(one) for one in private])
        else:
            way = _Machines(live)
            stack.callback(way.clean)
            yield way
