"""What a worker inherits, and what keeps it from being forked."""

from __future__ import annotations

import pytest

from mwmagic.frameworks.environment import differing
from mwmagic.model.cluster import ClusterSpec, make_tasks
from mwmagic.model.messages import Start
from mwmagic.model.options import ClusterOptions
from mwmagic.supervisor.preparation import task_environment

TASKS = make_tasks(2)
SPEC = ClusterSpec.of(TASKS, ["localhost:1111", "node-2:2222"])


def environment(env=None, **options):
    start = Start(ClusterOptions(workers=2, name="c", directory="/", **options))
    return task_environment(start, SPEC, TASKS[1], env or {}, {})


def test_what_only_the_notebook_is_meant_to_see_is_left_out():
    inline = "module://matplotlib_inline.backend_inline"
    env = environment({"JPY_PARENT_PID": "1", "MPLBACKEND": inline, "TF_CONFIG": "{}", "A": "b"})
    assert "JPY_PARENT_PID" not in env
    assert "MPLBACKEND" not in env
    assert '"index": 1' in env["TF_CONFIG"]
    assert env["A"] == "b"
    assert environment({"MPLBACKEND": "svg"})["MPLBACKEND"] == "svg"


def test_no_task_is_reached_through_a_proxy():
    given = {"http_proxy": "http://proxy:3128", "no_proxy": "intern"}
    env = environment(given)
    assert env["no_grpc_proxy"] == "intern,localhost,127.0.0.1,node-2"
    assert given.items() <= env.items()


def test_the_framework_decides_the_backend_unless_the_user_did():
    assert environment(framework="jax")["KERAS_BACKEND"] == "jax"
    assert environment({"KERAS_BACKEND": "torch"}, framework="jax")["KERAS_BACKEND"] == "torch"


def test_levels_and_modes_are_set_unless_the_user_did():
    assert environment()["TF_CPP_MIN_LOG_LEVEL"] == "0"
    assert environment({"TF_CPP_MIN_LOG_LEVEL": "2"})["TF_CPP_MIN_LOG_LEVEL"] == "2"
    assert environment(keras="legacy")["TF_USE_LEGACY_KERAS"] == "1"
    assert "TF_USE_LEGACY_KERAS" not in environment()


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({}, []),
        ({"LEARNING_RATE": "0.1"}, []),
        ({"TF_CONFIG": "{}"}, []),
        ({"TF_NUM_INTRAOP_THREADS": "1"}, []),
        ({"MWMAGIC_TASK": "worker:1"}, []),
        ({"KMP_AFFINITY": "none"}, ["KMP_AFFINITY"]),
        ({"OPENBLAS_NUM_THREADS": "4"}, ["OPENBLAS_NUM_THREADS"]),
        ({"TF_CPP_MIN_LOG_LEVEL": "3", "A": "b"}, ["TF_CPP_MIN_LOG_LEVEL"]),
        ({"TZ": "Asia/Tokyo", "LC_ALL": "C", "HOME": "/x"}, ["HOME", "LC_ALL", "TZ"]),
        ({"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}, [...]),
        ({"KERAS_BACKEND": "jax"}, ["KERAS_BACKEND"]),
        ({"PYTHONPATH": "/elsewhere"}, ["PYTHONPATH"]),
        ({"LD_PRELOAD": "/lib/jemalloc.so"}, ["LD_PRELOAD"]),
    ],
)
def test_what_an_import_reads_keeps_a_worker_from_being_forked(change, names):
    warm = environment()
    assert differing({**warm, **change}, warm) == ([*change] if names == [...] else names)


def test_so_does_what_python_code_has_asked_for():
    warm = environment()
    env = {**warm, "MPLBACKEND": "Agg"}
    assert differing(env, warm, {"MPLBACKEND"}) == ["MPLBACKEND"]
    assert differing(warm, env, {"MPLBACKEND"}) == ["MPLBACKEND"]
    assert differing(env, warm, {"HF_HUB_OFFLINE"}) == []
    assert differing(env, warm, {"MPLBACKEND"}, {"MPLBACKEND": "Agg"}) == [], "the import set it"


def test_one_that_is_the_same_keeps_none():
    threads = environment({"OPENBLAS_NUM_THREADS": "4"})
    assert differing(threads, threads) == []
