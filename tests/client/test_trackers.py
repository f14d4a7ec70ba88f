"""One run of a tracker for all tasks of a launch, for programs that log by themselves."""

from __future__ import annotations

import pytest

from mwmagic import Cluster
from mwmagic.client.run import tracked
from mwmagic.errors import BadArguments, RunActive
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
