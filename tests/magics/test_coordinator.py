"""A notebook that is the chief of a ParameterServerStrategy cluster: in a real kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import psutil
import pytest
from processes import eventually

from mwmagic import Cluster
from mwmagic.errors import ClusterError

DECLARE = "%mw_cluster 2 --ps 1 --coordinator --grace 1"
STRATEGY = """
import time
import tensorflow as tf
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weight = tf.Variable(4.0)
    steps = tf.Variable(0, dtype=tf.int64)

@tf.function
def step():
    weight.assign_sub(0.1 * 2.0 * weight)
    steps.assign_add(1)
    folder = tf.where(steps > 0, "self", "nobody")  # not to be folded into a constant
    return tf.io.read_file(tf.strings.join(["/proc/", folder, "/stat"]))  # of whom it runs on

def workers():
    return sorted(row.pid or 0 for name, row in tasks() if name.startswith("worker"))

def tasks():
    return get_ipython().find_line_magic("mw_status")("").status.tasks.items()

def train():
    # Until every worker that there is has taken part.
    while True:
        ran = [coordinator.schedule(step) for _ in range(20)]
        coordinator.join()
        if sorted({int(value.fetch().split()[0]) for value in ran}) == workers():
            return workers()
"""
NAMES = ("TF_CONFIG", "TF_GRPC_REUSE_PORT", "no_proxy", "no_grpc_proxy")
VARIABLES = f"{{name: os.environ.get(name) for name in {NAMES}}}"


def ours(kernel):
    """Return the processes below the kernel: supervisor, agent, zygote, servers."""
    return psutil.Process(kernel.manager.provisioner.process.pid).children(recursive=True)


@pytest.mark.slow
@pytest.mark.tensorflow
def test_the_notebook_coordinates(kernel):
    def ask(code, timeout=240):
        result = kernel.run(code, timeout)
        assert result.error is None, result.error
        return result

    ask("import json, os; os.environ['no_proxy'] = 'example.org'; before = " + VARIABLES)
    shown = ask(DECLARE).value.splitlines()
    assert shown[1].startswith("  chief:0  localhost:")
    assert shown[1].endswith("  this process")
    config = "json.loads(os.environ['TF_CONFIG'])"
    assert ask(config + "['task']").value == "{'type': 'chief', 'index': 0}"
    assert ask(f"sorted({config}['cluster'])").value == "['chief', 'ps', 'worker']"
    assert "example.org,localhost" in ask("os.environ['no_grpc_proxy']").value

    ask(STRATEGY)
    first = ask("train()").value
    # Workers that step at the same moment start from the same weight: it falls less fast.
    ask("while abs(weight.numpy()) >= 0.1: train()")
    assert ask("bool(steps.numpy() >= 20 and abs(weight.numpy()) < 0.1)").value == "True"
    assert "sent SIGKILL to worker:1" in ask("%mw_kill 1").text
    ask(f"while workers() == {first} or 0 in workers(): time.sleep(0.02)")
    assert len(set(eval(ask("train()").value)) & set(eval(first))) == 1, "one went on, one is new"
    assert "run 1: running" in ask("%mw_status").value

    assert "there is no end to wait for" in str(kernel.run("%mw_wait", 60).error)

    assert ask("%mw_stop").text == "stopped run 1\n"
    assert "reusing" in ask(DECLARE).text
    state = ask("%mw_status").value.splitlines()[0].split()
    assert state[:2] == ["run", "2:"], "declared again, the servers start again"
    assert state[2] in {"starting", "running"}
    ask("%mw_stop --cluster")
    assert ours(kernel) == []
    assert ask(f"before == {VARIABLES}").value == "True"

    ask(DECLARE + " --no-warm")
    left = ours(kernel)
    kernel.manager.restart_kernel(now=True)
    assert not psutil.wait_procs(left, timeout=120)[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chief": True}, "this process is the chief; remove the chief"),
        ({"evaluator": True}, "evaluate in this process"),
        ({"ps": 0}, r"needs parameter servers; add 1 \(--ps 1\)"),
        ({"framework": "jax"}, "jax has no coordinator; use --framework tensorflow"),
    ],
)
def test_a_cluster_that_this_process_cannot_coordinate(options, message):
    with pytest.raises(ClusterError, match=message):
        Cluster(2, **{"ps": 1, "coordinator": True, **options})


ATTACH = """
import json, os
from mwmagic import Cluster, clusters
[seen] = clusters(".")
print(json.dumps([os.environ.get("TF_CONFIG"), [str(task) for task in seen.tasks]]))
cluster = Cluster.attach()
print(json.dumps([os.environ.get("TF_CONFIG"), cluster.latest.number, cluster.latest.over]))
cluster.close()
print(json.dumps(os.environ.get("TF_CONFIG")))
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_later_process_coordinates_a_detached_cluster(tmp_path, monkeypatch, nothing_survives):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    cluster = Cluster(1, ps=1, coordinator=True, detach=True, warm=False, directory=tmp_path)
    mine = os.environ["TF_CONFIG"]
    cluster.detach()
    program = [sys.executable, "-c", ATTACH]
    env = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    done = subprocess.run(program, cwd=tmp_path, env=env, check=True, capture_output=True)
    watched, attached, after = map(json.loads, done.stdout.splitlines())
    assert watched == [None, ["worker:0", "ps:0"]], "who only looks is no chief"
    assert attached == [mine, 1, False]
    assert after is None
    eventually(lambda: "TF_CONFIG" not in os.environ, "restored environment")
    cluster.close()
