"""Nothing that an agent started outlives what the agent depends on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from processes import eventually
from speaker import AGENT, LINES, PYTHON, gone, state

FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
script = "import time; time.sleep(1000)"
far = subprocess.Popen([sys.executable, "-I", "-S", "-c", script], start_new_session=True)
print(f"main={os.getpid()} far={far.pid}")
time.sleep(1000)
"""

PARENT = """
import json, os, subprocess, sys, time
agent = subprocess.Popen(sys.argv[2:], stdin=-1, stdout=open(sys.argv[1], "w"))
commands = json.load(sys.stdin)
commands[0]["parent"] = os.getpid()
for command in commands:
    agent.stdin.write(json.dumps(command).encode() + b"\\n")
agent.stdin.flush()
holder = os.fork()
if holder:
    print(agent.pid, holder, flush=True)
time.sleep(1000)
"""


def family(agent):
    """Start a worker with a grandchild in a session of its own, and return their ids."""
    agent.start("a", FAMILY)
    return agent.number("a", "main"), agent.number("a", "far")


def test_the_end_of_standard_input(agent):
    pids = family(agent)
    agent.child.stdin.close()
    agent.child.wait(120)
    assert gone(pids)


def test_a_parent_that_dies_while_its_child_holds_the_pipe(speak, tmp_path):
    log, out = tmp_path / "a.log", tmp_path / "events"
    start = {"process": "a", "argv": [*PYTHON, "-c", LINES + FAMILY], "env": {}, "cwd": "/"}
    start |= {"log": str(log), "report": None, "zygote": None, "credit": 0, "grace": 0}
    start["attributes"] = {}
    commands = [
        {"type": "hello", "version": 1, "silence": 0, "sample": 0, "inherit": False},
        {"type": "start", **start},
    ]
    parent = subprocess.Popen(
        [*PYTHON, "-c", PARENT, str(out), *PYTHON, str(AGENT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    parent.stdin.write(json.dumps(commands))
    parent.stdin.close()
    agent, holder = map(int, parent.stdout.readline().split())
    text = eventually(lambda: log.exists() and "\n" in log.read_text() and log.read_text())
    pids = [int(word.split("=")[1]) for word in text.split()]
    assert not gone(pids)
    parent.kill()
    parent.wait()
    eventually(lambda: gone([agent, *pids]), "end of the agent and its workers")
    assert state(holder) == "S"
    os.kill(holder, signal.SIGKILL)
    parent.stdout.close()


def test_a_parent_that_is_dead_already(speak):
    parent = subprocess.Popen(["true"])
    parent.wait()
    agent = speak(greet=False)
    agent.say("hello", version=1, parent=parent.pid, silence=0, sample=0, inherit=False)
    assert agent.child.wait(120) == 0


@pytest.mark.slow
def test_silence(speak):
    agent = speak(silence=600)
    pids = family(agent)
    agent.say("ping", n=0, until=time.monotonic() + 0.3)
    agent.child.wait(120)
    assert gone(pids)


@pytest.mark.slow
def test_pings_extend_a_lease_until_the_moment_that_they_name(speak):
    agent = speak(silence=1.5)  # longer than a busy machine lets this process wait
    until = agent.hello["time"] + 2.0
    agent.say("ping", n=0, until=until + 600)
    while agent.all("pong")[-1:] == [] or agent.all("pong")[-1]["time"] < until:
        seen = len(agent.all("pong"))
        agent.say("ping", n=seen, until=None)
        agent.until(lambda seen=seen: len(agent.all("pong")) > seen)
    assert agent.child.poll() is None
    agent.say("ping", n=0, until=agent.hello["time"])  # as one that was delivered late
    agent.child.wait(120)


@pytest.mark.slow
def test_other_commands_do_not_extend_a_lease(speak):
    agent = speak(silence=0.3)
    with suppress(BrokenPipeError):
        while agent.child.poll() is None:
            agent.say("release", ports=[])
    agent.child.wait(120)


def test_an_agent_without_a_reader_ends_with_its_workers(agent):
    pids = family(agent)
    agent.child.stdout.close()
    agent.child.wait(120)
    assert gone(pids)


def test_a_killed_agent_takes_its_workers(agent):
    main, far = family(agent)
    os.kill(agent.pid, signal.SIGKILL)
    eventually(lambda: gone([main]), "end of the worker")
    os.kill(far, signal.SIGKILL)  # only a control group could have ended this one


def test_an_agent_that_fails_leaves_nothing(speak, tmp_path):
    """Whatever error there may be: here is one."""
    program = tmp_path / "failing.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(AGENT.parents[2])!r})\n"
        "from mwmagic.agent import agent, workers\n"
        "workers.Workers.measure = lambda *_: 1 / 0\n"
        "agent.Agent().run()\n"
    )
    agent = speak(program=program)
    pids = family(agent)
    agent.say("hello", version=1, parent=None, silence=0, sample=0.01, inherit=False)
    assert agent.child.wait(120) == 1
    eventually(lambda: gone(pids), "end of what it killed as it ended")


def test_a_stopped_agent_loses_nothing(agent):
    agent.start("a", "print('one'); input()")
    agent.wait("exited")
    os.kill(agent.pid, signal.SIGSTOP)
    agent.start("b", "print('two')")
    agent.say("ping", n=1, until=None)
    os.kill(agent.pid, signal.SIGCONT)
    agent.wait("exited", process="b", code=0)
    assert agent.printed("b") == b"two\n"
    agent.wait("pong")


def test_orphans_without_a_worker_end_with_the_agent(agent):
    agent.start(
        "a",
        """
        import os, resource, sys, time
        if not os.fork():
            os.setsid()
            if not os.fork():
                resource.setrlimit(resource.RLIMIT_RTTIME, (resource.RLIM_INFINITY,) * 2)
                print(f"lost={os.getpid()}")
                null = os.open("/dev/null", os.O_RDWR)
                for target in (0, 1, 2):
                    os.dup2(null, target)
                os.execve(sys.executable, [*sys.argv[:1], "-I", "-S", "-c", LOOP], {})
            os._exit(0)
        while not os.path.exists("up"):
            time.sleep(0.001)
        """.replace("LOOP", repr("import time; open('up', 'w'); time.sleep(1000)")),
    )
    lost = agent.number("a", "lost")
    agent.wait("exited")
    assert not gone(
        [lost]
    )  # in its own session, without a tag or an environment, never seen before
    agent.child.stdin.close()
    agent.child.wait(120)
    assert gone([lost])


def test_it_needs_a_lifeline():
    command = [*PYTHON, str(AGENT)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(b"the agent's standard input must be a pipe or a socket")


def test_it_is_quick_to_start():
    """What would cost more than all the rest is not imported."""
    command = [*PYTHON, "-X", "importtime", str(AGENT)]
    imported = subprocess.run(command, stdin=subprocess.PIPE, capture_output=True, check=True)
    names = {line.split(b"|")[-1].strip().decode() for line in imported.stderr.splitlines()}
    assert "json" in names
    heavy = {"typing", "asyncio", "subprocess", "pathlib", "dataclasses", "logging", "threading"}
    assert not names & heavy
    assert sys.version_info >= (3, 10)
