"""Writes a run's record so that it stays readable after a crash at any moment."""

from __future__ import annotations

import json
import os
import threading
import time
import traceback
from contextlib import contextmanager, suppress
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mwmagic.model.values import finite

from .metrics import metric_line
from .paths import (
    FORMAT_VERSION,
    RunPaths,
    fill,
    keep_from_git,
    make_private,
    numbering,
    replace,
    reserve,
    runs_folder,
    save_new,
)
from .provenance import TEXT_BYTES, beside, digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mwmagic.model.cluster import Task
    from mwmagic.model.findings import Examination
    from mwmagic.model.live import CellRecord

    from .paths import TaskPaths

__all__ = ["Latest", "RunDirectory"]

STATE_SECONDS = 0.25
"""The minimum time between two writes of a run's state."""

RESERVE_BYTES = 2**16
"""Space that is kept for the last events, and as much for the last state."""

FLUSH_SECONDS = 5.0
"""How long the supervisor waits for the last state to be written."""


class RunDirectory:
    """The directory of one run, as its supervisor writes it.

    `trouble` is why something could not be written, which does not end the run.
    """

    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.paths = RunPaths(path)
        self.number = number
        self.trouble: str | None = None
        self._state = Latest(self._write_state, STATE_SECONDS)
        self._reserved = self._over = False
        self._hashes: dict[str, str] = {}
        self._room = TEXT_BYTES
        self._sources: dict[int, str] = {}
        self._ended: list[str] = []

    @classmethod
    def create(cls, root: Path, name: str) -> RunDirectory:
        """Create the next run's directory below `root`.

        A lock lets several supervisors do this concurrently.
        """
        root.mkdir(parents=True, exist_ok=True)
        make_private(runs_folder(root))
        keep_from_git(root)
        with numbering(root):
            number, paths = RunPaths.fresh(root, name)
            paths.root.mkdir(mode=0o700)
        return cls(paths.root, number)

    def discard(self) -> None:
        """Remove the directory of a run that did not begin."""
        rmtree(self.path, ignore_errors=True)

    def save_source(self, script: str, task: Task | None, source: str) -> Path:
        """Save the code of all tasks, or of one, and return its file."""
        path = self.paths.source(script, task)
        replace(path, source.encode("utf-8", "surrogateescape"))
        return path

    def save_modules(self, source: Path, script: Path) -> None:
        """Save the modules that code imports from the folder of its file, with their hashes."""
        with self._writing():
            for name, data in beside(source.read_bytes(), script).items():
                found = digest(data)
                if self._hashes.get(name) == found:  # the task before imports it too
                    continue
                self._hashes[name] = found
                self._room -= len(data)
                if self._room >= 0:
                    kept = self.paths.modules / name
                    make_private(kept.parent)
                    replace(kept, data)
            if self._hashes:
                replace(self.paths.hashes, _json(self._hashes).encode())

    def copy_source(self, source: Path) -> Path:
        """Save the code of an earlier run that is repeated, and return its file."""
        path = self.path / source.name
        replace(path, source.read_bytes())
        return path

    def task(self, task: Task, attempt: int) -> TaskPaths:
        """Return the paths of a task's files, and create their directory."""
        paths = self.paths.task(task, attempt)
        with self._writing():
            make_private(paths.log.parent)
        return paths

    def write(self, state: dict[str, Any]) -> None:
        """Replace the run's last known state soon, on a thread."""
        self._state.put(state)

    def end(self) -> None:
        """Give the last events the space that was kept for them."""
        self._reserved = self._over = True
        with self._writing(), suppress(FileNotFoundError):
            size = self.paths.reserve.stat().st_size
            os.truncate(self.paths.reserve, max(size - RESERVE_BYTES, 0))

    def flush(self) -> None:
        """Save the cells, and wait until the latest state is written."""
        self.save_cells()
        if not self._state.flush(FLUSH_SECONDS):
            self.trouble = f"{self.paths.state} could not be written in {FLUSH_SECONDS:.0f} s"

    def _write_state(self, state: dict[str, Any]) -> None:
        with self._writing():
            text = _json({"format": FORMAT_VERSION, **state})
            if self._over and self.paths.reserve.exists():
                fill(self.paths.reserve, self.paths.state, text.encode() + b"\n")
                return
            replace(self.paths.state, text.encode() + b"\n")
            if not self._reserved:
                self._reserved = True
                reserve(self.paths.reserve, 2 * (RESERVE_BYTES + len(text)))

    def save_stacks(self, found: Examination) -> None:
        """Save where each task is."""
        with self._writing():
            replace(self.paths.stacks, _json(found.as_json()).encode())

    def begin_cell(self, number: int, source: str) -> None:
        """Have `save_cells` save the code of a live cell, which no other has the number of."""
        self._sources[number] = source

    def end_cell(self, cell: CellRecord) -> None:
        """Have `save_cells` note a live cell that is over."""
        self._ended.append(_json({"wall": time.time(), **cell.as_json()}))

    def save_cells(self) -> None:
        """Save what has become known of live cells; each one's code before it is listed."""
        sources, self._sources = self._sources, {}
        ended, self._ended = self._ended, []
        for number, source in sources.items():
            path = self.paths.cell(number)
            with self._writing():
                if number == 1:
                    make_private(path.parent)
                save_new(path, source.encode("utf-8", "surrogateescape"))
        if ended:
            self._append(self.paths.cells, "\n".join(ended))

    def event(self, kind: str, **fields: Any) -> None:  # noqa: ANN401 - JSON values
        """Append an event, with the monotonic and the wall time."""
        moment = {"wall": time.time(), "event": kind, "time": time.monotonic()}
        self._append(self.paths.events, _json({**moment, **fields}))

    def metric(self, **fields: Any) -> None:  # noqa: ANN401 - JSON values
        """Append metrics from a task's report or log."""
        with self._writing():
            self._append(self.paths.metrics, metric_line(wall=time.time(), **fields))

    def _append(self, path: Path, text: str) -> None:
        line = text + "\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with self._writing():
            descriptor = os.open(path, flags, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Note why something cannot be written, and continue."""
        try:
            yield
        except (OSError, TypeError, ValueError) as error:
            self.trouble = str(error)


def _json(values: dict[str, Any]) -> str:
    """Return values as valid JSON, even if a number is not finite.

    It is not indented, which takes Python four times as long: 1,000 tasks feel it.
    """
    try:
        return json.dumps(values, allow_nan=False)
    except ValueError:
        return json.dumps(finite(values), allow_nan=False)


T = TypeVar("T")


PAUSE_RATIO = 4.0
"""How many times as long as a write took the next one waits, if that is longer."""


class Latest(Generic[T]):
    """Passes the latest value to a function, on a thread that lives while there is work."""

    def __init__(self, write: Callable[[T], None], seconds: float) -> None:
        self._write = write
        self._seconds = seconds
        self._changed = threading.Condition()
        self._values: list[T] = []
        self._thread: threading.Thread | None = None
        self._hurried = False
        self._writing = False

    def put(self, value: T) -> None:
        """Write a value soon, instead of any that is still waiting."""
        with self._changed:
            self._values = [value]
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="mwmagic-record")
                self._thread.daemon = True
                self._thread.start()

    def flush(self, timeout: float) -> bool:
        """Write what is waiting now; return whether that was done within the timeout."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()
            return self._changed.wait_for(self._idle, timeout)

    def _idle(self) -> bool:
        return not self._values and not self._writing

    def _work(self) -> None:
        began = time.monotonic()
        while self._take():
            pause = max(self._seconds, PAUSE_RATIO * (time.monotonic() - began))
            with self._changed:
                self._changed.wait_for(lambda: self._hurried, pause)
            began = time.monotonic()

    def _take(self) -> bool:
        """Write the latest value; without one, end this thread."""
        with self._changed:
            if not self._values:
                self._thread = None
                return False
            value = self._values.pop()
            self._writing, self._hurried = True, False
        try:
            self._write(value)
        except Exception:  # noqa: BLE001 - the next value must be written nevertheless
            traceback.print_exc()
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
        return True
