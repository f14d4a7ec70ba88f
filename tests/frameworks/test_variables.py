"""The variables of tasks, as they follow from what the frameworks declare."""

import pytest

from mwmagic.errors import ClusterError
from mwmagic.frameworks import FRAMEWORKS, framework_for
from mwmagic.frameworks.environment import (
    backend_environment,
    default_environment,
    differing,
    inheritable,
    meeting_environment,
    option_environment,
    set_by_user,
    thread_environment,
)
from mwmagic.model.cluster import ClusterSpec, Task, make_tasks

SPEC = ClusterSpec.of(make_tasks(2), ["localhost:1111", "node-2:2222"])


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_differs_between_tasks_keeps_none_from_being_forked(framework):
    one, two = (meeting_environment(framework, SPEC, task, {}) for task in SPEC.tasks)
    assert one != two
    assert differing(two, one) == []


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, ""),
        ({"NO_PROXY": "not-read", "NO_GRPC_PROXY": "not-read"}, ""),
        ({"no_proxy": "intern,localhost"}, "intern,"),
        ({"no_grpc_proxy": "intern,", "no_proxy": "not-read"}, "intern,"),
        ({"no_grpc_proxy": "", "no_proxy": "not-read"}, ""),
    ],
)
def test_a_task_meets_the_others_past_any_proxy_of_grpc(framework, given, kept):
    env = meeting_environment(framework, SPEC, Task("worker", 1), given)
    assert env.pop("no_grpc_proxy") == f"{kept}localhost,127.0.0.1,node-2"
    assert not [name for name in env if "proxy" in name.lower()], "the program's own"


def test_only_where_mwmagic_holds_the_port_a_server_is_told_to_share_it():
    task = Task("worker", 0)
    assert meeting_environment("tensorflow", SPEC, task, {})["TF_GRPC_REUSE_PORT"] == "1"
    assert "TF_GRPC_REUSE_PORT" not in framework_for("tensorflow").environment(SPEC, task)


def test_keras_follows_the_framework_unless_the_user_chose_its_backend():
    assert backend_environment("jax", {}) == {"KERAS_BACKEND": "jax"}
    assert backend_environment("tensorflow", {}) == {}
    assert backend_environment("torch", {"KERAS_BACKEND": "jax"}) == {}
    assert "KERAS_BACKEND" not in meeting_environment(
        "jax", SPEC, SPEC.chief, {"KERAS_BACKEND": "torch"}
    )


def test_options_become_variables():
    assert option_environment("jax", keras="auto", devices=4) == {"JAX_NUM_CPU_DEVICES": "4"}
    assert option_environment("jax", keras="auto", devices=0) == {}
    legacy = option_environment("tensorflow", keras="legacy", devices=4)
    assert legacy == {"TF_USE_LEGACY_KERAS": "1"}


def test_every_task_logs_its_start():
    level = default_environment()["TF_CPP_MIN_LOG_LEVEL"]
    assert framework_for("tensorflow").logs_start({"TF_CPP_MIN_LOG_LEVEL": level})
    assert framework_for("tensorflow").logs_start({})
    assert not framework_for("tensorflow").logs_start({"TF_CPP_MIN_LOG_LEVEL": "2"})
    assert not framework_for("torch").logs_start({})


def test_a_parameter_server_has_two_threads_between_operations():
    assert thread_environment(1) == {
        "OMP_NUM_THREADS": "1",
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "2",
        "NPROC": "1",
    }
    assert set(thread_environment(4).values()) == {"4"}


def test_what_an_import_sets_is_not_the_users():
    assert set_by_user({"TF_CPP_MIN_LOG_LEVEL": "1", "A": "b"}) == {"A": "b"}
    assert set_by_user({"TF_CPP_MIN_LOG_LEVEL": "2"}) == {"TF_CPP_MIN_LOG_LEVEL": "2"}


def test_a_notebooks_own_cluster_is_not_inherited():
    assert inheritable({"TF_CONFIG": "{}", "JPY_PARENT_PID": "1", "A": "b"}) == {"A": "b"}


@pytest.mark.parametrize("name", ["TORCH_LOGS", "PYTORCH_JIT", "JAX_PLATFORMS", "TF_ENABLE_X"])
def test_what_is_read_while_a_framework_is_imported_keeps_a_worker_from_being_forked(name):
    assert differing({name: "1"}, {}) == [name]


def test_the_name_of_the_test_that_launches_makes_no_difference():
    assert differing({"PYTEST_CURRENT_TEST": "a"}, {}, {"PYTEST_CURRENT_TEST"}) == []


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_types_of_tasks_that_a_framework_does_not_know_are_refused(framework):
    framework_for(framework).check(make_tasks(2, chief=True))
    with pytest.raises(ClusterError, match=r"remove ps:0 or use --framework tensorflow"):
        framework_for(framework).check(make_tasks(2, ps=1))
