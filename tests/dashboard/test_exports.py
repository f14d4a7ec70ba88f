"""Recorded runs for other tools: TensorBoard's reader and MLflow's client read the same values."""

from __future__ import annotations

import csv
import errno
import json
from xml.etree import ElementTree as ET

import pytest
from processes import printed

from mwmagic.cli import main
from mwmagic.dashboard import exports
from mwmagic.experiments.runs import Facts
from mwmagic.experiments.series import Scalar
from mwmagic.experiments.trackers import Events
from mwmagic.record import RunDirectory, paths, runs

PROGRAM = "units = 32\nlr = 0.1\nname = 'adam'\nlayers = [64, 32]\n"
PROGRAM += "import os\nkey = os.environ.get('API_KEY', 'mine')\n"

STEPS = 4


def recorded(folder, state="finished", *, fits=True):
    """Write the record of a run of two workers that trained for two epochs of four steps."""
    run = RunDirectory.create(folder, "train")
    (run.path / "train.py").write_text(PROGRAM)
    attempt = run.path / "attempt-1"
    attempt.mkdir()
    tasks = {}
    for number in (0, 1):
        (attempt / f"worker-{number}.log").write_text(f"worker {number} trains\n")
        tasks[f"worker:{number}"] = {"state": "ended", "code": 0}
    launch = {"script": "train.py", "source": "train.py", "cwd": str(folder), "args": []}
    known = {"val_loss": 0.3, "loss": 0.5}
    reached = {
        name: {"last": {"value": value}, "best": {"value": value}} for name, value in known.items()
    }
    with (run.path / "metrics.jsonl").open("w") as file:
        for entry in entries() if fits else ():
            file.write(json.dumps(entry) + "\n")
    run.write(
        {
            "state": state,
            "started": 1_000_000.0,
            "ended": 1_000_060.0,
            "launches": dict.fromkeys(tasks, launch),
            "tasks": tasks,
            "metrics": {"worker:0": reached} if fits else {},
        }
    )
    run.flush()
    return run


def entries():
    wall = 1_000_000.0
    for epoch in (1, 2):
        place = {"attempt": 1, "source": "report", "epoch": epoch, "epochs": 2, "steps": STEPS}
        for step in range(1, STEPS + 1):
            wall += 1
            for task, loss in (("worker:1", 9.0), ("worker:0", value(epoch, step))):
                told = {"task": task, "kind": "train", "wall": wall, "step": step, "final": False}
                yield {**place, **told, "metrics": {"loss": loss}}
        for task in ("worker:1", "worker:0"):
            told = {"task": task, "wall": wall + 0.5, "step": STEPS, "final": True, **place}
            yield {**told, "kind": "train", "metrics": {"loss": value(epoch, 0)}}
            yield {**told, "kind": "validation", "metrics": {"val_loss": 0.1 + 0.1 * epoch}}


def value(epoch, step):
    return 1 / (10 * epoch + step)


BY_STEP = [(STEPS * (e - 1) + s, value(e, s)) for e in (1, 2) for s in range(1, STEPS + 1)]
EXPECTED = {
    "loss": BY_STEP,
    "epoch/loss": [(1, value(1, 0)), (2, value(2, 0))],
    "val_loss": [(4, 0.2), (8, 0.1 + 0.2)],
    "epoch/val_loss": [(1, 0.2), (2, 0.1 + 0.2)],
}


@pytest.fixture
def export(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def export(*words):
        """Return the command's exit code and what it printed."""
        try:
            code = main(["export", *words])
        except SystemExit as error:
            code = error.code
        return code, "".join(capsys.readouterr())

    return export


# TensorBoard's reader would import TensorFlow, which it does without if this module exists.
READ = """
import json, sys, types
sys.modules["tensorboard.compat.notf"] = types.ModuleType("notf")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

found = EventAccumulator("tensorboard/run-1").Reload()
scalars = {tag: [[one.step, one.value, one.wall_time] for one in found.Scalars(tag)]
           for tag in found.Tags()["scalars"]}
content = found.summary_metadata[metadata.SESSION_START_INFO_TAG].plugin_data.content
start = metadata.parse_session_start_info_plugin_data(content)
content = found.summary_metadata[metadata.SESSION_END_INFO_TAG].plugin_data.content
end = metadata.parse_session_end_info_plugin_data(content)
params = {name: one.number_value or one.string_value for name, one in start.hparams.items()}
print(json.dumps([scalars, params, start.start_time_secs, end.status, end.end_time_secs]))
"""


@pytest.mark.slow
def test_tensorboards_own_reader_finds_every_value(export, tmp_path):
    recorded(tmp_path)
    recorded(tmp_path, "failed")
    loaded = printed(f"{LOADS}main(['export', 'tensorboard', '1', '2'])").split()
    assert "tensorboard" in loaded
    assert "tensorflow" not in loaded
    scalars, params, began, status, ended = json.loads(printed(READ))
    assert scalars.keys() == EXPECTED.keys()
    for name, expected in EXPECTED.items():
        assert [(step, pytest.approx(one)) for step, one in expected] == [
            (step, one) for step, one, _ in scalars[name]
        ]
    assert [wall for _, _, wall in scalars["val_loss"]] == [1_000_004.5, 1_000_008.5]
    assert params == {
        "units": 32,
        "lr": 0.1,
        "name": "adam",
        "layers": "[64, 32]",
        "API_KEY": "(set)",
    }
    assert (began, status, ended) == (1_000_000.0, 1, 1_000_060.0)  # 1 is success
    assert len(list((tmp_path / "tensorboard").glob("run-*/events.out.tfevents.*"))) == 2
    code, text = export("tensorboard", "1")
    assert code == 2
    assert "run-1 exists, and is left as it is; `--overwrite` replaces it" in text
    assert export("tensorboard", "1", "--overwrite")[0] == 0
    assert len(list((tmp_path / "tensorboard" / "run-1").iterdir())) == 1


LOADS = "import sys, atexit; atexit.register(lambda: print(*sys.modules))\n"
LOADS += "from mwmagic.cli import main\n"


@pytest.mark.slow
def test_mlflows_own_client_reads_every_value_and_a_gang_is_one_run(export, tmp_path):
    mlflow = pytest.importorskip("mlflow")
    recorded(tmp_path)
    recorded(tmp_path, "failed", fits=False)
    words = ("mlflow", "1", "2", "--uri", "sqlite:///mlflow.db", "--experiment", "tuned")
    code, text = export(*words)
    assert code == 0, text
    client = mlflow.MlflowClient("sqlite:///mlflow.db")
    where = [client.get_experiment_by_name("tuned").experiment_id]
    second, first = client.search_runs(where, order_by=["attributes.run_name DESC"])
    assert (first.info.status, second.info.status) == ("FINISHED", "FAILED")
    assert (first.info.start_time, first.info.end_time) == (1_000_000_000, 1_000_060_000)
    assert first.data.params == {
        "units": "32",
        "lr": "0.1",
        "name": "adam",
        "layers": "[64, 32]",
        "API_KEY": "(set)",
    }
    run = first.info.run_id
    for name, expected in EXPECTED.items():
        found = sorted((one.step, one.value) for one in client.get_metric_history(run, name))
        assert found == expected
    walls = {one.step: one.timestamp for one in client.get_metric_history(run, "val_loss")}
    assert walls == {4: 1_000_004_500, 8: 1_000_008_500}
    files = {one.path for part in ("code", "logs") for one in client.list_artifacts(run, part)}
    assert files == {"code/train.py", "logs/worker-0.log", "logs/worker-1.log"}
    code, text = export(*words)
    assert f"run 1 is in MLflow already, as {run}: --overwrite exports it again" in text
    assert export(*words, "--overwrite")[0] == 0
    again = client.search_runs(where)
    assert len(again) == 2
    assert run not in {one.info.run_id for one in again}


@pytest.mark.slow
def test_what_attempts_trained_again_is_there_once_for_tensorboards_reader(tmp_path):
    steps = [(1, 0.9), (2, 0.8), (3, 0.7), (2, 0.5), (3, 0.4), (3, 0.3), (4, 0.2)]
    events = Events(Facts(1, "main", "running", started=1.0), 1.0)
    for step, value in steps:
        events.add("loss", Scalar(10 * step, 2.0, value))
        events.add("epoch/loss", Scalar(step, 2.0, value))
    (tmp_path / events.name).write_bytes(events.taken())
    assert events.taken() == b""
    left = [(1, 0.9), (2, 0.5), (3, 0.3), (4, 0.2)]
    code = READ_ALL.replace("FOLDER", str(tmp_path))
    found = json.loads(printed(code))
    assert found["epoch/loss"] == [[step, pytest.approx(value)] for step, value in left]
    assert found["loss"] == [[10 * step, pytest.approx(value)] for step, value in left]


READ_ALL = """
import json, sys, types
sys.modules["tensorboard.compat.notf"] = types.ModuleType("notf")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

found = EventAccumulator("FOLDER").Reload()
print(json.dumps({name: [[one.step, one.value] for one in found.Scalars(name)]
                  for name in found.Tags()["scalars"]}))
"""


@pytest.mark.slow
def test_huge_integers_and_lone_surrogates_are_exported(export, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    more = f"huge = 1{'0' * 400}\nhexadecimal = 0x{'f' * 6000}\ntext = '\\ud800x'\n"
    monkeypatch.setattr(f"{__name__}.PROGRAM", PROGRAM + more)
    odd = {"m\ud800": 0.25, "large": 1e300, "infinite": "Infinity"}
    plain = [{**one, "metrics": {**one["metrics"], **odd}} for one in entries()]
    plain.append({**plain[-1], "metrics": {"loss": 10**400}, "step": 2**53})
    monkeypatch.setattr(f"{__name__}.entries", lambda: plain)
    recorded(tmp_path)
    uri = "sqlite:///mlflow.db"
    for words in (["csv"], ["tensorboard"], ["mlflow", "--uri", uri], ["svg"]):
        code, text = export(*words)
        assert code == 0, text
    assert "m\ufffd" in (tmp_path / "run-1.csv").read_text()
    scalars, params, *_ = json.loads(printed(READ))
    assert [one for _, one, _ in scalars["m\ufffd"]][:2] == [0.25, 0.25]
    assert params["huge"] == "1" + "0" * 400
    assert params["hexadecimal"] == "0x" + "f" * 6000
    assert params["text"] == "\ufffdx"
    [run] = mlflow.MlflowClient(uri).search_runs(["0"])
    assert run.data.params["huge"] == params["huge"]
    assert run.data.params["text"] == "\ufffdx"
    [shown] = json.loads(printed("from mwmagic.cli import main\nmain(['runs', '--json'])"))
    assert shown["parameters"]["huge"] == 10**400
    assert shown["parameters"]["text"] == "\ud800x"


def test_metrics_are_written_as_csv(export, tmp_path):
    recorded(tmp_path)
    recorded(tmp_path)
    assert export("csv", "2") == (0, "wrote run-2.csv\n")
    assert export("csv", "2", "1", "--file", "all.csv") == (0, "wrote all.csv\n")
    with (tmp_path / "all.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 * len(list(entries()))
    assert {one["run"] for one in lines} == {"1", "2"}
    own = [one for one in lines if one["task"] == "worker:0" and one["final"] == "False"]
    assert [float(one["loss"]) for one in own] == [one for _, one in BY_STEP] * 2


@pytest.mark.slow
def test_curves_are_drawn_as_svg_and_as_png(export, tmp_path):
    pytest.importorskip("matplotlib")
    recorded(tmp_path)
    recorded(tmp_path)
    assert export("svg", "1", "2", "--metric", "loss,val_loss")[0] == 0
    texts = [one.text for one in ET.parse(tmp_path / "runs-1-2.svg").iter() if one.text]
    assert {"run 1", "run 2", "loss", "val_loss", "step"} <= set(texts)
    assert export("png") == (0, "wrote run-2.png\n")
    assert (tmp_path / "run-2.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_exported_is_one_sentence_and_writes_nothing(export, tmp_path, monkeypatch):
    code, text = export("csv")
    assert (code, text.count("\n")) == (2, 1)
    assert "no runs are recorded in " in text
    recorded(tmp_path)
    recorded(tmp_path, fits=False)
    (tmp_path / "there.csv").write_text("mine")
    for words, message in [
        (["csv", "7"], "there is no run 7; %mw_runs, or `mwmagic runs`, lists all"),
        (["csv", "1", "1"], "run 1 is given twice"),
        (["csv", "1", "2"], "run 2 has no metrics to write"),
        (["tensorboard", "2"], "run 2 has no metrics that TensorBoard could show"),
        (["svg", "2"], "run 2 has no metrics to draw"),
        (["svg", "1", "--metric", "los"], "los"),
        (["pdf", "1"], "invalid choice: 'pdf'"),
        (["csv", "1", "--file", "there.csv"], "there.csv exists, and is left as it is"),
        (["csv", "1", "--file", "train.py/x.csv"], "train.py is "),
        (["csv", "1", "--metric", "loss"], "--metric is for svg and png, and csv has all"),
        (["csv", "1", "--uri", "x"], "--uri is for mlflow, not for csv"),
        (["mlflow", "1", "--file", "x"], "leave out --file"),
    ]:
        (tmp_path / "train.py").touch()
        before = sorted(tmp_path.iterdir())
        code, text = export(*words)
        assert code == 2, words
        assert message in text, words
        assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "there.csv").read_text() == "mine"

    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(exports.paths, "replace", full)
    assert "there is no space left for run-1.csv" in export("csv", "1")[1]
    assert len(runs(tmp_path)) == 2
    assert paths.replace is full
