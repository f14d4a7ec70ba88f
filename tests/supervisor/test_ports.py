"""The ports that a cluster holds."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from textwrap import dedent

import pytest

from mwmagic.errors import WorkerFailed


def ports(cluster):
    return [int(address.rpartition(":")[2]) for address in cluster.spec.addresses.values()]


def bind(port, *, shared):
    """Try to listen on a port as another program would."""
    with socket.socket() as one:
        if shared:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(("127.0.0.1", port))
        one.listen()


@pytest.mark.slow
def test_eight_clusters_of_eight_at_once_share_no_port(cluster):
    with ThreadPoolExecutor(8) as pool:
        clusters = list(pool.map(lambda number: cluster(8, name=f"c{number}"), range(8)))
    held = [port for one in clusters for port in ports(one)]
    assert len(set(held)) == 64
    code = "import json, os; print(json.loads(os.environ['TF_CONFIG'])['cluster']['worker'])"
    one = clusters[-1]
    run = one.run("main.py", source=code).wait(120)
    assert run.logs(7).decode() == f"{list(one.spec.addresses.values())}\n"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: one.close(), clusters))
    for port in held:
        bind(port, shared=False)


@pytest.mark.slow
def test_the_ports_are_held_between_runs_and_the_same_for_each(cluster):
    one = cluster(2)
    held = ports(one)
    for _ in range(2):
        run = one.run("main.py", source="import os; print(os.environ['TF_CONFIG'])").wait(120)
        assert run.logs(1).decode() == one.tf_config(1) + "\n"
        assert ports(one) == held
    for port in held:
        with pytest.raises(OSError, match="Address already in use"):
            bind(port, shared=False)
        bind(port, shared=True)  # as TensorFlow does with TF_GRPC_REUSE_PORT


@pytest.mark.slow
def test_a_gang_moves_away_from_a_taken_port_and_gives_up_in_the_end(cluster):
    code = """
        import os, sys
        if os.environ["MWMAGIC_TASK"] == "worker:1" and int(os.environ["MWMAGIC_ATTEMPT"]) <= int(
            sys.argv[1]
        ):
            sys.exit("UnknownError: Could not start gRPC server")
        print(os.environ["TF_CONFIG"])
    """
    one = cluster(2)
    before = set(ports(one))
    run = one.run("main.py", source=dedent(code), args=[2]).wait(120)
    assert (run.status().attempt, run.status().restarts) == (3, 0)
    assert run.logs(0).decode() == one.tf_config(0) + "\n"
    after = set(ports(one))
    assert not before & after
    assert len(run.record.events("moved")) == 2
    for port in before:
        bind(port, shared=False)
    with pytest.raises(WorkerFailed, match="Could not start gRPC server"):
        one.run("main.py", source=dedent(code), args=[99]).wait(120)


PORT = """
import json, os, socket
import tensorflow as tf  # first, as a variable that is set before it would have workers start cold
if os.environ["MWMAGIC_ATTEMPT"] == "1" and os.environ["MWMAGIC_TASK"] == "worker:1":
    address = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][1]
    other = socket.socket()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    other.bind(("", int(address.rpartition(":")[2])))
    other.listen()
    # Without this the server does not bind beside a process that listens.
    os.environ["TF_GRPC_REUSE_PORT"] = "0"
strategy = tf.distribute.MultiWorkerMirroredStrategy()
cpu = tf.config.list_physical_devices("CPU")[0]
print("devices", len(tf.config.get_logical_device_configuration(cpu)))
print("replicas", strategy.num_replicas_in_sync)
print(os.environ["TF_CONFIG"])
"""

SAME = """
import atexit, multiprocessing, os, pickle, sys
class A:
    pass
def square(x):
    return x * x
if __name__ == "__main__":
    print(sys.argv, sys.path, __file__, __name__, sorted(globals()))
    print(type(pickle.loads(pickle.dumps(A()))) is A, sys.stdin.read())
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(square, [2]))
    atexit.register(print, "handler")
    file = open(f"out-{os.environ.get('MWMAGIC_TASK')}", "w")
    file.write("held")
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_warm_gang_of_tensorflow_moves_to_new_ports_and_means_what_python_means(
    cluster, tmp_path
):
    one = cluster(2, warm=True, devices=2)
    before = set(ports(one))
    run = one.run("main.py", source=PORT).wait(200)
    assert b"Could not start gRPC server" in run.logs(1, attempt=1)
    assert (run.status().attempt, run.status().restarts) == (2, 0)
    assert not before & set(ports(one))
    for task in (0, 1):
        last = run.logs(task).decode().splitlines()[-3:]
        assert last == ["devices 2", "replicas 2", one.tf_config(task)]
        assert run.status().tasks[f"worker:{task}"].warm
    (tmp_path / "main.py").write_text(SAME)
    run = one.run("main.py", args=["a"]).wait(120)
    assert run.status().tasks["worker:1"].warm
    plain = subprocess.run(
        [sys.executable, "main.py", "a"],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        text=True,
    )
    assert run.logs(1).decode().endswith(plain.stdout)  # after what TensorFlow says of devices
    assert [(tmp_path / f"out-worker:{index}").read_text() for index in (0, 1)] == ["held"] * 2
    assert json.loads(one.tf_config(0))["task"] == {"type": "worker", "index": 0}
