import json
import os
from pathlib import Path

import pytest
from processes import printed

from mwmagic.errors import ClusterError
from mwmagic.frameworks import framework_for
from mwmagic.model.cluster import ClusterSpec, Task, make_tasks
from mwmagic.worker import cluster_size, is_chief, this_task

MEETING = ("KERAS_", "JAX_", "TF_CONFIG", "RANK", "WORLD_SIZE", "MASTER_", "MWMAGIC_TASK")


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    """Start without any cluster in the environment."""
    for name in list(os.environ):
        if name.startswith(MEETING):
            monkeypatch.delenv(name)


def placed(**shape):
    tasks = make_tasks(**shape)
    return ClusterSpec.of(tasks, [f"localhost:{4000 + at}" for at in range(len(tasks))])


def become(monkeypatch, spec, task, framework="tensorflow"):
    for name, value in framework_for(framework).environment(spec, task).items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("shape", "chief", "size"),
    [
        ({"workers": 3}, "worker:0", 3),
        ({"workers": 2, "chief": True, "evaluator": True}, "chief:0", 3),
        ({"workers": 2, "chief": True, "ps": 2}, "chief:0", 3),
    ],
)
def test_tasks_under_a_plain_tf_config(monkeypatch, shape, chief, size):
    spec = placed(**shape)
    for task in spec.tasks:
        become(monkeypatch, spec, task)
        assert this_task() == task
        assert is_chief() == (str(task) == chief)
        assert cluster_size() == size


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_processes_of_other_frameworks(monkeypatch, framework):
    spec = placed(workers=3)
    for index in range(3):
        become(monkeypatch, spec, Task("worker", index), framework)
        assert (this_task(), is_chief(), cluster_size()) == (Task("worker", index), index == 0, 3)


def test_one_process_is_a_cluster_of_its_own(monkeypatch):
    assert (this_task(), is_chief(), cluster_size()) == (Task("worker", 0), True, 1)
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert (this_task(), is_chief(), cluster_size()) == (Task("worker", 0), True, 1)


def test_a_rank_with_a_chief_keeps_its_name(monkeypatch):
    spec = placed(workers=1, chief=True)
    become(monkeypatch, spec, Task("worker", 0), "jax")
    monkeypatch.setenv("MWMAGIC_TASK", "worker:0")
    assert (this_task(), is_chief(), cluster_size()) == (Task("worker", 0), False, 2)


def test_a_malformed_environment_is_one_clear_error(monkeypatch):
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(ClusterError, match="RANK is not a whole number: 'first'"):
        this_task()
    monkeypatch.setenv("TF_CONFIG", "{'cluster'")
    with pytest.raises(ClusterError, match="TF_CONFIG is not valid JSON"):
        this_task()


SAVE = """
import json, os, sys
from pathlib import Path
from mwmagic.worker import write_path
one, two = write_path("models/digits.keras"), write_path(Path("other/digits.keras"))
assert write_path("models/digits.keras") == one
for path in (one, two):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w").close()
assert "tensorflow" not in sys.modules
print(json.dumps([one, type(two).__name__, str(two), write_path("gs://bucket/ckpt/")]))
"""


def save(folder, index):
    config = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": index}}
    env = {**os.environ, "TF_CONFIG": json.dumps(config)}
    return json.loads(printed(SAVE, cwd=folder, env=env))


def test_only_the_chief_writes_where_it_is_told(tmp_path):
    assert save(tmp_path, 0) == [
        "models/digits.keras",
        "PosixPath",
        "other/digits.keras",
        "gs://bucket/ckpt/",
    ]
    one, kind, two, far = save(tmp_path, 1)
    assert one != two
    assert kind == "PosixPath"
    assert {Path(path).name for path in (one, two)} == {"digits.keras"}
    assert Path(far).name == "ckpt"
    assert not any(Path(path).exists() for path in (one, two))
    assert not Path(one).parents[1].exists(), "nothing is left behind"
    assert [path.name for path in tmp_path.rglob("digits.keras")] == ["digits.keras"] * 2
