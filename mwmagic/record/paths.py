"""The layout of the record, and how files are written; no other module knows where its parts are.

It also keeps a hash of what mwmagic wrote to each of the user's files beside it, so that no others
are replaced, even after the directory was moved.

::

    .mwmagic/
      .gitignore                    ignores the folder
      written/main.py               the hash of what mwmagic wrote to main.py beside the folder
      demo.log                      what the kernel of `mwmagic demo` printed
      runs/.lock                    held while a run gets or keeps its number
      runs/.removed                 the highest number of a run that was removed: it stays taken
      runs/index/0.json             a copy of what a table shows of runs 1 to 499 that are over
      sweeps/0002/                  a sweep: sweep.json, program.py, trials.jsonl, writer.json
      scalings/0001/                a scaling study: scaling.json, and the same
      runs/0007-main/
        run.json                    the run's last known state, replaced as a whole
        space                       takes up what `run.json` may need at the end, on a full disk too
        main.py                     the code as run (main.worker-1.py where a task has its own)
        modules/problem.py          a module beside the code that it imports, as launched
        modules.json                the hashes of all of these, also of those that are too long
        events.jsonl                what happened, one line per event, append-only
        metrics.jsonl               the workers' metrics and what they use, a line each, append-only
        cells/0003.py               a live cell, as run
        cells.jsonl                 live cells that are over, one line per cell, append-only
        stacks.json                 where each task was when its stacks were last read
        notes.json                  the note and the tags that its user gave it
        attempt-1/worker-0.log      the worker's output, byte for byte
        attempt-1/worker-0.json     the worker's report of its uncaught exception
        attempt-1/worker-0.stacks   the stacks that the worker wrote
        attempt-1/worker-0.profiles its profiles; worker-0.profile asks for one, .profiled answers

Files have mode 0600 and directories 0700: code and logs may hold secrets.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.errors import FileTrouble
from mwmagic.model.cluster import TYPES, Task

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "FOLDER",
    "FORMAT_VERSION",
    "RunPaths",
    "TaskPaths",
    "demo_log",
    "expanded",
    "ignore_file",
    "index_file",
    "inside",
    "is_as_written",
    "keep_from_git",
    "keep_number",
    "make_private",
    "mark_file",
    "note_written",
    "numbered",
    "numbering",
    "replace",
    "reserve",
    "runs_folder",
    "save_new",
    "sweeps_folder",
    "was_written",
]


FORMAT_VERSION = 1
"""The version of ``run.json``, increased with each change that a reader must know about."""

FOLDER = ".mwmagic"
SLUG_CHARACTERS = 64

_LOG = re.compile(rf"({'|'.join(TYPES)})-(\d{{1,9}})\.log")
_RUN = re.compile(r"(\d{4,})-(.+)")
_ATTEMPT = re.compile(r"attempt-([1-9]\d{0,8})")


def expanded(name: Path | str) -> Path:
    """Return a path that a user names, in which a leading ``~`` stands for a home directory."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise FileTrouble(f"{name} names no file: {error}") from error


def runs_folder(root: Path) -> Path:
    """Return the directory that holds the runs recorded below `root`."""
    return root / FOLDER / "runs"


def sweeps_folder(root: Path, kind: str = "sweep") -> Path:
    """Return the directory that holds the sweeps, or the scalings, of the runs below `root`."""
    return root / FOLDER / f"{kind}s"


def ignore_file(root: Path) -> Path:
    """Return the file that keeps the record below `root` out of git."""
    return root / FOLDER / ".gitignore"


@contextmanager
def numbering(root: Path) -> Iterator[None]:
    """Hold the lock under which runs below `root` get their numbers, and keep them."""
    descriptor = os.open(runs_folder(root) / ".lock", os.O_WRONLY | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _removed_file(root: Path) -> Path:
    return runs_folder(root) / ".removed"


def highest_removed(root: Path) -> int:
    """Return the highest number of a run below `root` that was removed; 0 if none was."""
    try:
        return int(_removed_file(root).read_bytes())
    except (OSError, ValueError):
        return 0


def keep_number(root: Path, number: int) -> None:
    """Have no other run below `root` get a number, although its run is about to be removed."""
    with numbering(root):
        if number > highest_removed(root):
            replace(_removed_file(root), b"%d" % number)


def index_file(folder: Path, part: int) -> Path:
    """Return a file of the index of the runs in a folder."""
    return folder / "index" / f"{part}.json"


def mark_file(path: Path) -> Path:
    """Return the file that keeps the hash of what mwmagic wrote to the user's file `path`."""
    return path.parent / FOLDER / "written" / path.name


def demo_log(root: Path) -> Path:
    """Return the file that keeps what the kernel of a demonstration in `root` printed."""
    return root / FOLDER / "demo.log"


def inside(path: str) -> str:
    """Return a path from the record's folder on, for display."""
    return path[path.find(f"/{FOLDER}/") + 1 :]


def numbered(root: Path) -> list[tuple[int, Path]]:
    """Return the run directories below `root` with their numbers, oldest first."""
    folder = runs_folder(root)
    try:
        with os.scandir(folder) as entries:
            matches = [
                (_RUN.fullmatch(entry.name), entry.name) for entry in entries if entry.is_dir()
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted((int(match[1]), folder / name) for match, name in matches if match)


@dataclass(frozen=True)
class TaskPaths:
    """The files of one task in one attempt, which are next to the one with its output."""

    log: Path

    @property
    def report(self) -> Path:
        """The file with the worker's uncaught exception."""
        return self.log.with_suffix(".json")

    @property
    def stacks(self) -> Path:
        """The file to which the worker appends its stacks."""
        return self.log.with_suffix(".stacks")

    @property
    def profile(self) -> Path:
        """The file that asks the worker to profile itself."""
        return self.log.with_suffix(".profile")

    @property
    def profiled(self) -> Path:
        """The file in which the worker answers that."""
        return self.log.with_suffix(".profiled")

    @property
    def profiles(self) -> Path:
        """The folder with its profiles, as TensorBoard and XProf read it."""
        return self.log.with_suffix(".profiles")

    @property
    def attempt(self) -> int:
        """The number of the attempt."""
        match = _ATTEMPT.fullmatch(self.log.parent.name)
        return int(match[1]) if match else 0

    def in_attempt(self, number: int) -> TaskPaths:
        """Return the same task's files in another attempt."""
        return TaskPaths(RunPaths(self.log.parent.parent).attempt(number) / self.log.name)


@dataclass(frozen=True)
class RunPaths:
    """The files of one run, below its directory."""

    root: Path

    @classmethod
    def fresh(cls, root: Path, name: str) -> tuple[int, RunPaths]:
        """Return the number and the paths of the next run below `root`."""
        slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:SLUG_CHARACTERS].strip("-.") or "run"
        latest = max((number for number, _ in numbered(root)), default=0)
        number = max(latest, highest_removed(root)) + 1
        return number, cls(runs_folder(root) / f"{number:04d}-{slug}")

    def stamp(self) -> int:
        """Return what changes when a file of the record is added, replaced or removed."""
        try:
            return self.root.stat().st_mtime_ns
        except OSError:
            return 0

    @property
    def name(self) -> str:
        """The run's name: that of its directory, without the number."""
        return self.root.name.partition("-")[2]

    @property
    def state(self) -> Path:
        """The run's last known state."""
        return self.root / "run.json"

    @property
    def modules(self) -> Path:
        """The folder with the modules beside the code."""
        return self.root / "modules"

    @property
    def hashes(self) -> Path:
        """The hashes of the modules beside the code."""
        return self.root / "modules.json"

    @property
    def reserve(self) -> Path:
        """What takes up the space for the last state."""
        return self.root / "space"

    @property
    def events(self) -> Path:
        """What happened."""
        return self.root / "events.jsonl"

    @property
    def metrics(self) -> Path:
        """The workers' metrics."""
        return self.root / "metrics.jsonl"

    @property
    def cells(self) -> Path:
        """The live cells that are over."""
        return self.root / "cells.jsonl"

    def cell(self, number: int) -> Path:
        """Return the copy of a live cell's code."""
        return self.root / "cells" / f"{number:04d}.py"

    @property
    def stacks(self) -> Path:
        """Where each task was when its stacks were last read."""
        return self.root / "stacks.json"

    @property
    def annotations(self) -> Path:
        """The note and the tags that its user gave it."""
        return self.root / "notes.json"

    def source(self, script: str, task: Task | None) -> Path:
        """Return the copy of the code of all tasks, or of one."""
        name = Path(script)
        stem = name.stem if task is None else f"{name.stem}.{task.slug}"
        return self.root / f"{stem}{name.suffix or '.py'}"

    def attempt(self, number: int) -> Path:
        """Return the directory of an attempt."""
        return self.root / f"attempt-{number}"

    def figures(self) -> list[Path]:
        """Return the figures that tasks showed, in any attempt, oldest first."""
        found = [path for path in self.root.glob("attempt-*/*.figure-*.png") if path.is_file()]
        return sorted(found, key=lambda path: path.stat().st_mtime_ns)

    def attempts(self) -> list[int]:
        """Return the numbers of the existing attempts, in order."""
        found = (_ATTEMPT.fullmatch(path.name) for path in self.root.glob("attempt-*"))
        return sorted(int(match[1]) for match in found if match)

    def tasks(self) -> set[Task]:
        """Return the tasks that have a log in any attempt."""
        found = (_LOG.fullmatch(path.name) for path in self.root.glob("attempt-*/*.log"))
        return {Task(match[1], int(match[2])) for match in found if match}

    def task(self, task: Task, attempt: int) -> TaskPaths:
        """Return the files of a task in an attempt."""
        return TaskPaths(self.attempt(attempt) / f"{task.slug}.log")


def replace(path: Path, data: bytes) -> None:
    """Write a file so that readers see the old content or the new, never a part."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:64]}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def reserve(path: Path, size: int) -> None:
    """Have a file take up space on its disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def fill(reserved: Path, path: Path, data: bytes) -> None:
    """Replace a file by one that took up space for this: no other process can take it meanwhile."""
    with reserved.open("r+b") as file:
        file.write(data)
        file.truncate()
    reserved.replace(path)


def save_new(path: Path, data: bytes) -> None:
    """Write a new file that is not read before this has returned; `replace` takes longer."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def make_private(folder: Path) -> None:
    """Make a directory below an existing one, and those between them, with mode 0700."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def keep_from_git(root: Path) -> None:
    """Have git ignore the record below `root`, whose directory exists."""
    if not ignore_file(root).exists():
        replace(ignore_file(root), b"*\n")


def note_written(path: Path, data: bytes) -> None:
    """Note that mwmagic wrote `data` to a file."""
    mark = mark_file(path)
    make_private(mark.parent)
    keep_from_git(path.parent)
    replace(mark, _digest(data))


def was_written(path: Path) -> bool:
    """Return whether mwmagic ever wrote a file of this name."""
    return mark_file(path).is_file()


def is_as_written(path: Path) -> bool:
    """Return whether a file holds what mwmagic wrote to it, unchanged."""
    return was_written(path) and mark_file(path).read_bytes() == _digest(path.read_bytes())


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode() + b"\n"
