"""A framework is one class: what it takes to run a gang under one more."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from processes import printed

import mwmagic

SITE = "import sys; sys.path += [{tests!r}, {packages!r}]; import sample"

SAMPLELIB = """
def receive(connection):
    return connection.recv(1)
"""

MAIN = """
import os, socket, sys, time
from mwmagic.worker import cluster_size, is_chief, this_task
import helper, samplelib

rank, size = int(os.environ["SAMPLE_RANK"]), int(os.environ["SAMPLE_SIZE"])
assert (this_task().index, is_chief(), cluster_size()) == (rank, rank == 0, size)
print("own", os.environ["SAMPLE_COLOUR"], os.environ["SAMPLE_DEVICES"], flush=True)
host, port = os.environ["SAMPLE_ADDRESS"].split(":")
if rank == 0:
    server = socket.create_server((host, int(port)))
    print("sample: listening")
    print("sample: waiting for 1", flush=True)
    open("listens", "w").close()
    helper.wait("go")
    peer, _ = server.accept()
    print("[sample] tuning 12 kernels")
    print(f"sample: all {size} have met", flush=True)
    while samplelib.receive(peer):
        pass
    open("hurt", "w").close()
    raise RuntimeError("sample: peer 1 has left")
helper.wait("listens")
peer = socket.create_connection((host, int(port)))
print("sample: all 2 have met", flush=True)
helper.wait("leave")
peer.close()
helper.wait("hurt")
sys.exit(3)
"""

HELPER = """
import os, time
def wait(name):
    while not os.path.exists(name):
        time.sleep(0.01)
"""

CLIENT = """
import json, time
from pathlib import Path
from mwmagic import Cluster
from mwmagic.errors import WorkerFailed
from mwmagic.diagnosis.observation import parse
from mwmagic.frameworks.environment import thread_environment
from mwmagic.logs.noise import Noise

def until(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)

def phase(task):
    return run.status().tasks[task].phase

said = {"threads": thread_environment(1)["SAMPLE_THREADS"]}
with Cluster(2, framework="sample", devices=4, warm=False) as cluster:
    run = cluster.run("main.py")
    until(lambda: phase("worker:0") == "waiting")
    Path("go").touch()
    until(lambda: phase("worker:0") == phase("worker:1") == "connected")
    said["waits"] = {name: parse(text).waits for name, text in run.stacks().texts.items()}
    Path("leave").touch()
    try:
        run.wait()
    except WorkerFailed:
        pass
    said["cause"] = [run.cause.task, list(run.cause.consequences)]
    lines = run.logs(0).decode().splitlines()
    noise = Noise()
    said["own"] = lines[0]
    said["hidden"] = [line for line in lines if noise.hides(line)]
print(json.dumps(said))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch, nothing_survives):
    """Make a directory whose processes all know the framework."""
    here = Path(__file__).parent
    packages = tmp_path / "site-packages"
    site = SITE.format(tests=str(here), packages=str(packages))
    packages.mkdir()
    (packages / "sitecustomize.py").write_text(site)
    (packages / "samplelib.py").write_text(SAMPLELIB)
    (tmp_path / "main.py").write_text(MAIN)
    (tmp_path / "helper.py").write_text(HELPER)
    monkeypatch.setenv("PYTHONPATH", f"{packages}{os.pathsep}{here.parents[1]}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_gang_runs_under_a_framework_that_is_only_a_class(folder):
    said = json.loads(printed(CLIENT, cwd=folder))
    assert said["threads"] == "3"
    assert said["waits"] == {"worker:0": True, "worker:1": False}
    # worker:0 failed first, but only because worker:1 had left it.
    assert said["cause"] == ["worker:1", ["worker:0"]]
    assert said["own"] == "own green 4"
    assert said["hidden"] == ["[sample] tuning 12 kernels"]


COMPARES = re.compile(r"""(?:[!=]=|\bin) \(?["'](?:tensorflow|jax|torch)["']""")


def test_no_other_room_asks_for_a_framework_by_its_name():
    package = Path(mwmagic.__file__).parent
    # A repair asks for Keras's backend, which has the same names.
    apart = {package / "frameworks", package / "repairs"}
    files = [path for path in package.rglob("*.py") if not apart & {*path.parents}]
    assert len(files) > 50
    assert [str(path) for path in files if COMPARES.search(path.read_text())] == []


VARIABLE = re.compile(r"""["']MWMAGIC_[A-Z]+["']""")


def test_the_variables_of_workers_are_named_in_one_module():
    package = Path(mwmagic.__file__).parent
    # The agent runs without the package.
    apart = {package / "agent"}
    named = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if not apart & {*path.parents} and VARIABLE.search(path.read_text())
    ]
    assert named == ["model/variables.py"]
