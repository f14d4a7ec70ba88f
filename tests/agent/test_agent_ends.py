"""Every worker ends, with all that it started, and the exits keep their order."""

from __future__ import annotations

import os
import signal

import pytest
from processes import children, eventually
from speaker import AGENT, HELPER, PYTHON, gone, state

SLEEPING = "import time; print('up'); time.sleep(1000)"
IGNORING = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up")
time.sleep(1000)
"""
DAEMON = """
import os, signal, sys, time
main = os.getpid()
ready, done = os.pipe()
if not os.fork():
    os.setsid()
    if not os.fork():
        print(f"daemon={os.getpid()}")
        os.write(done, b"x")
        null = os.open("/dev/null", os.O_RDWR)
        for target in (0, 1, 2):
            os.dup2(null, target)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(1000)
    os._exit(0)
os.wait()
os.read(ready, 1)
"""
BOMB = """
import os, sys, time
null = os.open("/dev/null", os.O_RDWR)
until = time.monotonic() + 60  # also where the tests, and the agent, were killed
for name in range(30):
    if not os.fork():
        os.dup2(null, 1)
        os.dup2(null, 2)
        while time.monotonic() < until:
            if os.fork():
                os._exit(0)
            if name % 3 == 0:
                os.setsid()
            if name % 3 == 1:
                os.setpgid(0, 0)
            open(f"alive-{name}", "w")
        os._exit(0)
print("up")
time.sleep(1000)
"""


def started(agent, name, code=SLEEPING, **fields):
    """Start a worker, wait until it says that it is up, and return its id."""
    agent.start(name, code, **fields)
    agent.says(name, "up")
    return agent.wait("started", process=name)["pid"]


@pytest.mark.slow
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_exits_keep_their_order(agent, order):
    for turn in range(10):
        pids = {letter: started(agent, f"{letter}{turn}") for letter in "ab"}
        os.kill(agent.pid, signal.SIGSTOP)
        for letter in order:  # both happen while the agent cannot look
            os.kill(pids[letter], signal.SIGKILL)
            eventually(lambda pid=pids[letter]: state(pid) == "Z")
        os.kill(agent.pid, signal.SIGCONT)
        agent.until(lambda turn=turn: len(agent.all("exited")) == 2 * turn + 2)
        first, second = agent.all("exited")[-2:]
        assert [first["process"], second["process"]] == [f"{letter}{turn}" for letter in order]
        assert first["time"] < second["time"]


def test_an_exit_is_reported_when_it_happened_though_its_log_is_held(agent):
    helper = """
    import os, time
    if not os.fork():
        print("up")
        time.sleep(1000)
    time.sleep(1000)
    """
    first, second = started(agent, "a", helper), started(agent, "b")
    os.kill(first, signal.SIGKILL)
    eventually(lambda: state(first) in ("Z", ""))
    os.kill(second, signal.SIGKILL)
    exits = [agent.wait("exited", process=name) for name in "ab"]
    assert exits[0]["time"] < exits[1]["time"]


def test_end_is_gentle_first(agent):
    code = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(42)); print('up')"
    started(agent, "a", code + "; time.sleep(1000)")
    started(agent, "b")
    agent.say("end", process="a", grace=20)
    assert agent.wait("exited")["code"] == 42
    assert [event["process"] for event in agent.all("exited")] == ["a"]
    agent.say("end", process=None, grace=20)
    agent.wait("exited", process="b", signal=signal.SIGTERM)


def test_one_that_ignores_sigterm_is_killed(agent):
    pid = started(agent, "a", IGNORING)
    agent.say("end", process="a", grace=0.1)
    exited = agent.wait("exited", process="a")
    assert exited["signal"] == signal.SIGKILL
    assert exited["oom"] is not True
    assert gone([pid])


def test_one_that_is_stopped_is_killed(agent):
    pid = started(agent, "a")
    agent.say("signal", process="a", signal=signal.SIGSTOP)
    eventually(lambda: state(pid) == "T")
    agent.say("end", process="a", grace=0.05)
    exited = agent.wait("exited", process="a", signal=signal.SIGKILL)
    assert exited["usage"]["state"] == "T", "though it was not measured meanwhile"


def test_a_repeated_end_can_only_hasten(agent):
    started(agent, "a", IGNORING)
    agent.say("end", process="a", grace=1000)
    agent.say("ping", n=1, until=None)
    agent.wait("pong")
    assert not agent.all("exited")
    agent.say("end", process=None, grace=0.05)
    agent.say("end", process="a", grace=1000)
    agent.wait("exited", signal=signal.SIGKILL)


def test_sigterm_is_sent_once(agent):
    code = """
    import os, signal, time
    signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"term"))
    print("up")
    while True:
        time.sleep(1000)
    """
    started(agent, "a", code)
    for grace in (50, 40):
        agent.say("end", process="a", grace=grace)
        agent.says("a", "term")
    agent.say("end", process="a", grace=0)
    agent.wait("exited")
    assert agent.printed("a").count(b"term") == 1


def test_an_end_that_overtakes_the_start(agent):
    for turn in range(10):
        agent.start(f"a{turn}", SLEEPING)
        agent.say("end", process=f"a{turn}", grace=turn % 2 * 10)
        agent.wait("exited", process=f"a{turn}", signal=15 if turn % 2 else 9)


@pytest.mark.parametrize("ending", ["time.sleep(1000)", "os._exit(3)", "os.kill(main, 9)"])
def test_a_daemon_ends_with_its_worker(agent, ending):
    agent.start("a", DAEMON + ending)
    daemon = agent.number("a", "daemon")
    if "sleep" in ending:
        assert not gone([daemon])
        agent.say("end", process="a", grace=0)
    agent.wait("exited")
    assert gone([daemon])


def test_a_daemon_of_another_worker_lives_on(agent):
    agent.start("a", DAEMON + "time.sleep(1000)")
    agent.start("b", DAEMON + "time.sleep(1000)")
    daemons = [agent.number(name, "daemon") for name in "ab"]
    agent.say("end", process="a", grace=0)
    agent.wait("exited", process="a")
    assert [gone([pid]) for pid in daemons] == [True, False]


def test_what_a_worker_started_last_ends_with_it_alone(agent):
    agent.start("b", HELPER.replace("os._exit(0)", "import time; time.sleep(1000)"))
    other = agent.number("b", "helper")
    for turn in range(5):
        agent.start(f"a{turn}", HELPER)
        helper = agent.number(f"a{turn}", "helper")
        agent.wait("exited", process=f"a{turn}")
        assert gone([helper])
    assert not gone([other])


@pytest.mark.slow
def test_a_daemon_that_cleared_its_environment_is_known_if_it_was_seen(speak):
    agent = speak(sample=0.02)
    code = """
    import os, sys, time
    if not os.fork():
        os.setsid()
        if not os.fork():
            print(f"far={os.getpid()}")
            os.execve(sys.executable, ["x", "-I", "-S", "-c", "import time; time.sleep(999)"], {})
        time.sleep(1000)
    time.sleep(1000)
    """
    agent.start("a", code)
    far = agent.number("a", "far")

    def seen():
        used = agent.all("usage")[-1:]
        return used and used[0]["processes"]["a"]["processes"] == 3

    agent.until(seen)
    agent.say("signal", process="a", signal=signal.SIGKILL)
    agent.wait("exited")
    assert gone([far])


@pytest.mark.slow
def test_processes_that_fork_all_the_time_end(agent, tmp_path):
    started(agent, "a", BOMB)
    agent.until(lambda: len(list(tmp_path.glob("alive-*"))) == 30)
    agent.say("end", process="a", grace=0)
    exited = agent.wait("exited")
    assert exited["error"] is None
    assert gone(children(agent.pid))
    for path in tmp_path.glob("alive-*"):
        path.unlink()
    agent.hear(0.1)
    assert not list(tmp_path.glob("alive-*"))


def test_many_end_at_once(agent):
    for number in range(32):
        agent.start(f"w{number}", argv=["sleep", "1000"])
    agent.until(lambda: len(agent.all("started")) == 32)
    agent.say("end", process=None, grace=0)
    agent.until(lambda: len(agent.all("exited", signal=signal.SIGKILL)) == 32)


def test_codes_and_signals_are_reported(agent):
    for name, how, expected in [
        ("a", "os._exit(0)", (0, None)),
        ("b", "os._exit(255)", (255, None)),
        ("c", "os.abort()", (None, signal.SIGABRT)),
        ("d", "os.kill(os.getpid(), signal.SIGSEGV)", (None, signal.SIGSEGV)),
        ("e", "raise ValueError", (1, None)),
    ]:
        agent.start(name, f"import os, signal; {how}")
        exited = agent.wait("exited", process=name)
        assert (exited["code"], exited["signal"], exited["error"]) == (*expected, None)
        assert exited["pid"] == agent.wait("started", process=name)["pid"]
        assert exited["usage"]["memory"] > 1 << 20


def test_a_shell_and_its_pipeline_end(agent):
    agent.start("a", argv=["sh", "-c", "sleep 1000 | sleep 1000 & echo up; sleep 1000"])
    agent.says("a", "up")
    agent.say("end", process="a", grace=0)
    agent.wait("exited", signal=signal.SIGKILL)
    assert gone(children(agent.pid))


def test_an_agent_within_a_worker_ends_with_it(agent):
    inner = f"""
    import json, os, subprocess, sys
    agent = subprocess.Popen({[*PYTHON, str(AGENT)]!r}, stdin=-1, stdout=-1)
    start = dict(type="start", process="a", argv=["sleep", "1000"], env={{"PATH": os.defpath}},
                 cwd="/", log="inner.log", report=None, zygote=None, credit=0, grace=0,
                 attributes=dict())
    agent.stdin.write(json.dumps(start).encode() + b"\\n")
    agent.stdin.flush()
    print("inner=" + str(json.loads(agent.stdout.readline())["pid"]))
    input()
    """
    agent.start("a", inner.replace("input()", "import time; time.sleep(1000)"))
    pid = agent.number("a", "inner")
    assert not gone([pid])
    agent.say("end", process="a", grace=0)
    agent.wait("exited")
    assert gone([pid])
