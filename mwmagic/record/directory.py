"""The run directory: everything about a run, written so that a crash leaves it readable.

::

    .mwmagic/
      .gitignore                 ignores the folder
      runs/0007-main/
        run.json                 the run's last known state, replaced as a whole
        main.py                  the code as run (main.worker-1.py where a task has its own)
        events.jsonl             what happened, a line each, only ever appended
        metrics.jsonl            what the workers' logs said of their progress
        attempt-1/worker-0.log   what the worker printed, byte for byte
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from mwmagic.errors import NoRun
from mwmagic.model.cluster import Task, TaskName, find_task

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FOLDER", "Record", "RunDirectory", "runs"]

FOLDER = ".mwmagic"
_RUN = re.compile(r"(\d{4,})-(.+)")
_FINAL = ("finished", "failed", "stopped")


def _numbered(root: Path) -> list[tuple[int, Path]]:
    """Return the run directories below `root` with their numbers, oldest first."""
    runs = root / FOLDER / "runs"
    found = [
        (_RUN.fullmatch(path.name), path) for path in (runs.iterdir() if runs.is_dir() else ())
    ]
    return sorted((int(match[1]), path) for match, path in found if match)


def _replace(path: Path, text: str) -> None:
    """Write a file so that readers see the old text or the new, never a part."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:64]}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


class RunDirectory:
    """The directory of one run, as its supervisor writes it.

    Parameters
    ----------
    path : Path
        An existing, empty directory; see `create`.
    number : int
        The run's number.

    Attributes
    ----------
    trouble : str or None
        Why something could not be written: a run outlives its record.
    """

    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.number = number
        self.trouble: str | None = None

    @classmethod
    def create(cls, root: Path, name: str) -> RunDirectory:
        """Make the next run's directory below `root`.

        Two supervisors may do so at once: they take turns.
        """
        runs = root / FOLDER / "runs"
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        ignore = root / FOLDER / ".gitignore"
        if not ignore.exists():
            _replace(ignore, "*\n")
        slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:64].strip("-.") or "run"
        with (runs / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            number = max((number for number, _ in _numbered(root)), default=0) + 1
            path = runs / f"{number:04d}-{slug}"
            path.mkdir(mode=0o700)
        return cls(path, number)

    def save_source(self, script: str, task: Task | None, source: str) -> Path:
        """Keep the code of all tasks, or of one, and return its file."""
        name = Path(script)
        stem = name.stem if task is None else f"{name.stem}.{task.slug}"
        path = self.path / f"{stem}{name.suffix or '.py'}"
        _replace(path, source)
        return path

    def copy_source(self, source: Path) -> Path:
        """Keep the code of an earlier run, which runs again, and return its file."""
        return Path(shutil.copyfile(source, self.path / source.name))

    def log(self, task: Task, attempt: int) -> Path:
        """Return where a task's output goes, its directory made."""
        directory = self.path / f"attempt-{attempt}"
        with self._writing():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return directory / f"{task.slug}.log"

    def write(self, state: dict[str, Any]) -> None:
        """Replace the run's last known state."""
        with self._writing():
            _replace(self.path / "run.json", json.dumps(state, indent=1) + "\n")

    def save_stacks(self, lines: list[str], texts: dict[str, str]) -> None:
        """Keep where each task is: in words, and each one's stack."""
        with self._writing():
            _replace(self.path / "stacks.json", json.dumps({"lines": lines, "texts": texts}))

    def event(self, kind: str, **fields: Any) -> None:  # noqa: ANN401 - JSON values
        """Append what happened, with the monotonic and the wall time."""
        self._append("events.jsonl", {"event": kind, "time": time.monotonic(), **fields})

    def metric(self, **fields: Any) -> None:  # noqa: ANN401 - JSON values
        """Append what a log said of a task's progress."""
        self._append("metrics.jsonl", fields)

    def _append(self, name: str, entry: dict[str, Any]) -> None:
        line = json.dumps({"wall": time.time(), **entry}) + "\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with self._writing():
            descriptor = os.open(self.path / name, flags, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Note why something cannot be written, and go on."""
        try:
            yield
        except OSError as error:
            self.trouble = str(error)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Read a file of JSON lines; a line that a crash cut short is left out."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                yield entry


@dataclass(frozen=True)
class Record:
    """A run's directory, read back.

    Parameters
    ----------
    path : Path
        The run's directory.
    number : int
        The run's number.
    """

    path: Path
    number: int

    @property
    def info(self) -> dict[str, Any]:
        """The run's last known state; empty where the run never got that far."""
        try:
            info = json.loads((self.path / "run.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return info if isinstance(info, dict) else {}

    @property
    def name(self) -> str:
        """The run's name, as given."""
        return self.path.name.partition("-")[2]

    @property
    def state(self) -> str:
        """How the run ended, or ``lost`` where its supervisor went without saying."""
        state = str(self.info.get("state", "lost"))
        return state if state in _FINAL or self._supervised() else "lost"

    def _supervised(self) -> bool:
        supervisor = self.info.get("supervisor") or {}
        try:
            process = psutil.Process(supervisor.get("pid", -1))
            started, state = process.create_time(), process.status()
        except (psutil.Error, ValueError):
            return False
        same = abs(started - supervisor.get("started", 0.0)) < 1.0
        return same and state != psutil.STATUS_ZOMBIE

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks of the run."""
        return tuple(Task.parse(name) for name in self.info.get("tasks", {}))

    @property
    def attempts(self) -> int:
        """How many times the gang was started."""
        return len(list(self.path.glob("attempt-*")))

    def log_path(self, task: TaskName, attempt: int | None = None) -> Path:
        """Return the file with what a task printed, in its last attempt or another.

        Raises
        ------
        ClusterError
            The run has no such task.
        NoRun
            The task has printed nothing in that attempt, since it never started.
        """
        found = find_task(task, self.tasks)
        wanted = range(self.attempts, 0, -1) if attempt is None else [attempt]
        for number in wanted:
            path = self.path / f"attempt-{number}" / f"{found.slug}.log"
            if path.exists():
                return path
        where = "" if attempt is None else f" in attempt {attempt} of {self.attempts}"
        raise NoRun(f"{found} has no log{where}: it was not started")

    def log(self, task: TaskName, attempt: int | None = None) -> bytes:
        """Return what a task printed, byte for byte; see `log_path` for the errors."""
        return self.log_path(task, attempt).read_bytes()

    def stacks(self) -> dict[str, Any]:
        """Return where each task was when somebody looked last: ``lines`` and ``texts``.

        Raises
        ------
        NoRun
            Nobody looked.
        """
        path = self.path / "stacks.json"
        if not path.exists():
            raise NoRun(f"nobody looked where the tasks of run {self.number} were while it ran")
        stacks: dict[str, Any] = json.loads(path.read_text())
        return stacks

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Return what happened, or what of one kind, in order."""
        events = _lines(self.path / "events.jsonl")
        return [event for event in events if kind in (None, event.get("event"))]

    def metrics(self) -> list[dict[str, Any]]:
        """Return what the logs said of the tasks' progress, in order."""
        return list(_lines(self.path / "metrics.jsonl"))


def runs(directory: Path | str = ".") -> list[Record]:
    """Return the runs recorded below a directory, oldest first."""
    return [Record(path, number) for number, path in _numbered(Path(directory))]
