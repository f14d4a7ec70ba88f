"""Runs as trackers have them: TensorBoard's events, also while a run goes, and runs of MLflow.

Each is written by the tracker's own package; mwmagic depends on neither. TensorBoard drops values
that a restarted attempt trains again. A run is one of MLflow's, however many workers it had, or one
of these is there for all tasks of a launch.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import posixpath
import re
import threading
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mwmagic.errors import BadArguments, NoRun, NotInstalled
from mwmagic.model.status import RunState
from mwmagic.model.values import encodable
from mwmagic.record.metrics import COUNT_LIMIT, Preference, parsed, raw_entries
from mwmagic.record.reader import Code, Record
from mwmagic.record.writer import FLUSH_SECONDS

from .compare import VALUE_HIDDEN, is_secret
from .runs import facts_of
from .series import Scalars, scalars

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from mwmagic.record import RunDirectory

    from .runs import Facts
    from .series import Scalar

__all__ = ["LiveEvents", "event_file", "mlflow_run", "run_folder", "to_mlflow"]

EVENTS_SECONDS = 1.0
"""How often a live file gets new events, which TensorBoard looks for every 5 seconds or more.

An entry waits for one look, so that all tasks have reported their first by then.
"""

READ_BYTES = 2**20
"""How much of a run's metrics is read at a time."""


def _needed(name: str, package: str) -> Any:  # noqa: ANN401 - a module
    """Import what only a tracker's export needs."""
    try:
        return import_module(name)
    except ImportError as error:
        raise NotInstalled(
            f"this needs {package}, which cannot be imported here ({error}): pip install {package}"
        ) from None


def _parameters(facts: Facts) -> dict[str, bool | int | float | str]:
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
        records = _needed("tensorboard.summary.writer.record_writer", "tensorboard")
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
        start = self._plugin.hparams_pb(_parameters(facts), f"run {facts.number}", began)
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


# MLflow.

RECORD_TAG = "mwmagic.record"
"""The tag of MLflow's run by which it is found again; it has it once it is complete."""

METRICS_BATCH, PARAMS_BATCH = 1000, 100
"""The most of each that MLflow takes in one request."""

NAME_CHARACTERS, VALUE_CHARACTERS = 250, 6000
"""The longest name and value of a parameter that MLflow takes."""


def to_mlflow(
    record: Record, uri: str | None, experiment: str | None, *, overwrite: bool
) -> tuple[str, bool]:
    """Write a run to MLflow; return the id of MLflow's run, and whether it was there already."""
    tracking = _needed("mlflow.tracking", "mlflow")
    with _explained(uri or tracking.get_tracking_uri(), f"run {record.number}"):
        client = tracking.MlflowClient(tracking_uri=uri)
        folder = _experiment(client, experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME"))
        mark = _mark(record)
        old = client.search_runs([folder], filter_string=f"tags.`{RECORD_TAG}` = '{mark}'")
        if old and not overwrite:
            return str(old[0].info.run_id), True
        new = _begun(client, folder, record)
        try:
            _filled(client, new, record)
            client.set_tag(new, RECORD_TAG, mark)
        except BaseException:
            client.delete_run(new)
            raise
        for one in old:
            client.delete_run(one.info.run_id)
    return new, False


@contextmanager
def _explained(uri: str, what: str) -> Iterator[None]:
    """Turn an error of MLflow's into one of ours."""
    try:
        yield
    except import_module("mlflow.exceptions").MlflowException as error:
        raise BadArguments(f"MLflow at {uri} refused {what}: {str(error).strip()}") from None


@contextmanager
def mlflow_run(name: str, env: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the variables by which all tasks of a launch log to one new run of MLflow.

    It is removed if the launch is refused.
    """
    tracking = _needed("mlflow.tracking", "mlflow")
    uri = env.get("MLFLOW_TRACKING_URI") or tracking.get_tracking_uri()
    with _explained(uri, f"a run for {name}"):
        client = tracking.MlflowClient(tracking_uri=uri)
        experiment = _experiment(client, env.get("MLFLOW_EXPERIMENT_NAME"))
        run = client.create_run(experiment, run_name=name)
    try:
        yield {"MLFLOW_TRACKING_URI": uri, "MLFLOW_RUN_ID": run.info.run_id}
    except BaseException:
        client.delete_run(run.info.run_id)
        raise


def _experiment(client: Any, name: str | None) -> str:  # noqa: ANN401 - MLflow's
    """Return the id of an experiment of MLflow, which is made if it is not there."""
    name = name or "Default"
    known = client.get_experiment_by_name(name)
    return str(client.create_experiment(name) if known is None else known.experiment_id)


def _mark(record: Record) -> str:
    """Return what distinguishes a run from any other, in this folder and in others."""
    what = [str(record.path.absolute()), record.info.get("started")]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


def _begun(client: Any, experiment: str, record: Record) -> str:  # noqa: ANN401 - MLflow's
    facts = facts_of(record, curves=False)
    commit = record.part("git").get("commit")
    tags = {
        "mlflow.source.type": "LOCAL",
        "mlflow.source.name": facts.script,
        "mlflow.source.git.commit": commit,
        "mlflow.note.content": facts.note,
        "mwmagic.run": facts.number,
        "mwmagic.tasks": facts.tasks,
        "mwmagic.tags": ", ".join(facts.tags),
        "mwmagic.trial": facts.trial,
        "mwmagic.cause": facts.cause,
    }
    known = {name: str(value) for name, value in tags.items() if value}
    began = None if facts.started is None else round(facts.started * 1000)
    name = f"{facts.name} {facts.number}"
    run = client.create_run(experiment, start_time=began, tags=known, run_name=name)
    return str(run.info.run_id)


_STATES = {
    RunState.FINISHED.value: "FINISHED",
    RunState.FAILED.value: "FAILED",
    RunState.STOPPED.value: "KILLED",
    RunState.LOST.value: "KILLED",
}


def _filled(client: Any, run: str, record: Record) -> None:  # noqa: ANN401 - MLflow's
    entities = import_module("mlflow.entities")
    facts = facts_of(record, curves=False)
    params = [
        entities.Param(_name(name), str(value)[:VALUE_CHARACTERS])
        for name, value in _parameters(facts).items()
    ]
    metrics = [
        entities.Metric(_name(name), value, round(wall * 1000), step)
        for name, values in scalars(record.metrics()).items()
        for step, wall, value in values
    ]
    for some in _batches(params, PARAMS_BATCH):
        client.log_batch(run, params=some)
    for some in _batches(metrics, METRICS_BATCH):
        client.log_batch(run, metrics=some)
    for path, folder in _artifacts(record):
        client.log_artifact(run, str(path), folder)
    if facts.state in _STATES:
        ended = None
        if facts.started is not None and facts.seconds is not None:
            ended = round((facts.started + facts.seconds) * 1000)
        client.set_terminated(run, _STATES[facts.state], ended)


def _batches(values: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    return (values[at : at + most] for at in range(0, len(values), most))


def _name(name: str) -> str:
    """Return a name as MLflow takes it: neither all characters, nor what is no path."""
    name = re.sub(r"[^/\w.\- ]", "_", name)[:NAME_CHARACTERS]
    path = name == posixpath.normpath(name) and not name.startswith(("/", "."))
    return name if path else re.sub(r"[/.]", "_", name) or "_"


def _artifacts(record: Record) -> Iterator[tuple[Path, str]]:
    """Yield the files of a run with the folders that they get: its code, and its tasks' logs."""
    code = Code.of(record)
    if code is not None:
        yield code.source, "code"
        for name, path in code.modules.items():
            yield path, posixpath.join("code", posixpath.dirname(name)).rstrip("/")
    for cell in record.cells():
        if record.paths.cell(cell.cell).is_file():
            yield record.paths.cell(cell.cell), "code"
    for task in record.tasks:
        with suppress(NoRun):  # it was not started
            yield record.log_path(task), "logs"
