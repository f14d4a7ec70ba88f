"""A run's scalars and hyperparameters as TensorBoard reads them, afterwards or while it goes.

Events are written by TensorBoard's own writer; mwmagic does not depend on it. A reader drops values
that a restarted attempt trains again.
"""

from __future__ import annotations

import io
import json
import os
import threading
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mwmagic.errors import NoRun, NotInstalled
from mwmagic.model.status import RunState
from mwmagic.model.values import encodable
from mwmagic.record.metrics import COUNT_LIMIT, Preference, parsed, raw_entries
from mwmagic.record.reader import Record
from mwmagic.record.writer import FLUSH_SECONDS

from .compare import VALUE_HIDDEN, is_secret
from .runs import facts_of
from .series import Scalars, scalars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mwmagic.record import RunDirectory

    from .runs import Facts
    from .series import Scalar

__all__ = ["LiveEvents", "event_file", "needed", "run_folder", "tracker_parameters"]

EVENTS_SECONDS = 1.0
"""How often a live file gets new events, which TensorBoard looks for every 5 seconds or more.

An entry waits for one look, so that all tasks have reported their first by then.
"""

READ_BYTES = 2**20
"""How much of a run's metrics is read at a time."""


def needed(name: str, package: str) -> Any:  # noqa: ANN401 - a module
    """Import what only a tracker's export needs."""
    try:
        return import_module(name)
    except ImportError as error:
        raise NotInstalled(
            f"this needs {package}, which cannot be imported here ({error}): pip install {package}"
        ) from None


def tracker_parameters(facts: Facts) -> dict[str, bool | int | float | str]:
    """Return a run's parameters as trackers take them; a text that may be a secret is hidden."""
    found: dict[str, bool | int | float | str] = {}
    for name, value in facts.parameters.items():
        if isinstance(value, str):
            found[encodable(name)] = VALUE_HIDDEN if is_secret(name) else encodable(value)
        elif isinstance(value, float | bool) or (
            isinstance(value, int) and abs(value) <= COUNT_LIMIT
        ):
            found[encodable(name)] = value
        elif isinstance(value, int):
            found[encodable(name)] = str(value)  # a float would be another number
        else:
            found[encodable(name)] = json.dumps(value)
    return found


def run_folder(folder: Path, number: int) -> Path:
    """Return the folder of a run's events in a log directory of TensorBoard."""
    return folder / f"run-{number}"


def event_file(record: Record) -> tuple[str, bytes]:
    """Return the name and the content of a file with a run's scalars and its hyperparameters."""
    found = scalars(record.metrics())
    if not found:
        raise NoRun(f"run {record.number} has no metrics that TensorBoard could show: leave it out")
    facts = facts_of(record, curves=False)
    events = Events(facts, min(one[0].wall for one in found.values()))
    for name, values in found.items():
        for one in values:
            events.add(name, one)
    events.end(facts)
    return events.name, events.taken()


class Events:
    """The events of a run, encoded."""

    def __init__(self, facts: Facts, first: float) -> None:
        # The record's writer of events; the one of whole files would import TensorFlow.
        records = needed("tensorboard.summary.writer.record_writer", "tensorboard")
        self._event = import_module("tensorboard.compat.proto.event_pb2").Event
        self._summary = import_module("tensorboard.compat.proto.summary_pb2").Summary
        self._plugin = import_module("tensorboard.plugins.hparams.summary_v2")
        self._content = io.BytesIO()
        self._writer = records.RecordWriter(self._content)
        self._last: dict[str, int] = {}
        self._began = began = facts.started or first
        self.name = f"events.out.tfevents.{began:.0f}.mwmagic-run-{facts.number}"
        # Readers of version 1 drop a tag's values when its steps go back; those of version 2 wait
        # for a SessionLog, which is for all tags, and epochs and steps do not go back alike.
        self._write(began, file_version="brain.Event:1")
        start = self._plugin.hparams_pb(tracker_parameters(facts), f"run {facts.number}", began)
        self._write(began, summary=start)

    def add(self, name: str, scalar: Scalar) -> None:
        """Add a value; those of its step and of later ones were trained again."""
        step, wall, value = scalar
        last = self._last.get(name, step - 1)
        if step <= last:  # TensorBoard's reader in Python drops them only after a later step
            self._write(wall, step=last + 1)
        self._last[name] = step
        one = self._summary.Value(tag=encodable(name), simple_value=value)
        self._write(wall, step=step, summary=self._summary(value=[one]))

    def end(self, facts: Facts) -> None:
        """Add how the run ended, if it has."""
        if not RunState(facts.state).final:
            return
        metadata, data = self._plugin.metadata, self._plugin.plugin_data_pb2
        ended = self._began + (facts.seconds or 0.0)
        status = self._plugin.api_pb2.Status.Value(f"STATUS_{_ENDS.get(facts.state, 'UNKNOWN')}")
        info = data.SessionEndInfo(status=status, end_time_secs=ended)
        about = metadata.create_summary_metadata(data.HParamsPluginData(session_end_info=info))
        summary = self._summary()
        tag, tensor = metadata.SESSION_END_INFO_TAG, metadata.NULL_TENSOR
        summary.value.add(tag=tag, metadata=about, tensor=tensor)
        self._write(ended, summary=summary)

    def _write(self, wall: float, **fields: Any) -> None:  # noqa: ANN401 - of an event
        self._writer.write(self._event(wall_time=wall, **fields).SerializeToString())

    def taken(self) -> bytes:
        """Return what was added since the last call."""
        content = self._content.getvalue()
        self._content.seek(0)
        self._content.truncate()
        return content


_ENDS = {RunState.FINISHED.value: "SUCCESS", RunState.FAILED.value: "FAILURE"}


class LiveEvents:
    """Writes a run's event file as its record grows, on a thread of its own.

    There is none as long as the run has no metrics. If it cannot be written, the run's directory
    says why, and the run continues.
    """

    def __init__(self, directory: RunDirectory, folder: Path) -> None:
        self._directory = directory
        self._folder = run_folder(folder, directory.number)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="mwmagic-tensorboard", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Write the rest, as the record is complete."""
        self._over.set()

    def flush(self) -> None:
        """Write the rest, and wait for that."""
        self.end()
        self._thread.join(FLUSH_SECONDS)

    def _work(self) -> None:
        try:
            self._follow()
        except Exception as error:  # noqa: BLE001 - another package's; the run must not fail by it
            self._directory.trouble = self._directory.trouble or f"{self._folder}: {error}"

    def _follow(self) -> None:
        record = Record(self._directory.path, self._directory.number)
        reader, preference = Scalars(), Preference()
        entries = _entries(record.paths.metrics)
        waiting: list[dict[str, Any]] = []
        events: Events | None = None
        over = False
        while not over:
            over = self._over.wait(EVENTS_SECONDS)
            new = next(entries)
            for entry in new:
                preference.add(entry)
                reader.see(entry)
            ready, waiting = (waiting + new, []) if over else (waiting, new)
            left = [one for entry in ready if (one := preference.left(entry)) is not None]
            found = [one for entry in left for one in reader.take(entry)]
            facts = facts_of(record, curves=False) if over or (found and events is None) else None
            if found and facts is not None and events is None:
                events = Events(facts, found[0][1].wall)
                self._create(events.name)
            if events is not None:
                for name, value in found:
                    events.add(name, value)
                if over and facts is not None:
                    events.end(facts)
                self._append(events)

    def _create(self, name: str) -> None:
        """Make the run's folder; events of another run in it would be shown as this one's."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(self._folder.glob("*tfevents*")):
            raise FileExistsError("it has events of another run; move them away")
        self._file = self._folder / name

    def _append(self, events: Events) -> None:
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(events.taken())


def _entries(path: Path) -> Iterator[list[dict[str, Any]]]:
    """Yield again and again what a run's metrics have more than the last time."""
    offset, rest = 0, b""
    while True:
        found = []
        with suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(offset)
            while data := file.read(READ_BYTES):
                offset += len(data)
                *lines, rest = (rest + data).split(b"\n")
                entries = filter(None, map(parsed, raw_entries(lines)))
                found += [entry for entry in entries if entry["metrics"]]
        yield found
