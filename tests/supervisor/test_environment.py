"""What a worker inherits, and what keeps it from being forked."""

from __future__ import annotations

import pytest

from mwmagic.frameworks.environment import early, forkable
from mwmagic.model.cluster import ClusterSpec, make_tasks
from mwmagic.model.options import ClusterOptions
from mwmagic.model.start import Start
from mwmagic.supervisor.environment import task_environment

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
    assert environment(framework="jax")["JAX_CHECK_PROXY_ENVS"] == "false", "or JAX warns of it"


def test_the_framework_decides_the_backend_unless_the_user_did():
    assert environment(framework="jax")["KERAS_BACKEND"] == "jax"
    assert environment({"KERAS_BACKEND": "torch"}, framework="jax")["KERAS_BACKEND"] == "torch"


def test_levels_and_modes_are_set_unless_the_user_did():
    assert environment()["TF_CPP_MIN_LOG_LEVEL"] == "0"
    assert environment({"TF_CPP_MIN_LOG_LEVEL": "2"})["TF_CPP_MIN_LOG_LEVEL"] == "2"
    assert environment(keras="legacy")["TF_USE_LEGACY_KERAS"] == "1"
    assert "TF_USE_LEGACY_KERAS" not in environment()


@pytest.mark.parametrize(
    ("change", "may"),
    [
        ({}, True),
        ({"LEARNING_RATE": "0.1"}, True),
        ({"TF_CONFIG": "{}"}, True),
        ({"TF_NUM_INTRAOP_THREADS": "1"}, True),
        ({"KMP_DUPLICATE_LIB_OK": "True", "KMP_INIT_AT_FORK": "FALSE"}, True),
        ({"KMP_AFFINITY": "none"}, False),
        ({"OPENBLAS_NUM_THREADS": "4"}, False),
        ({"TF_CPP_MIN_LOG_LEVEL": "3"}, False),
        ({"KERAS_BACKEND": "jax"}, False),
        ({"PYTHONPATH": "/elsewhere"}, False),
        ({"LD_PRELOAD": "/lib/jemalloc.so"}, False),
    ],
)
def test_what_an_import_reads_keeps_a_worker_from_being_forked(change, may):
    warm = environment()
    assert forkable({**warm, **change}, early(warm)) == may


@pytest.mark.parametrize("name", ["MPLBACKEND", "MATPLOTLIBRC", "SKLEARN_X", "MATPLOTLIB_X"])
def test_what_a_module_imported_ahead_may_read_keeps_one_from_being_forked(name):
    ahead = ("matplotlib.pyplot", "sklearn")
    warm = environment()
    assert forkable({**warm, name: "x"}, early(warm))
    assert forkable(warm, early(warm, ahead), ahead)
    assert not forkable({**warm, name: "x"}, early(warm, ahead), ahead)


def test_a_process_that_imported_with_more_threads_is_none_to_fork_from():
    threads = environment({"OPENBLAS_NUM_THREADS": "4"})
    assert not forkable(threads, early(threads))
