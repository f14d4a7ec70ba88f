"""What the magics of a notebook share: its clusters with their names, displays and defaults.

When the kernel ends, runs that nothing waited for are reported beside the notebook.
"""

from __future__ import annotations

import atexit
import os
import shlex
import sys
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic.client.cluster import end
from mwmagic.client.lookup import attach, judged, running, unreachable
from mwmagic.errors import (
    ClusterOwned,
    MwmagicError,
    NoCluster,
    NoRun,
    RunActive,
    SupervisorLost,
)
from mwmagic.logs.terminal import plain
from mwmagic.model.options import OPTIONS
from mwmagic.model.status import RunState
from mwmagic.model.values import encodable
from mwmagic.model.variables import ANNOUNCED, SESSION
from mwmagic.record import Record, runs
from mwmagic.words.run import exit_notice, headline

from .display import Displays

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mwmagic.client.cluster import Cluster
    from mwmagic.client.live.session import Live
    from mwmagic.client.run import Run
    from mwmagic.errors import SupervisorError

__all__ = ["Session"]

_ENDING = (
    "the cluster {name!r} of an earlier kernel is still ending; a new one is declared when it has "
    "ended"
)


class Session:
    """The state behind the magics.

    It is `quiet` while a magic is executed that was told to show nothing.
    """

    def __init__(self, shell: Any, defaults: Callable[[], dict[str, Any]]) -> None:  # noqa: ANN401 - IPython is not typed
        self.shell = shell
        self.defaults = defaults
        self.displays = Displays()
        self.exit_notices = _ExitNotices(shell, self.displays.watched)
        self.quiet = False
        self._clusters: dict[str, Cluster] = {}
        self._before: dict[str, dict[str, Any]] = {}
        self._current = ""
        self._own = ""

    @property
    def names(self) -> list[str]:
        """The names of the notebook's variables."""
        return [*self.variables]

    @property
    def variables(self) -> dict[str, Any]:
        """The notebook's variables."""
        return {} if self.shell is None else self.shell.user_ns

    @property
    def answers(self) -> bool:
        """Whether a person can answer a question in the cell that is being executed."""
        kernel = getattr(self.shell, "kernel", None)
        if kernel is None:
            return sys.stdin is not None and sys.stdin.isatty()
        return bool(getattr(kernel, "_allow_stdin", False))

    def close(self) -> None:
        """End every cluster that is not detached."""
        end(one for one in self._clusters.values() if not one.options.detach)
        self._clusters.clear()
        self.exit_notices.forget()
        self.displays.close()

    def say(self, text: str) -> None:
        """Print a line, unless the magic was told to show nothing."""
        if not self.quiet:
            print(text)  # noqa: T201 - the output of the cell

    def use(self, cluster: Cluster, *, declared: bool) -> None:
        """Make a cluster the one that magics act on, and note the defaults it was declared with."""
        self._current = cluster.options.name
        self._clusters[self._current] = cluster
        if declared:
            self._before[self._current] = self.defaults()

    def declared(self, name: str) -> bool:
        """Return whether this kernel declared a cluster; else an earlier one left it."""
        return name in self._before

    def before(self, name: str) -> dict[str, Any]:
        """Return the defaults that a cluster was last declared with; none if not by this kernel."""
        return self._before.get(name, {})

    def find(self, name: str) -> Cluster | None:
        """Return a cluster of this notebook, or one that an earlier kernel left running."""
        own = self._clusters.get(name)
        if own is not None and not own.closed:
            return own
        try:
            self._clusters[name] = attach(name, lambda: self.say(_ENDING.format(name=name)))
        except NoCluster:
            return None
        return self._clusters[name]

    def default(self) -> tuple[str, Cluster | None]:
        """Return the name of a cluster that is declared without one, and that cluster if it exists.

        If another process has a cluster with that name, this notebook takes the next free one.
        """
        configured = str(self.defaults()["name"])
        if configured != OPTIONS["name"].default:
            return configured, self.find(configured)
        taken: ClusterOwned | None = None
        for name in [self._own] if self._own else _names():
            try:
                found = self.find(name)
            except ClusterOwned as error:
                taken = taken or error
                continue
            if taken is not None:
                self.say(f"the name is taken, so this cluster is {name!r} ({taken})")
            self._own = name
            return name, found
        self._own = ""  # it has been taken since
        return self.default()

    @property
    def gone(self) -> bool:
        """Whether no cluster was declared, or it ended."""
        cluster = self._clusters.get(self._current)
        return cluster is None or cluster.closed

    def cluster(self) -> Cluster:
        """Return the cluster that magics act on."""
        cluster = self._clusters.get(self._current)
        if cluster is None:
            raise NoCluster("no cluster was declared; `%mw_cluster 2` declares one of 2 workers")
        if cluster.closed:
            raise self.loss or NoCluster(
                f"the cluster {self._current!r} ended; `%mw_cluster` with its options declares it "
                "again"
            )
        return cluster

    @property
    def loss(self) -> SupervisorLost | None:
        """What became of the cluster and its run, if its supervisor was killed during the run."""
        cluster = self._clusters.get(self._current)
        run = None if cluster is None or not cluster.closed else cluster.latest
        if run is None or run.status().state is not RunState.LOST:
            return None
        return SupervisorLost(
            f"run {run.number} was lost: the supervisor of the cluster {self._current!r} was "
            f"killed, and its workers ended with it. `%mw_logs` shows what they printed (in "
            f"{run.directory}); `%mw_cluster` with its options declares another cluster"
        )

    @contextmanager
    def showing(self, cluster: Cluster) -> Iterator[None]:
        """Show the run that is going below a cell that is refused: its own output is gone."""
        try:
            yield
        except MwmagicError as error:
            run = cluster.latest
            if run is not None and not run.over and not self.quiet:
                self.displays.show(run, str(error) if isinstance(error, RunActive) else "")
            raise

    def others(self, *, selectable: bool = False) -> list[str]:
        """Say which clusters of this directory are running, for where magics act on none.

        If `selectable`, only those of this notebook, and those that belong to no one.
        """
        refusals: list[SupervisorError] = []
        found = list(running(refusals, directory=self.directory))
        texts = [self._other(one) for one in found if not selectable or self._selectable(one)]
        for one in found:
            one.close()
        return texts + ([] if selectable else list(map(unreachable, refusals)))

    def _selectable(self, cluster: Cluster) -> bool:
        own = self._clusters.get(cluster.options.name)
        free = cluster.options.detach or cluster.reserved is not None
        return free or (own is not None and not own.closed)

    def _other(self, cluster: Cluster) -> str:
        name, run = cluster.options.name, cluster.latest
        doing = "without a run" if run is None else headline(run.status())
        text = f"the cluster {name!r} is running ({doing})"
        if not self._selectable(cluster):
            return f"{text}, but it belongs to another process; end it there"
        return (
            f"{text}, but it is not the one that magics act on: "
            f"`%mw_cluster --name {shlex.quote(name)}` selects it; then `%mw_stop` "
            "stops its run and `%mw_stop --cluster` ends it"
        )

    def tasks(self, *, recorded: bool) -> list[str]:
        """Return the names of the cluster's tasks; without one, perhaps of the last run's."""
        if not self.gone:
            return [str(task) for task in self.cluster().tasks]
        records = runs(self.directory) if recorded else []
        return [str(task) for task in self._choose(records).tasks] if records else []

    def live(self) -> Live | None:
        """Return the current cluster's session of live cells, if it has one; begin none."""
        cluster = self._clusters.get(self._current)
        run = None if cluster is None or cluster.closed else cluster.latest
        if cluster is None or run is None or run.over or not (run.kept or run.status().live):
            return None
        return cluster.live()

    def numbers(self) -> list[str]:
        """Return the numbers of the recorded runs."""
        return [str(record.number) for record in runs(self.directory)]

    def latest(self) -> Run:
        """Return the latest run."""
        run = self.cluster().latest
        if run is None:
            raise NoRun(
                "nothing was launched on this cluster yet; a `%%mw_worker` cell launches its code, "
                "and `%mw_runs` lists earlier runs"
            )
        return run

    def run(self, number: int | None = None) -> Run | None:
        """Return the cluster's latest run; None if it has none, or another number is requested."""
        run = None if self.gone else self.cluster().latest
        return run if run is not None and number in (None, run.number) else None

    @property
    def directory(self) -> Path:
        """The directory whose runs are shown: the cluster's, even after ``os.chdir``."""
        cluster = self._clusters.get(self._current)
        return Path() if cluster is None else cluster.options.root

    def record(self, number: int | None = None) -> Record:
        """Return the record of the latest run, or of the run with this number."""
        run = self.run(number)
        if run is not None:
            return run.record
        known = {record.number: record for record in runs(self.directory)}
        if not known:
            raise NoRun("nothing was launched yet; a `%%mw_worker` cell launches its code")
        if number is None:
            return self._last([*known.values()])
        if number not in known:
            raise NoRun(f"there is no run {number}; `%mw_runs` lists the recorded runs")
        return known[number]

    def _last(self, records: Sequence[Record]) -> Record:
        """Return the last run of the cluster with this name, else of any cluster, and say which."""
        record = self._choose(records)
        self._say_cluster(record, unless=(self._name, ""))
        return record

    def say_owner(self, run: Run | Record) -> None:
        """Say which cluster a run is on, if another process owns that and the run is not over."""
        if isinstance(run, Record) and not run.status.over:
            self._say_cluster(run)

    def _say_cluster(self, record: Record, unless: tuple[str, ...] = ()) -> None:
        going = "" if record.status.over else ", which another process owns"
        if going or record.cluster not in unless:
            self.say(f"run {record.number} belongs to the cluster {record.cluster!r}{going}")

    def _choose(self, records: Sequence[Record]) -> Record:
        mine = (record for record in reversed(records) if record.cluster == self._name)
        return next(mine, records[-1])

    @property
    def _name(self) -> str:
        """The name of the cluster that magics act on, or would."""
        return self._current or next(_names())


def _names() -> Iterator[str]:
    """Yield this notebook's own name for a cluster, and others for where that is taken."""
    path = Path(os.environ.get(SESSION, ""))
    own = encodable(path.stem) if path.suffix == ".ipynb" else str(OPTIONS["name"].default)
    yield own
    for number in count(2):
        yield f"{own}-{number}"


class _ExitNotices:
    """Reports, when the kernel ends, the runs that were going or failed unseen.

    Programs that execute notebooks pass on what a kernel prints to its standard error. They
    read no output after the last cell.
    """

    def __init__(self, shell: Any, watched: Callable[[], bool]) -> None:  # noqa: ANN401 - IPython is not typed
        self._kernel = getattr(shell, "kernel", None)
        self._watched = watched
        self._home = os.getpid()
        self._runs: dict[str, Run] = {}

    def expect(self, run: Run) -> None:
        """Report a run unless it is waited for."""
        self._runs[str(run.directory)] = run
        # The last function registered is called first: the run's cluster does not end yet.
        self.forget()
        atexit.register(self._report)

    def forget(self) -> None:
        """Report nothing."""
        atexit.unregister(self._report)

    def _report(self) -> None:
        if self._watched() or os.getpid() != self._home:  # a fork of the kernel
            return
        for run in self._runs.values():
            if not judged(run) and not _stays(run):
                self._tell(exit_notice(run.status()))

    def _tell(self, text: str) -> None:
        if not text:
            return
        text = f"{ANNOUNCED}{plain(text)}"
        if self._kernel is not None:  # whose own standard error is captured for its cells
            self._kernel.log.warning(text)
        else:
            print(text, file=sys.stderr)  # noqa: T201 - the terminal's


def _stays(run: Run) -> bool:
    """Return whether a run is going and outlives the kernel."""
    return run.cluster.options.detach and not run.over
