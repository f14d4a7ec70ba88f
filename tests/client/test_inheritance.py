"""What workers inherit of the process that launches them."""

from __future__ import annotations

import json

import pytest
from processes import printed

from mwmagic.client.starting import inherited

LEVEL = "TF_CPP_MIN_LOG_LEVEL"


@pytest.mark.parametrize(("level", "left"), [("1", None), ("0", "0"), ("2", "2"), (None, None)])
def test_the_log_level_that_jax_sets_is_not_inherited(monkeypatch, level, left):
    monkeypatch.delenv(LEVEL, raising=False)
    if level is not None:
        monkeypatch.setenv(LEVEL, level)
    assert inherited().get(LEVEL) == left


@pytest.mark.parametrize(("value", "left"), [("disable", None), ("/plugins", "/plugins")])
def test_what_an_import_of_tensorflow_sets_is_not_inherited(monkeypatch, value, left):
    monkeypatch.setenv("HDF5_PLUGIN_PATH", value)
    assert inherited().get("HDF5_PLUGIN_PATH") == left


def test_everything_else_is(monkeypatch):
    monkeypatch.setenv("EPOCHS", "3")
    assert inherited()["EPOCHS"] == "3"


AFTER = """
import json
from mwmagic import Cluster

with Cluster(2, grace=1.0) as cluster:
    import tensorflow
    run = cluster.run(
        "main.py",
        source="import tensorflow as tf; tf.distribute.MultiWorkerMirroredStrategy()",
        task=0,
    )
    cluster._connection.wait(lambda _: run.status().tasks["worker:0"].waits, 120)
    seen = run.status().tasks["worker:0"]
    print(json.dumps({name: getattr(seen, name) for name in ("warm", "waits")}))
"""


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("level", ["unset", "inherited"])
def test_a_notebook_that_imports_tensorflow_still_shows_which_tasks_wait(
    tmp_path, own_sockets, monkeypatch, level
):
    monkeypatch.delenv(LEVEL, raising=False)
    if level == "inherited":
        monkeypatch.setenv(LEVEL, "1")
    assert json.loads(printed(AFTER, cwd=tmp_path)) == {"warm": True, "waits": ["worker:1"]}
