"""Every known failure, provoked with the installed TensorFlow through a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from processes import agents_of, eventually, pid_of
from provocations import CASES, GANG, NOTED, PLAIN, STUCK

from mwmagic import Cluster
from mwmagic.client.records import explained
from mwmagic.diagnosis import Exit, diagnose
from mwmagic.diagnosis.known import recognise
from mwmagic.diagnosis.table import ENTRIES
from mwmagic.errors import WorkerFailed
from mwmagic.model.findings import Finding, Symptom
from mwmagic.words.failure import remark

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

WAITING = """
import os, time
open("up-" + os.environ["MWMAGIC_TASK"], "w").close()
time.sleep(600)
"""
SILENT = (
    GANG
    + """
import signal
for step in range(1_000_000):
    total(tf.ones(3))
    if step == 10 and not first:
        os.kill(os.getpid(), signal.SIGSTOP)
"""
)
HUNGRY = """
kept = []
while True:
    kept.append(bytes(range(256)) * 40_000)
"""
IN_A_CGROUP = """
import os, sys
from pathlib import Path
group = Path(sys.argv[1])
(group / "cgroup.procs").write_text(str(os.getpid()))
from mwmagic import Cluster
from mwmagic.errors import WorkerFailed
from mwmagic.model.findings import Finding, Symptom
from mwmagic.words.failure import remark
with Cluster(2, warm=False, grace=0.1) as cluster:
    try:
        cluster.run("main.py").wait(60)
    except WorkerFailed as error:
        print(error.cause.known, error)
"""
PROFILED = (
    GANG
    + """
for steps in range(10, 110, 10):
    if not first:
        tf.profiler.experimental.start("profile")
    for _ in range(steps):
        total(tf.ones(3))
    if not first:
        tf.profiler.experimental.stop(save=False)
"""
)
FILLING = """
import itertools, os
mine = os.environ["MWMAGIC_TASK"]
try:
    for number in itertools.count():
        open(f"{mine}-{number}", "x").close()
except OSError:
    raise SystemExit(3)
"""
ON_A_SMALL_DISK = """
import subprocess, sys
from pathlib import Path
folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=300", "none", folder], check=True)
(folder / "main.py").write_text(sys.argv[2])
from mwmagic import Cluster
from mwmagic.errors import WorkerFailed
with Cluster(1, directory=folder, warm=False, restarts=1, grace=0.1) as cluster:
    try:
        cluster.run("main.py", cwd=folder).wait(60)
    except WorkerFailed as error:
        print(error.cause.known, error)
"""


@pytest.fixture(scope="module")
def gang(tmp_path_factory):
    """Two tasks, started from a process that has imported TensorFlow."""
    folder = tmp_path_factory.mktemp("gang")
    with Cluster(2, directory=folder, grace=0.1, stall_timeout=2.0) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Two tasks with Keras as it is."""
    folder = tmp_path_factory.mktemp("plain")
    with Cluster(2, directory=folder, grace=0.1, keras="plain") as cluster:
        yield cluster


@pytest.fixture
def launch(tmp_path):
    """Launch scripts, and stop those that go on."""
    runs = []

    def begin(cluster, script):
        (tmp_path / "main.py").write_text(script)
        runs.append(cluster.run("main.py", cwd=tmp_path))
        return runs[-1]

    yield begin
    for run in runs:
        if not run.cluster.closed:
            run.stop(grace=0.0)


def failure(run):
    with pytest.raises(WorkerFailed) as caught:
        run.wait(300)  # a port that is taken makes three attempts of a cold start
    return caught.value


def shows(run, name, sign):
    """Whether the sign of an entry is in what a run said."""
    logs = [run.logs(task).decode() for task in run.cluster.tasks]
    signs, symptoms = ((), (sign,)) if isinstance(sign, Finding) else ((sign,), ())
    entry = replace(ENTRIES[name], signs=signs, symptoms=symptoms, when=None)
    return recognise([entry], [run.cause.finding, *logs]) is not None


def assert_known(run, case):
    error = failure(run)
    assert error.cause.known == case.name, error
    assert shows(run, case.name, case.sign)
    assert f"See {ENTRIES[case.name].link}" in str(error)
    assert "Try: " in str(error)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_known_failure_is_recognised(gang, launch, case):
    assert_known(launch(gang, case.script), case)


def test_a_line_with_an_old_name_is_corrected(gang, launch):
    [case] = [case for case in CASES if case.name == "reset-states"]
    said = str(failure(launch(gang, case.script))).splitlines()
    [at] = [number for number, line in enumerate(said) if line.endswith(" should read:")]
    assert said[at + 1].strip() == "tf.keras.metrics.Mean().reset_state()"


def test_a_misspelled_module_is_recognised(gang, launch):
    error = failure(launch(gang, "import tensorflw as tf"))
    assert (error.cause.known, error.cause.gaps) == (
        "module-misspelled",
        ("tensorflw", "tensorflow"),
    )
    assert "No module named 'tensorflw'. Did you mean: 'tensorflow'?" in str(error)
    assert "Try: import `tensorflow`; only if you mean another one" in str(error)


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_what_keras_lacks_is_recognised(plain, launch, case):
    assert_known(launch(plain, case.script), case)


@pytest.mark.parametrize("case", NOTED, ids=str)
def test_a_success_with_an_unintended_outcome_is_noticed(gang, launch, case):
    run = launch(gang, case.script)
    run.wait(60)
    noticed = {remark.known: remark for remark in run.status().remarks}
    assert noticed[case.name].tasks == ("worker:0", "worker:1")
    assert len({"alone", "outside-scope"} & noticed.keys()) <= 1
    assert ENTRIES[case.name].remedy in remark(noticed[case.name])


OUTSIDE = """
import os, time
from pathlib import Path
import numpy as np
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()

class Until(tf.keras.callbacks.Callback):
    def on_epoch_end(self, *_):
        while not Path("go").exists():
            time.sleep(0.02)

def fitted(**options):
    model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.zeros((8, 4), "float32")
    model.fit(x, x[:, :1], verbose=0, **options)

with strategy.scope():
    fitted()
if os.environ["MWMAGIC_TASK"] == "worker:1":
    import warnings
    warnings.simplefilter("ignore")
    fitted(callbacks=[Until()])
"""


def test_a_model_outside_the_scope_is_noticed_while_it_trains(gang, launch, tmp_path):
    run = launch(gang, OUTSIDE)
    [found] = eventually(lambda: run.status().remarks)
    assert not run.over
    assert (found.known, found.tasks) == ("outside-scope", ("worker:1",))
    (tmp_path / "go").touch()
    run.wait(60)
    assert run.status().remarks == (found,)
    told = explained(run.record)[1]
    assert told[0].endswith("is finished: it did not fail")
    assert told[1:] == [remark(found)]


def test_a_program_without_the_framework_is_not_said_to_train_alone(gang, launch):
    eventually(lambda: all(machine.warm.state == "ready" for machine in gang.machines))
    run = launch(gang, "for epoch in (1, 2):\n    print(f'Epoch {epoch}/2 - loss: {1 / epoch}')")
    run.wait(60)
    tasks = run.status().tasks.values()
    assert {(task.warm, task.phase) for task in tasks} == {(True, "training")}
    assert run.status().remarks == ()


@pytest.mark.parametrize("case", STUCK, ids=str)
def test_what_a_stalled_gang_waits_for_is_reported(gang, launch, case):
    run = launch(gang, case.script)

    def why():
        """Return what is waited for, once that is known: on a busy machine a start stalls, too."""
        stall = run.status().stall
        return stall and stall.why and stall.why.known == case.name and stall.why

    reported = eventually(lambda: run.over or why(), run.status)
    assert not run.over, run.cause
    assert case.sign.matches(reported.finding)


def waiting(cluster, launch, folder):
    """Return a run whose tasks do nothing but wait."""
    up = [folder / f"up-{task}" for task in cluster.tasks]
    for path in up:
        path.unlink(missing_ok=True)
    run = launch(cluster, WAITING)
    eventually(lambda: all(path.exists() for path in up))
    eventually(lambda: run.words == "running")
    return run


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_an_end_from_outside_is_told_from_one_that_was_asked_for(gang, launch, tmp_path, number):
    run = waiting(gang, launch, tmp_path)
    os.kill(pid_of(run, "worker:1"), number)
    cause = failure(run).cause
    assert cause.finding == Finding(Symptom.KILLED, "worker:1", signal=number)
    assert cause.known == "killed"
    run = waiting(gang, launch, tmp_path)
    run.kill(1, number)
    cause = failure(run).cause
    assert cause.finding == Finding(Symptom.KILLED, "worker:1", signal=number, requested=True)
    assert cause.known is None


def test_a_silent_task_is_named_by_the_tasks_that_it_made_fail(gang, launch):
    run = launch(gang, SILENT)
    cause = failure(run).cause
    assert (cause.task, cause.known) == ("worker:1", "stopped")
    assert cause.consequences == ("worker:0",)
    exits = run.record.events("exited")
    fields = ("task", "attempt", "code", "signal", "time", "ended", "report")
    ends = [Exit(**{name: event[name] for name in fields}) for event in exits]
    assert diagnose(ends).known == "silent", "where nobody saw that it was stopped"
    assert diagnose(ends).task == "worker:1"


def test_a_crash_of_the_profiler_is_reported(gang, launch):
    """The profiler spoils its own memory: a process crashes, gets through, or rarely hangs."""
    for _ in range(50):
        run = launch(gang, PROFILED)
        eventually(lambda run=run: run.over or run.status().stall)
        if run.over and run.cause is not None:
            break
        run.stop()
    assert (run.cause.task, run.cause.known) == ("worker:1", "profiler")


def test_a_lost_agent_is_reported(tmp_path, launch):
    said = {
        signal.SIGKILL: {"host": "localhost"},
        signal.SIGTERM: {"detail": "which got SIGTERM"},
    }
    for number, fields in said.items():
        with Cluster(2, directory=tmp_path, warm=False) as cluster:
            run = waiting(cluster, launch, tmp_path)
            [agent] = agents_of(cluster._process.pid)
            os.kill(agent, number)
            cause = failure(run).cause
        assert cause.known == "agent-lost"
        assert cause.finding == Finding(Symptom.AGENT_LOST, cause.task, **fields)


@pytest.fixture
def cgroup():
    """A control group with little memory, where one can be had."""
    group = Path(f"/sys/fs/cgroup/memory/mwmagic-{os.getpid()}")
    limit = group / "memory.limit_in_bytes"
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        group = Path(f"/sys/fs/cgroup/mwmagic-{os.getpid()}")
        limit = group / "memory.max"
    try:
        group.mkdir()
        limit.write_text(str(200 << 20))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield group
    group.rmdir()


def test_the_out_of_memory_killer_is_reported(tmp_path, cgroup):
    (tmp_path / "main.py").write_text(HUNGRY)
    command = [sys.executable, "-c", IN_A_CGROUP, str(cgroup)]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert said.stdout.startswith("oom-killed"), said


@pytest.fixture
def own_mounts():
    """The words before a command that may mount a file system which only it sees."""
    words = ["unshare", "--user", "--map-root-user", "--mount"]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no file system can be mounted here: {tried.stderr}")
    return words


def test_a_disk_without_room_for_a_log_is_reported(tmp_path, own_mounts):
    command = [*own_mounts, sys.executable, "-c", ON_A_SMALL_DISK, str(tmp_path), FILLING]
    said = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert said.stdout.startswith("disk-full"), said
    assert "attempt-2/worker-0.log: No space left on device" in said.stdout
