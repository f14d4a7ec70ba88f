"""Recorded runs as runs of MLflow, and one of these for all tasks of a launch.

Each run is one, however many workers it had. MLflow's own package writes it; mwmagic does not
depend on it.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mwmagic.errors import BadArguments, NoRun
from mwmagic.experiments.runs import facts_of
from mwmagic.experiments.series import scalars
from mwmagic.experiments.tensorboard import needed, tracker_parameters
from mwmagic.model.status import RunState

from .export import Code

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from mwmagic.record import Record

__all__ = ["mlflow_run", "to_mlflow"]

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
    tracking = needed("mlflow.tracking", "mlflow")
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
    tracking = needed("mlflow.tracking", "mlflow")
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
        for name, value in tracker_parameters(facts).items()
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
