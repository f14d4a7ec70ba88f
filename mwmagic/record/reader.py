"""Reads a run's record, of any version, even if it is incomplete, damaged or foreign.

It also has what users write to a run afterwards, a note and tags: they have a file of their own in
the run's folder, so nothing that a supervisor writes is touched.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic.errors import BadArguments, ClusterError, FileTrouble, NoRun
from mwmagic.model.cluster import Task, TaskName, find_task
from mwmagic.model.findings import Examination
from mwmagic.model.live import CellRecord
from mwmagic.model.status import RunStatus
from mwmagic.model.values import Stored

from . import paths
from .metrics import history, metrics, raw_entries, usage
from .paths import FOLDER, FORMAT_VERSION, RunPaths, expanded, numbered
from .provenance import is_changed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = [
    "Annotations",
    "Code",
    "Record",
    "alive",
    "annotate",
    "beside",
    "json_lines",
    "json_object",
    "read_annotations",
    "runs",
    "runs_below",
    "this_process",
]


def json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one where there is none to read."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Read a file of JSON lines; a line that a crash cut short is left out."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        yield from raw_entries(file)


def _task(name: str) -> Task | None:
    try:
        return Task.parse(name)
    except ClusterError:
        return None


@dataclass(frozen=True)
class Record:
    """A run's directory, read back.

    Reading raises nothing but what is documented, whatever the files hold.

    Parameters
    ----------
    path : Path
        The run's directory.
    number : int
        The run's number.
    known : dict, optional
        What ``run.json`` held when it was read once, by `read_once`.
    """

    path: Path
    number: int
    known: dict[str, Any] | None = field(default=None, compare=False, repr=False)

    def read_once(self) -> Record:
        """Return this record as it is now: its state is not read from its file again."""
        return replace(self, known=self.info)

    @property
    def paths(self) -> RunPaths:
        """The paths of the parts of the record."""
        return RunPaths(self.path)

    @property
    def info(self) -> dict[str, Any]:
        """The run's last known state; empty if the run never got that far."""
        return json_object(self.paths.state) if self.known is None else self.known

    def part(self, name: str) -> dict[str, Any]:
        """Return an object in its state, such as ``versions``; an empty one if there is none."""
        found = self.info.get(name)
        return found if isinstance(found, dict) else {}

    @property
    def trouble(self) -> str:
        """What is wrong with it, in a sentence; empty if it can be read."""
        info = self.info
        version = info.get("format", FORMAT_VERSION)
        if isinstance(version, int) and version > FORMAT_VERSION:
            return (
                f"run {self.number} was recorded by a newer version of mwmagic, so some of it may "
                "be missing here: install that version to see all"
            )
        if not info:
            return f"the record of run {self.number} in {self.path} is damaged or incomplete"
        return ""

    @property
    def note(self) -> str:
        """The note that its user wrote to it; empty without one."""
        return read_annotations(self.paths.annotations).note

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that its user gave it."""
        return read_annotations(self.paths.annotations).tags

    @property
    def name(self) -> str:
        """The run's name, as given."""
        return self.paths.name

    @property
    def cluster(self) -> str:
        """The name of the cluster that it ran on; empty where that is not known."""
        return str(self.part("options").get("name", ""))

    @property
    def state(self) -> str:
        """The state of the run, one of `mwmagic.model.status.RunState`'s values."""
        return self.status.state.value

    @property
    def status(self) -> RunStatus:
        """The run's status; lost if the supervisor disappeared before the run ended."""
        info = self.info
        known = replace(RunStatus.from_json(info), number=self.number, directory=str(self.path))
        return known if known.over or alive(info.get("supervisor")) else known.lost()

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of the run; those that have logs, where its state cannot be read."""
        found = map(_task, self.part("tasks"))
        named = tuple(task for task in found if task is not None)
        return named or tuple(sorted(self.paths.tasks(), key=str))

    @property
    def attempts(self) -> int:
        """How many times the tasks were started."""
        return max(self.paths.attempts(), default=0)

    def log_path(self, task: TaskName, attempt: int | None = None) -> Path:
        """Return the file with a task's output, in its last attempt or a given one.

        Raises
        ------
        ClusterError
            The run has no such task.
        NoRun
            The task has no output, because it never started in that attempt; or the
            record is gone.
        """
        found = find_task(task, self.known_tasks())
        wanted = reversed(self.paths.attempts()) if attempt is None else [attempt]
        for number in wanted:
            path = self.paths.task(found, number).log
            if path.exists():
                return path
        where = "" if attempt is None else f" in attempt {attempt} of {self.attempts}"
        raise NoRun(f"{found} has no log{where}: it was not started")

    def known_tasks(self) -> tuple[Task, ...]:
        """Return the tasks; every run has at least one.

        Raises
        ------
        NoRun
            The record is gone, or too damaged to say.
        """
        tasks = self.tasks
        if not tasks:
            raise NoRun(
                f"the record of run {self.number} in {self.path} is gone or damaged; "
                "run it again, or see `%mw_runs` for others"
            )
        return tasks

    def log(self, task: TaskName, attempt: int | None = None) -> bytes:
        """Return a task's output, byte for byte; see `log_path` for the errors."""
        return self.log_path(task, attempt).read_bytes()

    def stacks(self) -> Examination:
        """Return where each task was when its stacks were last read.

        Raises
        ------
        NoRun
            They were never read, or the file is damaged.
        """
        stacks = json_object(self.paths.stacks)
        if "positions" not in stacks:
            raise NoRun(
                f"there are no stacks of run {self.number}: `%mw_stacks` takes them while it runs"
            )
        return Examination.from_json(stacks)

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Return all events, or those of one kind, in order."""
        events = json_lines(self.paths.events)
        return [event for event in events if kind in (None, event.get("event"))]

    def modules(self) -> dict[str, str]:
        """Return the hashes of the modules beside the code, by their paths there."""
        hashes = json_object(self.paths.hashes)
        return {name: value for name, value in hashes.items() if isinstance(value, str)}

    def changed_modules(self) -> list[str]:
        """Return the modules beside the code that are no longer as they were at the launch."""
        folder = self.folder
        known = self.modules().items()
        return [name for name, was in known if folder and is_changed(folder / name, was)]

    @property
    def root(self) -> Path:
        """The directory below which the run is recorded, together with others."""
        return self.path.parent.parent.parent

    @property
    def folder(self) -> Path | None:
        """The folder of the file that was launched."""
        return None if self.script is None else self.script.parent

    @property
    def script(self) -> Path | None:
        """The file that was launched."""
        for one in self.launches:
            cwd, script = one.get("cwd"), one.get("script")
            if isinstance(cwd, str) and isinstance(script, str) and script:
                return Path(cwd, script)
        return None

    @property
    def launches(self) -> list[dict[str, Any]]:
        """What each task was launched with."""
        return [one for one in self.part("launches").values() if isinstance(one, dict)]

    @property
    def inherited(self) -> set[str]:
        """The variables that the launching process had; their values are not recorded."""
        names = self.info.get("env")
        return set(map(str, names)) if isinstance(names, list) else set()

    @property
    def program(self) -> tuple[dict[str, Any], bytes] | None:
        """The first launch whose code is recorded, and that code, which is empty if it is gone.

        None of live cells.
        """
        for launch in self.launches:
            name = launch.get("source")
            if isinstance(name, str) and "/" not in name:
                try:
                    return launch, (self.path / name).read_bytes()
                except OSError:
                    return launch, b""
        return None

    def metrics(self) -> list[dict[str, Any]]:
        """Return the tasks' metrics, in order: from their reports, else from their logs."""
        return metrics(json_lines(self.paths.metrics))

    def usage(self) -> list[dict[str, Any]]:
        """Return what the tasks used of CPUs, memory, disks, network and GPUs, in order."""
        return usage(json_lines(self.paths.metrics))

    def cells(self) -> list[CellRecord]:
        """Return the live cells that are over, in order; none of a program's run."""
        return [CellRecord.from_json(line) for line in json_lines(self.paths.cells)]

    def cell_count(self) -> int:
        """Return how many live cells are over."""
        try:
            with self.paths.cells.open("rb") as file:
                return sum(1 for _ in file)
        except OSError:
            return 0

    def cell_source(self, number: int) -> str:
        """Return the code of a live cell; empty if it is gone."""
        try:
            return self.paths.cell(number).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def history(self) -> dict[str, list[float]]:
        """Return the history of the last `fit`; see `mwmagic.record.metrics.history`."""
        return history(json_lines(self.paths.metrics))


@dataclass(frozen=True)
class Code:
    """The code of a run as its record has it, and the folder where the program was.

    The modules beside it are named by their paths there; those in `missing` were too long to be
    copied.
    """

    source: Path
    modules: Mapping[str, Path]
    missing: tuple[str, ...]
    folder: Path | None

    @classmethod
    def of(cls, record: Record) -> Code | None:
        """Return the code of a run whose tasks run the same; None if its record lacks it."""
        names = [one.get("source") for one in record.launches]
        if not names or not isinstance(names[0], str) or not (record.path / names[0]).is_file():
            return None
        copies = {name: record.paths.modules / name for name in record.modules()}
        there = {name: path for name, path in copies.items() if path.is_file()}
        missing = tuple(name for name in copies if name not in there)
        return cls(record.path / names[0], there, missing, record.folder)

    def copied(self, to: Path) -> dict[Path, bytes]:
        """Return the files that `to`, a folder, gets for a script that runs the code there."""
        files = {to / self.source.name: self.source.read_bytes()}
        return files | {to / name: path.read_bytes() for name, path in self.modules.items()}


def this_process() -> dict[str, Any]:
    """Return what distinguishes this process from any other of this machine."""
    import psutil  # which few readers of a record need

    own = psutil.Process()
    return {"pid": own.pid, "started": own.create_time()}


def alive(known: object) -> bool:
    """Return whether a process is still running, of which `this_process` was recorded."""
    if not isinstance(known, dict):
        return False
    import psutil

    try:
        process = psutil.Process(int(known["pid"]))
        started, state = process.create_time(), process.status()
        same = abs(started - float(known["started"])) < 1.0
    except (psutil.Error, ValueError, TypeError, KeyError, OverflowError):
        return False
    return same and state != psutil.STATUS_ZOMBIE


def runs(directory: Path | str = ".") -> list[Record]:
    """Return the runs recorded below a directory, oldest first."""
    return [Record(path, number) for number, path in numbered(expanded(directory))]


def runs_below(directory: Path) -> list[Record]:
    """Return the runs recorded in a directory and in the folders below it, folder by folder.

    Hidden folders, and those behind symbolic links, are left out.
    """
    found = []
    for folder, names, _ in os.walk(directory):
        if FOLDER in names:
            found += runs(folder)
        names[:] = sorted(name for name in names if not name.startswith("."))
    return found


def beside(record: Record) -> list[Record]:
    """Return all runs of the folder that a run is recorded in, oldest first."""
    return runs(record.root)


NOTE_CHARACTERS = 2000
"""The longest note."""

_TAG = re.compile(r"[\w.+-]{1,64}")


@dataclass(frozen=True)
class Annotations(Stored):
    """What a user wrote to a run: a note, and tags, which are words in their order."""

    note: str = ""
    tags: tuple[str, ...] = ()


def read_annotations(path: Path) -> Annotations:
    """Return the note and tags in a run's file; none if there are none to read."""
    try:
        return _read_stored(path)
    except OSError:
        return Annotations()


def _read_stored(path: Path) -> Annotations:
    data = path.read_bytes()
    try:
        return Annotations.from_json(json.loads(data))
    except (ValueError, RecursionError):
        return Annotations()


def annotate(
    record: Record, *, note: str | None = None, add: Iterable[str] = (), remove: Iterable[str] = ()
) -> Annotations:
    """Replace a run's note, or add and remove tags, and return what it has now.

    An empty note removes it. BadArguments is raised if a tag is not one word, the note is too long,
    or a tag to remove is not there; NoRun or FileTrouble if the run's folder is gone or cannot be
    written.
    """
    path = record.paths.annotations
    try:
        known = _read_stored(path)
    except FileNotFoundError:
        known = Annotations()
    except OSError as error:  # what it holds would be lost
        raise _trouble(record, "read from", error) from error
    added, removed = list(add), set(remove)
    for tag in added:
        if not _TAG.fullmatch(tag):
            raise BadArguments(
                f"{tag!r} cannot be a tag: write one word of letters, digits and . _ + -"
            )
    for tag in sorted(removed - set(known.tags)):
        there = f"it has {', '.join(known.tags)}" if known.tags else "it has none"
        raise BadArguments(f"run {record.number} has no tag {tag!r}: {there}")
    if note is not None and len(note) > NOTE_CHARACTERS:
        raise BadArguments(
            f"a note may have {NOTE_CHARACTERS:,} characters, and this one has {len(note):,}"
        )
    tags = tuple(sorted({*known.tags, *added} - removed))
    now = replace(known, tags=tags, note=known.note if note is None else note.strip())
    _save_annotations(record, now)
    return now


def _save_annotations(record: Record, now: Annotations) -> None:
    try:
        paths.replace(record.paths.annotations, json.dumps(now.as_json()).encode() + b"\n")
    except FileNotFoundError:
        raise NoRun(f"the record of run {record.number} is gone from {record.path}") from None
    except OSError as error:
        raise _trouble(record, "written to", error) from error


def _trouble(record: Record, done: str, error: OSError) -> FileTrouble:
    where = f"{record.paths.annotations}: {error.strerror or error}"
    return FileTrouble(f"the note and tags of run {record.number} cannot be {done} {where}")
