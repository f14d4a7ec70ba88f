"""What a worker leaves open at its end is finished as the interpreter finishes it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from compare import Program
from ends import ENDS, OPEN
from processes import eventually
from programs import FINISHED, LEFT_OPEN, finished

from mwmagic.errors import WorkerFailed

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

MANY = ("well", "an exception")
"""The ends that are tried with everything; the others are tried with some of it."""

PAIRS = [
    (what, end)
    for at, what in enumerate(OPEN)
    for end in ENDS
    if end in MANY or at % 4 == list(ENDS).index(end)
]


@pytest.mark.parametrize(("what", "end"), PAIRS)
def test_nothing_that_is_open_is_lost(ways, what, end):
    ways.compare(f"{dedent(OPEN[what])}\n{ENDS[end]}\n")


HELD = """
import threading, time
f = open('out.txt', 'w')
f.write('data')
def hold(file=f):
    while True: time.sleep(1)
threading.Thread(target=hold, args=[f], daemon=True).start()
"""


@pytest.mark.parametrize("end", ENDS)
def test_a_text_file_that_a_thread_holds_is_written_even_if_the_interpreter_would_lose_it(
    ways, end
):
    found = ways.outcomes(Program(f"{HELD}{ENDS[end]}\n"))
    assert found["cold"].files["out.txt"] == found["warm"].files["out.txt"] == b"data"
    assert found["cold"].code == found["warm"].code == found["plain"].code


SHARED = """
from multiprocessing import shared_memory
one = shared_memory.SharedMemory(create=True, size=40_000_000)
one.buf[:] = bytes([1]) * len(one.buf)
open('name', 'w').write(one.name)
"""


@pytest.mark.parametrize(
    "end", ["", "raise ValueError", "import os; os._exit(3)", "import os; os.kill(os.getpid(), 9)"]
)
def test_shared_memory_does_not_stay(ways, end):
    found = ways.outcomes(Program(SHARED + end + "\n"))
    for outcome in found.values():
        name = outcome.files["name"].decode()
        eventually(lambda name=name: not Path("/dev/shm", name).exists(), "memory is freed")
    assert found["cold"].code == found["warm"].code == found["plain"].code


HELPER = """
import os
reader, writer = os.pipe()
if not os.fork():
    os.close(writer)
    os.read(reader, 1)  # until the worker has ended
    with open('out.txt', 'w') as file:
        file.write('helped')
    os._exit(0)
"""


@pytest.mark.parametrize("end", ["", "raise ValueError('mine')", "os.kill(os.getpid(), 9)"])
def test_a_helper_whose_work_begins_when_the_worker_ends_does_it(ways, end):
    found = ways.outcomes(Program(HELPER + end + "\n"))
    assert found["cold"].files["out.txt"] == found["warm"].files["out.txt"] == b"helped"


SLOW = """
import atexit, threading, time
def save():
    time.sleep(10)
    open('out.txt', 'w').write('saved')
threading.Thread(target=save, name='saver').start()
"""


@pytest.mark.parametrize("end", ["well", "an exception"])
def test_an_asynchronous_checkpoint_is_not_cut_and_a_line_says_what_is_waited_for(ways, end):
    found = ways.outcomes(Program(f"{SLOW}{ENDS[end]}\n"))
    for way in ("cold", "warm"):
        assert found[way].files == found["plain"].files
        assert found[way].code == found["plain"].code
        *rest, line = found[way].output
        assert rest == found["plain"].output
        said = "mwmagic: the program is over, and its process waits for the thread saver, in save"
        assert line.startswith(said)


MEETS = {
    "TensorFlow": """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
def total():
    add = lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0))
    return float(strategy.run(add))
""",
    "JAX": """
import jax
from jax.experimental.multihost_utils import process_allgather
workers = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
jax.distributed.initialize(workers[0], len(workers), task["index"])
def total():
    return float(process_allgather(jax.numpy.ones(())).sum())
""",
}
"""How two tasks meet, and compute together."""

LEADS = """
import time
assert total() == 2.0
if task["index"]:
    while not os.path.exists("worker-0.closed"): time.sleep(0.01)
"""
"""The leader's interpreter has torn down its main module before the other task ends."""


@pytest.mark.parametrize("framework", MEETS)
def test_tasks_of_a_gang_end_as_programs_do(warm_pair, tmp_path, framework):
    (tmp_path / "main.py").write_text(LEFT_OPEN + MEETS[framework] + "assert total() == 2.0\n")
    run = warm_pair.run("main.py", cwd=tmp_path).wait()
    assert run.state == "finished", run.logs()
    for own in ("worker-0", "worker-1"):
        assert finished(tmp_path, own) == FINISHED, own


@pytest.mark.parametrize("framework", MEETS)
def test_one_that_fails_while_the_other_waits_for_it_ends_as_a_program_does(
    warm_pair, tmp_path, framework
):
    fails = "total()\nif task['index']: raise ValueError('mine')\ntotal()\n"
    (tmp_path / "main.py").write_text(LEFT_OPEN + MEETS[framework] + fails)
    run = warm_pair.run("main.py", cwd=tmp_path)
    with pytest.raises(WorkerFailed, match="worker:1 exited with code 1: ValueError: mine"):
        run.wait()
    assert finished(tmp_path, "worker-1") == FINISHED


def test_a_leader_that_ends_long_before_the_others_does_not_disturb_them(warm_pair, tmp_path):
    (tmp_path / "main.py").write_text(LEFT_OPEN + MEETS["TensorFlow"] + LEADS)
    run = warm_pair.run("main.py", cwd=tmp_path).wait()
    assert run.state == "finished", run.logs()
    for own in ("worker-0", "worker-1"):
        assert finished(tmp_path, own) == FINISHED, own
