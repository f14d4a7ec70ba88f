import importlib.util
import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mwmagic.errors import ClusterError
from mwmagic.frameworks import FRAMEWORKS, framework_for, tf_config
from mwmagic.frameworks.environment import meeting_environment
from mwmagic.model.cluster import ClusterSpec, Task, make_tasks

calm = settings(deadline=None)

SHAPES = [
    {"workers": 1},
    {"workers": 3},
    {"workers": 2, "chief": True},
    {"workers": 0, "chief": True},
    {"workers": 2, "ps": 2},
    {"workers": 12, "chief": True, "ps": 2, "evaluator": True},
    {"workers": 2, "evaluator": True},
]


def cluster(shape, ports=range(20000, 20100)):
    members = make_tasks(**shape)
    return ClusterSpec.of(members, [f"localhost:{port}" for port in ports[: len(members)]])


@pytest.fixture
def free_ports():
    """Hold ports that a server which shares its port may bind."""
    with ExitStack() as held:

        def hold(count):
            ports = []
            for _ in range(count):
                one = held.enter_context(socket.socket(socket.AF_INET6))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                one.bind(("::", 0))
                ports.append(one.getsockname()[1])
            return ports

        yield hold


# TF_CONFIG.


def test_tf_config_of_a_worker():
    spec = cluster({"workers": 2, "chief": True})
    assert json.loads(tf_config(spec, Task("worker", 1))) == {
        "cluster": {"chief": ["localhost:20000"], "worker": ["localhost:20001", "localhost:20002"]},
        "task": {"type": "worker", "index": 1},
    }


def test_an_evaluator_knows_itself_and_the_others_do_not_know_it():
    spec = cluster({"workers": 2, "evaluator": True})
    workers = {"worker": ["localhost:20000", "localhost:20001"]}
    evaluator = {"evaluator": ["localhost:20002"]}
    assert json.loads(tf_config(spec, Task("evaluator", 0)))["cluster"] == workers | evaluator
    assert json.loads(tf_config(spec, Task("worker", 1)))["cluster"] == workers


@calm
@given(st.sampled_from(SHAPES), st.data())
def test_every_task_finds_its_own_address_and_all_read_the_same_cluster(shape, data):
    spec = cluster(shape)
    task = data.draw(st.sampled_from(spec.tasks))
    config = json.loads(tf_config(spec, task))
    own = config["task"]
    assert (own["type"], own["index"]) == (task.type, task.index)
    assert config["cluster"][task.type][task.index] == spec.addresses[task]
    config["cluster"].pop("evaluator", None)
    assert config["cluster"] == json.loads(tf_config(spec, spec.chief))["cluster"]
    assert list(config["cluster"]) == list(dict.fromkeys(task.type for task in spec.members))


READ_TF_CONFIGS = """
import json, os, sys

import tensorflow as tf
from tensorflow.python.distribute import multi_worker_util

def read(config):
    os.environ["TF_CONFIG"] = config
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    own = resolver.cluster_spec(), resolver.task_type, resolver.task_id
    assert own[0] == tf.train.ClusterSpec(json.loads(config)["cluster"])
    seen = {"cluster": own[0].as_dict(), "type": own[1], "index": own[2],
            "address": own[0].task_address(*own[1:]), "chief": multi_worker_util.is_chief(*own)}
    if own[1] != "ps":
        seen |= {"rank": multi_worker_util.id_in_cluster(*own),
                 "ranks": multi_worker_util.worker_count(*own[:2])}
    return seen

*configs, last = json.load(sys.stdin)
seen = [read(config) for config in configs]

os.environ["TF_CONFIG"] = last
strategy = tf.distribute.MultiWorkerMirroredStrategy()
replicas = strategy.num_replicas_in_sync
total = strategy.reduce("SUM", strategy.run(lambda: tf.constant(2.0)), axis=None)
print(json.dumps({"seen": seen, "replicas": replicas, "total": float(total)}), flush=True)
os._exit(0)
"""


def run_python(code, text, env=None):
    return subprocess.run(
        [sys.executable, "-c", code],
        input=text,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2", "no_proxy": "localhost"} | (env or {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.tensorflow
def test_tensorflow_reads_every_tf_config_and_an_evaluator_can_make_a_strategy(free_ports):
    specs = [cluster(shape) for shape in SHAPES]
    cases = [(spec, task) for spec in specs for task in spec.tasks]
    live = cluster({"workers": 2, "evaluator": True}, free_ports(3))
    evaluator = Task("evaluator", 0)
    configs = [tf_config(spec, task) for spec, task in (*cases, (live, evaluator))]
    done = run_python(READ_TF_CONFIGS, json.dumps(configs), {"TF_GRPC_REUSE_PORT": "1"})
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert (answer["replicas"], answer["total"]) == (1, 2.0)
    for (spec, task), config, seen in zip(cases, configs, answer["seen"], strict=False):
        assert seen["cluster"] == json.loads(config)["cluster"]
        assert (seen["type"], seen["index"]) == (task.type, task.index)
        assert seen["address"] == spec.addresses[task]
        assert seen["chief"] == (task in (spec.chief, evaluator))
        trainers = [one for one in spec.tasks if one.type in ("chief", "worker")]
        if task in trainers:
            assert (seen["rank"], seen["ranks"]) == (trainers.index(task), len(trainers))
        elif task == evaluator:
            assert (seen["rank"], seen["ranks"]) == (0, 1)
    assert len(answer["seen"]) == len(cases)


# JAX and torch.


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_ranks_are_dense_and_the_first_is_where_all_meet(framework):
    spec = cluster({"workers": 2, "chief": True})
    environments = [framework_for(framework).environment(spec, task) for task in spec.tasks]
    names = {
        "jax": ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
        "torch": ("MASTER_PORT", "WORLD_SIZE", "RANK"),
    }[framework]
    meeting = "localhost:20000" if framework == "jax" else "20000"
    values = [tuple(environment[name] for name in names) for environment in environments]
    assert values == [(meeting, "3", "0"), (meeting, "3", "1"), (meeting, "3", "2")]


def test_torch_counts_local_ranks_by_machine_and_wants_no_brackets():
    addresses = ["[::1]:10", "[::2]:10", "[::1]:11", "[::2]:11"]
    spec = ClusterSpec.of(make_tasks(4), addresses)
    environments = [framework_for("torch").environment(spec, task) for task in spec.tasks]
    assert [one["LOCAL_RANK"] for one in environments] == ["0", "0", "1", "1"]
    assert {one["MASTER_ADDR"] for one in environments} == {"::1"}


MEET = """
import json, os
import jax, keras
keras.distribution.initialize()
print(json.dumps([jax.process_index(), jax.process_count(), jax.device_count()]), flush=True)
jax.distributed.shutdown()
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("jax", "keras"))), reason="jax or keras is not installed"
)
def test_keras_on_jax_meets(free_ports):
    spec = cluster({"workers": 2}, free_ports(2))
    shared = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "1",
        "no_proxy": "localhost",
    }
    with ExitStack() as stack:
        processes = []
        for task in spec.tasks:
            environment = shared | meeting_environment("jax", spec, task, shared)
            process = subprocess.Popen(
                [sys.executable, "-c", MEET],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            processes.append(stack.enter_context(process))
            stack.callback(process.kill)
        outputs = [process.communicate(timeout=120) for process in processes]
    said = [json.loads(out.splitlines()[-1]) if out else err for out, err in outputs]
    assert said == [[0, 2, 2], [1, 2, 2]]


# Errors.


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_only_tensorflow_has_servers_and_evaluators(framework):
    spec = cluster({"workers": 2, "ps": 1, "evaluator": True})
    with pytest.raises(ClusterError, match=r"workers only; remove ps:0, evaluator:0 or use"):
        framework_for(framework).environment(spec, Task("worker", 0))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_task_that_is_not_there_lists_those_that_are(framework):
    with pytest.raises(ClusterError, match=r"worker:5 does not exist; .* are worker:0, worker:1$"):
        framework_for(framework).environment(cluster({"workers": 2}), Task("worker", 5))


def test_an_unknown_framework_lists_the_known():
    with pytest.raises(ClusterError, match="'mxnet'; the frameworks are tensorflow, jax, torch"):
        framework_for("mxnet")
