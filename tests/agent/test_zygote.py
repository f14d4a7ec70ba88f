"""A worker forked from a zygote is like one started from nothing, only sooner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import children, eventually
from speaker import HELPER, gone, state
from warming import launch, run, warm

from mwmagic.agent.fork_server import zygote as module

BOOTSTRAP = Path(module.__file__).parents[2] / "worker" / "bootstrap.py"
LOOK = """
import gc, json, os, random, signal, sys
print(json.dumps({
    "argv": sys.argv,
    "path": sys.path,
    "cwd": os.getcwd(),
    "env": dict(os.environ),
    "main": sys.modules["__main__"].__dict__ is globals(),
    "files": sorted(os.readlink(f"/proc/self/fd/{n}").split(":")[0] for n in range(3, 100)
                    if os.path.exists(f"/proc/self/fd/{n}")),
    "input": sys.stdin.read(),
    "leader": os.getsid(0) == os.getpgid(0) == os.getpid(),
    "signals": [str(signal.getsignal(n)) for n in sorted(signal.valid_signals())],
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "encoding": [(one.encoding, one.errors) for one in (sys.stdin, sys.stdout, sys.stderr)],
    "names": [one.name for one in (sys.stdin, sys.stdout, sys.stderr)],
    "zygote": [name for name in sys.modules if "zygote" in name],
    "garbage": [gc.isenabled(), gc.get_threshold()],
}))
"""


@pytest.mark.slow
def test_a_warm_worker_sees_what_a_cold_one_sees(agent, bootstrap, tmp_path):
    warm(agent, bootstrap, "json", "random")
    told = agent.wait("warmed", key="k")
    assert told["seconds"] > 0
    env = {"A": "é", "PATH": "/bin", "LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
    fields = {"env": env, "cwd": str(tmp_path)}
    script = str(tmp_path / "look.py")
    seen = {}
    for name, key in (("cold", None), ("warm", "k")):
        (tmp_path / "look.py").write_text(LOOK)
        argv = [sys.executable, str(bootstrap), script, "-x", "y"]
        agent.start(name, argv=argv, zygote=key, **fields)
        exited = agent.wait("exited", process=name)
        assert (exited["code"], exited["error"]) == (0, None), agent.printed(name)
        assert agent.wait("started", process=name)["warm"] is (key == "k")
        seen[name] = json.loads(agent.printed(name))
        assert seen[name]["env"].pop("MWMAGIC_PROCESS") == f"{agent.pid}/{name}"
        assert int(seen[name]["env"].pop("MWMAGIC_LINE")) > 2
        assert seen[name]["env"].pop("MWMAGIC_SCRATCH")
        assert seen[name]["files"].count("socket") == 1
    assert seen["warm"] == seen["cold"]
    assert seen["warm"]["argv"] == [script, "-x", "y"]
    assert seen["warm"]["env"] == env
    assert seen["warm"]["main"]
    assert seen["warm"]["leader"]


def test_what_a_warm_worker_started_last_ends_with_it(agent, bootstrap):
    warm(agent, bootstrap, "subprocess")
    agent.wait("warmed", key="k")
    run(agent, bootstrap, "a", HELPER)
    assert agent.wait("started", process="a")["warm"]
    assert gone([agent.number("a", "helper")])


@pytest.mark.slow
@pytest.mark.parametrize("imported", ["numpy", "numpy.random"])
def test_every_worker_has_its_own_random_numbers(agent, bootstrap, imported):
    warm(agent, bootstrap, "random", imported)
    agent.wait("warmed")
    code = "import random, numpy; print(random.random(), numpy.random.rand(), end=' ')"
    numbers = " ".join(run(agent, bootstrap, name, code) for name in "abcd").split()
    assert len(set(numbers)) == 8
    code = "import sys; print(*[one for one in sys.modules if one in ('numpy', 'numpy.random')])"
    plain = f"import {imported}; {code}"  # NumPy imports the latter when it is used
    told = subprocess.run([sys.executable, "-c", plain], check=True, capture_output=True, text=True)
    assert run(agent, bootstrap, "e", code) == told.stdout


def test_a_module_that_is_missing_makes_nothing_cold(agent, bootstrap):
    warm(agent, bootstrap, "json", "no_such_module", "this_neither")
    agent.wait("warmed")
    assert run(agent, bootstrap, "a", "print('well')") == "well\n"
    assert agent.wait("started")["warm"] is True


@pytest.mark.parametrize(
    ("name", "fields", "error"),
    [
        ("no_such_module", {}, "No module named 'no_such_module'"),
        ("json", {"python": ["/nowhere/python"]}, "cannot run /nowhere/python: No such file"),
        ("json", {"cwd": "/nowhere"}, "cannot enter /nowhere: No such file"),
        ("threads", {}, "the imports started 1 threads"),
        ("crash", {}, "was killed by signal 6: a last word"),
        ("leave", {}, "exited with code 3"),
    ],
)
def test_one_that_cannot_get_warm_is_cold(agent, bootstrap, name, fields, error):
    tmp_path = agent.folder
    (tmp_path / "threads.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(100,), daemon=True).start()\n"
    )
    (tmp_path / "crash.py").write_text("import os; os.write(2, b'a last word'); os.abort()")
    (tmp_path / "leave.py").write_text("import os; os._exit(3)")
    fields = {"env": {"PYTHONPATH": str(tmp_path)}, **fields}
    warm(agent, bootstrap, name, **fields)
    assert error in agent.wait("cooled", key="k")["error"]
    assert not agent.all("warmed")
    assert run(agent, bootstrap, "a", "print('well')") == "well\n"
    assert agent.wait("started")["warm"] is False


@pytest.mark.parametrize("content", ["1/0", "(", None])
def test_a_bootstrap_that_cannot_be_loaded_is_reported(agent, tmp_path, content):
    path = tmp_path / "broken.py"
    if content:
        path.write_text(content)
    warm(agent, path, "json")
    error = agent.wait("cooled")["error"]
    assert any(kind in error for kind in ("ZeroDivision", "SyntaxError", "FileNotFound"))


def test_workers_survive_their_killed_zygote(agent, bootstrap):
    warm(agent, bootstrap, "json")
    pid = agent.wait("warmed")["pid"]
    launch(agent, bootstrap, "a", "import sys; print('up', flush=True)\nwhile True: pass")
    agent.says("a", "up")
    os.kill(pid, signal.SIGKILL)
    assert "killed by signal 9" in agent.wait("cooled", key="k")["error"]
    assert state(agent.wait("started", process="a")["pid"])
    run(agent, bootstrap, "b", "")
    assert agent.wait("started", process="b")["warm"] is False
    assert not agent.all("exited", process="a")
    warm(agent, bootstrap, "json")
    agent.until(lambda: len(agent.all("warmed")) == 2)
    run(agent, bootstrap, "c", "")
    assert agent.wait("started", process="c")["warm"] is True


HANGS = "import os, time\nos.register_at_fork(before=lambda: time.sleep(1000))\n"
"""A module after whose import no fork comes to an end."""


@pytest.fixture
def hanging(agent, bootstrap):
    """Return the process id of a zygote that forks nothing."""
    (agent.folder / "hangs.py").write_text(HANGS)
    warm(agent, bootstrap, "hangs", env={"PYTHONPATH": str(agent.folder)})
    return agent.wait("warmed")["pid"]


def test_a_zygote_killed_while_it_is_asked_costs_only_time(agent, bootstrap, hanging):
    for name in "ab":
        launch(agent, bootstrap, name, f"print('{name}')")
    agent.say("end", process="b", grace=0)
    agent.say("ping", n=1, until=None)
    agent.wait("pong")
    assert not agent.all("started")
    os.kill(hanging, signal.SIGKILL)
    agent.wait("exited", process="a", code=0)
    assert agent.printed("a") == b"a\n"
    assert "ended before it had started" in agent.wait("exited", process="b")["error"]


@pytest.mark.slow
@pytest.mark.usefixtures("hanging")
def test_a_zygote_that_hangs_is_ended(agent, bootstrap):
    launch(agent, bootstrap, "a", "print('a')")
    launch(agent, bootstrap, "b", "print('b')")
    agent.say("end", process="b", grace=0)
    agent.wait("cooled")
    assert "ended before it had started" in agent.wait("exited", process="b")["error"]
    agent.wait("exited", process="a", code=0)
    assert agent.printed("a") == b"a\n"


@pytest.mark.parametrize("when", ["before", "while it is asked", "while it imports"])
def test_one_that_is_stopped_is_ended_and_delays_nothing(agent, bootstrap, when):
    code = {
        "before": "",
        "while it is asked": HANGS,
        "while it imports": "import time\ntime.sleep(600)",
    }
    (agent.folder / "some.py").write_text(code[when])
    warm(agent, bootstrap, "some", env={"PYTHONPATH": str(agent.folder)})
    if when == "while it imports":
        [pid] = eventually(lambda: children(agent.pid), "the zygote")
    else:
        pid = agent.wait("warmed")["pid"]
    if when == "while it is asked":
        launch(agent, bootstrap, "a", "print('a')")
        agent.say("ping", n=1, until=None)
        agent.wait("pong")
    os.kill(pid, signal.SIGSTOP)
    if when == "before":
        launch(agent, bootstrap, "a", "print('a')")
    assert agent.wait("cooled", key="k")["error"].endswith("a signal had stopped it")
    if when != "while it imports":
        started = agent.wait("started", process="a")
        assert started["time"] - agent.wait("hello")["time"] < 10
        assert (started["warm"], started["cold"]["why"]) == (False, "cold-stopped")
        agent.wait("exited", process="a", code=0)
        assert agent.printed("a") == b"a\n"
    assert gone([pid])


def test_an_end_that_overtakes_a_warm_start(agent, bootstrap):
    warm(agent, bootstrap, "json")
    agent.wait("warmed")
    for turn in range(6):
        launch(agent, bootstrap, f"a{turn}", "import time; time.sleep(1000)")
        agent.say("end", process=f"a{turn}", grace=turn % 2 * 10)
        exited = agent.wait("exited", process=f"a{turn}")
        if turn % 2:
            assert exited["signal"] == signal.SIGTERM
        else:
            assert exited["signal"] == signal.SIGKILL or exited["error"].startswith("ended before")
    assert not agent.all("cooled")


def test_a_warm_worker_that_cannot_start_is_an_exit(agent, bootstrap):
    warm(agent, bootstrap, "json")
    agent.wait("warmed")
    launch(agent, bootstrap, "a", "", cwd="/nowhere")
    error = agent.wait("exited", process="a")["error"]
    assert "cannot enter /nowhere: No such file or directory" in error
    launch(agent, bootstrap, "b", "", env={"A=B": "c"})
    assert agent.wait("exited", process="b")["error"]
    assert run(agent, bootstrap, "c", "print('well')") == "well\n"
    assert agent.wait("started", process="c")["warm"] is True


def test_what_a_warm_worker_forks_ends_with_it(agent, bootstrap):
    """Its environment is the zygote's in the kernel's eyes, but for the label."""
    warm(agent, bootstrap, "json")
    agent.wait("warmed")
    code = """
import os, time
if not os.fork():
    os.setsid()
    if not os.fork():
        print(f"daemon={os.getpid()}", flush=True)
        null = os.open("/dev/null", os.O_RDWR)
        for target in (0, 1, 2):
            os.dup2(null, target)
        time.sleep(1000)
    os._exit(0)
os.wait()
time.sleep(1000)
"""
    for name in ("worker:0", "worker:1"):
        launch(agent, bootstrap, name, code)
    daemons = [agent.number(name, "daemon") for name in ("worker:0", "worker:1")]
    os.kill(agent.wait("started", process="worker:0")["pid"], signal.SIGKILL)
    agent.wait("exited", process="worker:0")
    assert [gone([pid]) for pid in daemons] == [True, False]
    agent.child.stdin.close()
    agent.child.wait(120)
    assert gone(daemons)


@pytest.mark.slow
def test_a_zygote_ends_with_its_agent(speak, bootstrap):
    agents = [speak() for _ in range(2)]
    pids = []
    for agent in agents:
        warm(agent, bootstrap, "json")
        pids.append(agent.wait("warmed")["pid"])
        launch(agent, bootstrap, "a", "import time; print('up', flush=True); time.sleep(1000)")
        agent.says("a", "up")
        pids.append(agent.wait("started")["pid"])
    agents[0].child.stdin.close()
    os.kill(agents[1].pid, signal.SIGKILL)
    eventually(lambda: gone(pids), "end of the zygotes and their workers")
    assert not agents[0].all("cooled")


def test_warming_twice_is_reported_twice_and_done_once(agent, bootstrap):
    warm(agent, bootstrap, "json")
    warm(agent, bootstrap, "json")
    first = agent.wait("warmed")
    warm(agent, bootstrap, "json")
    agent.until(lambda: len(agent.all("warmed")) > 1)
    assert all(event == first for event in agent.all("warmed"))
    warm(agent, bootstrap, "json", key="other")
    other = agent.wait("warmed", key="other")
    assert {first["pid"], other["pid"]} <= set(children(agent.pid))
    assert first["pid"] != other["pid"]


def test_many_are_forked_at_once(agent, bootstrap):
    warm(agent, bootstrap, "json")
    agent.wait("warmed")
    for number in range(16):
        launch(agent, bootstrap, f"w{number}", f"print({number})")
    agent.until(lambda: len(agent.all("exited", code=0)) == 16)
    assert len(agent.all("started", warm=True)) == 16
    assert [agent.printed(f"w{n}") for n in range(16)] == [b"%d\n" % n for n in range(16)]
    eventually(lambda: "Z" not in map(state, children(agent.pid)), "end of the zombies")


def test_what_the_imports_print_is_in_no_log(agent, bootstrap, tmp_path):
    (tmp_path / "noisy.py").write_text(
        "import sys, os, ctypes\n"
        "print('from an import', end='')\n"
        "ctypes.CDLL(None).printf(b'from C')\n"
        "sys.stderr.write('more')\n"
    )
    warm(agent, bootstrap, "noisy", env={"PYTHONPATH": str(tmp_path)})
    agent.wait("warmed")
    assert run(agent, bootstrap, "a", "print('own')") == "own\n"


def test_the_real_bootstrap_reports_an_error(agent, tmp_path):
    warm(agent, BOOTSTRAP, "json")
    agent.wait("warmed")
    report = tmp_path / "report.json"
    env = {**os.environ, "MWMAGIC_FAILURE_REPORT": str(report)}
    launch(agent, BOOTSTRAP, "a", "import os\n1/0\n", report=str(report), env=env)
    exited = agent.wait("exited")
    assert exited["code"] == 1
    assert exited["report"]["type"] == "ZeroDivisionError"
    assert "zygote.py" not in agent.printed("a").decode()


FIT = """
import os, random, sys
assert "tensorflow" in sys.modules, "not warm"
assert len(os.listdir("/proc/self/task")) == 1
import numpy as np, tensorflow as tf
model = tf.keras.Sequential([tf.keras.layers.Dense(4, activation="relu"), tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.arange(64, dtype="float32").reshape(32, 2) / 64
start = float(tf.random.uniform([]))
losses = model.fit(x, x.sum(1), epochs=3, batch_size=8, verbose=0).history["loss"]
assert losses[-1] < losses[0], losses
print("RESULT", start, random.random(), np.random.rand(), losses[0], os.environ["MARK"])
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_keras_trains_in_three_forks_in_a_row(agent):
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    warm(agent, BOOTSTRAP, "tensorflow", "keras", env=env)
    agent.wait("warmed")
    results = []
    for name in "abc":
        printed = run(agent, BOOTSTRAP, name, FIT, env={**env, "MARK": name})
        exited = agent.wait("exited", process=name)
        assert (exited["code"], exited["error"]) == (0, None), printed
        assert agent.wait("started", process=name)["warm"] is True
        results.append(printed.split("RESULT ")[1].split())
    assert [words.pop() for words in results] == ["a", "b", "c"]
    assert len({number for words in results for number in words}) == 12
    assert not agent.all("cooled")
