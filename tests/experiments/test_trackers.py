"""One run of a tracker for all tasks of a launch, for programs that log by themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager

import pytest
from processes import eventually

from mwmagic import Cluster
from mwmagic.client import run as runs
from mwmagic.client.run import tracked
from mwmagic.errors import BadArguments, NotInstalled, RunActive
from mwmagic.experiments.series import scalars
from mwmagic.model.messages import Launch
from mwmagic.model.options import ClusterOptions

PROGRAM = """
import mlflow
from mwmagic.worker import this_task

with mlflow.start_run():
    mlflow.log_metric(f"loss of {this_task().index}", 0.5)
"""


def group(options, **launch):
    with tracked(Launch("main.py", **launch), ClusterOptions(**options)) as found:
        return found.env.get("WANDB_RUN_GROUP")


def test_each_launch_is_a_group_of_its_own_unless_one_is_given():
    groups = {group({"tracker": "wandb"}) for _ in range(9)}
    assert len(groups) == 9
    assert all(one.startswith("main-20") for one in groups)
    assert group({}) is None
    given = {"WANDB_RUN_GROUP": "mine"}
    assert group({"tracker": "wandb"}, given=given, env=given) == "mine"


@pytest.mark.slow
def test_workers_log_to_one_run_of_mlflow_and_a_refused_launch_leaves_none(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.chdir(tmp_path)
    with Cluster(2, warm=False, grace=0.2, tracker="mlflow") as cluster:
        run = cluster.run("main.py", source=PROGRAM)
        with pytest.raises(RunActive):
            cluster.run("main.py", source="pass")
        run.wait()
    [one] = mlflow.MlflowClient(uri).search_runs(["0"])
    assert one.info.status == "FINISHED"
    assert one.data.metrics == {"loss of 0": 0.5, "loss of 1": 0.5}
    with (
        pytest.raises(BadArguments, match=r"MLflow at foo:.* refused a run for main.py: "),
        tracked(
            Launch("main.py", env={"MLFLOW_TRACKING_URI": "foo://x"}),
            ClusterOptions(tracker="mlflow"),
        ),
    ):
        pass


RESTARTED = """
import pathlib, time
from mwmagic.worker import report, this_task

units = 32
again = pathlib.Path("go").exists()
for epoch in range(2 if again else 1, 4):
    for step in range(1, 3):
        report(epoch=epoch, epochs=3, step=step, steps=2, loss=1 / (10 * epoch + step + again))
        time.sleep(0.1)  # reports that come together count as one
if not again:
    while not pathlib.Path("go").exists():
        time.sleep(0.05)
    raise SystemExit(this_task().index == 0)
"""

# TensorBoard's reader would import TensorFlow, which it does without if this module exists.
FOLLOW = """
import json, pathlib, sys, time, types
sys.modules["tensorboard.compat.notf"] = types.ModuleType("notf")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

folder = pathlib.Path("tensorboard/run-1")
while not folder.is_dir():
    time.sleep(0.05)
found = EventAccumulator(str(folder))

def read(done):
    while not (found.Reload() and done()):
        time.sleep(0.05)
    names = found.Tags()["scalars"]
    values = lambda name: [[one.step, one.wall_time, one.value] for one in found.Scalars(name)]
    print(json.dumps({name: values(name) for name in names}), flush=True)

read(lambda: "loss" in found.Tags()["scalars"] and len(found.Scalars("loss")) >= int(sys.argv[1]))
read(lambda: metadata.SESSION_END_INFO_TAG in found.summary_metadata)
content = found.summary_metadata[metadata.SESSION_START_INFO_TAG].plugin_data.content
start = metadata.parse_session_start_info_plugin_data(content)
content = found.summary_metadata[metadata.SESSION_END_INFO_TAG].plugin_data.content
end = metadata.parse_session_end_info_plugin_data(content)
print(json.dumps([start.hparams["units"].number_value, end.status]))
"""


@contextmanager
def killed(process):
    """Kill a process if what waits for it fails."""
    try:
        yield
    except BaseException:
        process.kill()
        raise


@pytest.mark.slow
def test_tensorboards_own_reader_follows_a_run_and_its_next_attempt(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Cluster(2, warm=False, grace=0.2, tracker="tensorboard") as cluster:
        run = cluster.run("main.py", source=RESTARTED, restarts=1)
        words = [sys.executable, "-c", FOLLOW, "3"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as reader, killed(reader):
            live = json.loads(reader.stdout.readline())
            assert run.status().attempt == 1
            for values in live.values():
                assert [step for step, _, _ in values] == sorted({step for step, _, _ in values})
            (tmp_path / "go").touch()
            run.wait()
            after = json.loads(reader.stdout.readline())
            assert json.loads(reader.stdout.readline()) == [32, 1]  # 1 is success
        assert reader.returncode == 0
    expected = scalars(run.metrics())
    assert after.keys() == expected.keys()
    for name, values in expected.items():
        assert [[one.step, one.wall, pytest.approx(one.value)] for one in values] == after[name]
    [file] = (tmp_path / "tensorboard" / "run-1").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_run_goes_on_if_tensorboard_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tensorboard").touch()
    with Cluster(1, warm=False, grace=0.2, tracker="tensorboard") as cluster:
        run = cluster.run("main.py", source=WAITS)
        eventually(lambda: "tensorboard/run-1: " in (run.status().trouble or ""), "trouble")
        (tmp_path / "go").touch()
        run.wait()


WAITS = """
import pathlib, time
print("loss: 1.0", flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.05)
"""


def test_without_tensorboard_no_run_begins(monkeypatch):
    monkeypatch.setattr(runs, "find_spec", lambda _: None)
    with (
        pytest.raises(NotInstalled, match="--tracker tensorboard needs TensorBoard: pip "),
        tracked(Launch("main.py"), ClusterOptions(tracker="tensorboard")),
    ):
        pass
