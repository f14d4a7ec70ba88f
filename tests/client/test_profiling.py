"""A profile of a running worker whose program knows nothing of it."""

from __future__ import annotations

import time

import pytest
from processes import eventually

from mwmagic import Cluster
from mwmagic.client import profiling
from mwmagic.client.profiling import events, parts_of, profile, profile_lines
from mwmagic.errors import BadArguments, NoRun, SupervisorError, WaitTimeout

# Without Python in its pipeline, which TensorFlow's profiler does not survive each time.
SLOW_INPUT = """\
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()

def row(number):
    large = tf.ones((600, 600)) * tf.cast(number, tf.float32)
    small = tf.reduce_mean(large @ large @ large, axis=1)
    return tf.reshape(small[:32], (8, 4)), tf.reshape(small[:8], (8, 1))

data = tf.data.Dataset.range(10**9).map(row)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(data, epochs=1000, steps_per_epoch=100, verbose=0)
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_profile_says_that_a_running_worker_waits_for_its_input(tmp_path):
    (tmp_path / "main.py").write_text(SLOW_INPUT)
    with Cluster(workers=1, directory=str(tmp_path), grace=0.5) as cluster:
        run = cluster.run(tmp_path / "main.py")
        eventually(lambda: (at := run.status().tasks["worker:0"].progress) and (at.step or 0) > 5)
        with pytest.raises(BadArguments, match="add --risk to profile worker:0"):
            profile(run.record, 0, 1.5)
        found = profile(run.record, 0, 1.5, risk=True)
        step = run.status().tasks["worker:0"].progress
        eventually(lambda: run.status().tasks["worker:0"].progress != step)
        assert run.state == "running"
    assert found.parts["input"] / found.seconds > 0.2
    assert profile_lines(found)[0].startswith("worker:0 in 1.5 s: input ")
    # TensorFlow reads the same in the file.
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(found.file.read_bytes())
    theirs = sum(len(line.events) for plane in space.planes for line in plane.lines)
    assert theirs == len([*events(found.file.read_bytes())])
    assert parts_of(found.file).keys() == found.parts.keys()


WITHOUT_A_FRAMEWORK = """\
import time
from pathlib import Path
from mwmagic.worker import report

step = 0
while not Path("end").exists():
    time.sleep(0.02)
    step += 1
    if not Path("silent").exists():
        report(step=step)
"""


@pytest.mark.slow
def test_a_worker_that_cannot_be_profiled_goes_on(tmp_path, monkeypatch):
    (tmp_path / "main.py").write_text(WITHOUT_A_FRAMEWORK)
    with Cluster(workers=1, directory=str(tmp_path), warm=False, grace=0.5) as cluster:
        run = cluster.run(tmp_path / "main.py", cwd=tmp_path)
        eventually(lambda: run.status().tasks["worker:0"].progress)
        with pytest.raises(SupervisorError, match="TensorFlow nor JAX; its program continues"):
            profile(run.record, 0, 1, risk=True)
        with pytest.raises(BadArguments, match="up to 20 s, not 100"):
            profile(run.record, 0, 100, risk=True)
        (tmp_path / "silent").touch()
        time.sleep(0.1)
        monkeypatch.setattr(profiling, "PROFILE_BEGIN_SECONDS", 0.3)
        with pytest.raises(WaitTimeout, match=r"worker:0 did not begin a profile within 0\.3 s"):
            profile(run.record, 0, 1, risk=True)
        assert not list(run.directory.rglob("*.profile"))
        (tmp_path / "end").touch()
        run.wait()
        with pytest.raises(NoRun, match="is not running"):
            profile(run.record, 0, 1, risk=True)
