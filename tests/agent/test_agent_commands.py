"""What an agent understands, and what it refuses."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

import pytest
from processes import children, eventually
from speaker import PYTHON, gone

import mwmagic
from mwmagic.agent import agent as module
from mwmagic.agent.machine import Oom
from mwmagic.agent.system import waits_for_signals
from mwmagic.agent.wire import packed
from mwmagic.model import messages

IGNORING = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up")
while True:
    time.sleep(600)
"""


def test_it_obeys_every_command_of_the_schema():
    assert list(module.HANDLERS) == list(messages.COMMANDS)


def test_hello_says_where_it_runs(agent):
    assert agent.hello["pid"] == agent.pid
    assert agent.hello["host"] == os.uname().nodename
    assert agent.hello["python"] == ".".join(str(part) for part in sys.version_info[:3])
    assert agent.hello["executable"] == sys.executable
    assert agent.hello["package"] == str(Path(mwmagic.__file__).parent)
    assert agent.hello["time"] > 0
    assert agent.hello["wall"] > 1e9


def test_another_version_is_refused_and_ends_it(speak):
    agent = speak(greet=False)
    agent.say("hello", version=2, parent=None, silence=0, sample=0, inherit=False)
    assert agent.wait("refused", command="hello")["error"] == "this agent speaks version 1, not 2"
    assert agent.child.wait() == 0


@pytest.mark.parametrize(
    ("line", "command", "error"),
    [
        (b"nonsense", None, "Expecting value"),
        (b"", None, "Expecting value"),
        (b"\xff\xfe\x00", None, "decode"),
        (b"[1, 2]", None, "not a JSON object"),
        (b"[" * 100_000, None, "nested too deeply"),
        (b"{}", None, "unknown message None; known are hello, look"),
        (b'{"type": ["end"]}', None, "unknown message ['end']"),
        (b'{"type": "dance"}', "dance", "unknown message 'dance'; known are hello, look"),
        (b'{"type": "end", "grace": 1}', "end", "message 'end' lacks 'process'"),
        (b'{"type": "end", "process": 1, "grace": 1}', "end", "message 'end' has process = 1"),
        (b'{"type": "end", "process": null, "grace": NaN}', None, "NaN is not a number"),
        (b'{"type": "hold", "id": 1, "count": 1000000}', "hold", "1000000 ports cannot be held"),
        (b'{"type": "hold", "id": 1, "count": -1}', "hold", "-1 ports cannot be held"),
        (b'{"type": "ping", "n": "1"}', "ping", "message 'ping' has n = '1'"),
        (b'{"type": "release", "ports": [[]]}', "release", "unhashable"),
    ],
)
def test_a_bad_line_is_refused(agent, line, command, error):
    agent.write(line + b"\n")
    refused = agent.wait("refused")
    assert refused["command"] == command
    assert error in refused["error"]
    agent.say("ping", n=7, until=None)
    agent.wait("pong", n=7)


def test_a_refused_hold_holds_nothing(agent):
    agent.say("hold", id=1, count=1_000_000)
    agent.wait("refused", id=1)
    agent.say("hold", id=2, count=8)
    assert len(agent.wait("held", id=2)["ports"]) == 8


def test_numbers_beyond_reason_do_no_harm(agent):
    agent.start("a", IGNORING)
    agent.says("a", "up")
    huge = "1" + "0" * 400
    agent.write(b'{"type":"end","process":"a","grace":%s}\n' % huge.encode())
    agent.wait("refused", command="end")
    agent.write(b'{"type":"end","process":"a","grace":1e999}\n')
    agent.write(b'{"type":"credit","process":"a","bytes":%s}\n' % huge.encode())
    agent.say("signal", process="a", signal=9999)
    agent.wait("refused", command="signal")
    agent.say("signal", process="a", signal=signal.SIGKILL)
    agent.wait("exited", process="a", signal=signal.SIGKILL)


def test_commands_for_a_process_that_has_gone_are_no_error(agent):
    agent.say("end", process="a", grace=1)
    agent.say("credit", process="a", bytes=1)
    agent.say("signal", process="a", signal=9)
    agent.say("release", ports=[1])
    agent.say("ping", n=1, until=None)
    agent.wait("pong")
    assert not agent.all("refused")


def test_a_line_may_come_in_pieces(agent):
    agent.write(b'{"type":"pi')
    agent.say("ping", n=1, until=None)  # the rest of a line that is now malformed
    agent.wait("refused")
    agent.write(b'{"type":"ping",')
    agent.write(b'"n":2,"until":null}\n{"type":"ping","n":3,"until":null}\n')
    agent.wait("pong", n=2)
    agent.wait("pong", n=3)


def test_a_name_in_use_is_refused(agent):
    agent.start("a", "import time; time.sleep(600)")
    agent.wait("started")
    agent.start("a")
    assert agent.wait("refused", command="start", process="a")["error"] == "a is still alive"
    agent.say("end", process="a", grace=0)
    agent.wait("exited")
    agent.start("a", "print('again')")
    agent.wait("exited", code=0)
    assert agent.printed("a") == b"again\n"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"argv": ["/nowhere/python"]}, "cannot run /nowhere/python: No such file or directory"),
        ({"argv": ["no-such-command"]}, "cannot run no-such-command: No such file or directory"),
        ({"argv": ["/"]}, "cannot run /: Permission denied"),
        ({"argv": [*PYTHON, "a\0b"]}, "embedded null"),
        ({"cwd": "/nowhere"}, "cannot enter /nowhere: No such file or directory"),
        (
            {"log": "/nowhere/attempt-1/a.log"},
            "cannot write the log /nowhere/attempt-1/a.log: No such file",
        ),
        ({"log": "/"}, "cannot write the log /: Is a directory"),
        ({"log": "a\0b"}, "embedded null"),
        ({"env": {"LONG": "x" * 200_000}}, "too long (variable LONG has 200006 bytes; 131072 are"),
        ({"argv": [*PYTHON, "x" * 200_000]}, f"(argument {len(PYTHON)} has 200001 bytes; 131072"),
        ({"env": {f"V{n}": "x" * 99_996 for n in range(70, 99)}}, "too long (in all 29"),
        ({"env": {"A=B": "c"}}, "illegal environment variable name"),
    ],
)
def test_a_process_that_cannot_be_started_counts_as_an_exit(agent, fields, error):
    agent.start("a", **fields)
    exited = agent.wait("exited", process="a")
    assert error in exited["error"]
    assert exited["code"] is exited["signal"] is exited["report"] is exited["oom"] is None
    assert not agent.all("started")
    agent.start("a", "print('well')")
    agent.wait("exited", process="a", code=0)


@pytest.mark.parametrize("fields", [{"argv": []}, {"argv": [1]}, {"env": {"A": 1}}])
def test_a_start_without_sense_is_refused(agent, fields):
    agent.start("a", **fields)
    assert "hold strings" in agent.wait("refused", process="a")["error"]


def test_a_worker_gets_what_the_command_says(agent, tmp_path):
    env = {"A": "é", "LC_ALL": "C.UTF-8"}
    code = "import os, sys; print(sys.argv[1:], os.getcwd(), dict(os.environ), sys.stdin.read())"
    agent.start("a", argv=[*PYTHON, "-c", code, "x y"], env=env, cwd=str(tmp_path))
    agent.wait("exited", code=0)
    env["MWMAGIC_PROCESS"] = f"{agent.pid}/a"
    line = agent.printed("a").decode().partition("'MWMAGIC_LINE': '")[2].partition("'")[0]
    env["MWMAGIC_LINE"] = str(int(line))
    scratch = agent.printed("a").decode().partition("'MWMAGIC_SCRATCH': '")[2].partition("'")[0]
    env["MWMAGIC_SCRATCH"] = scratch
    assert scratch
    assert agent.printed("a").decode() == f"['x y'] {tmp_path} {env} \n"


def signals_of(lines):
    """Return the sets of signals in lines of /proc/PID/status.

    Without 32 and 33, which the C library keeps for itself: nobody can set them.
    """
    masks = {name: int(mask, 16) for name, mask in (line.split(":\t") for line in lines)}
    return {
        name: {n for n in range(1, 65) if mask >> (n - 1) & 1} - {32, 33}
        for name, mask in masks.items()
    }


def test_a_worker_has_no_descriptors_or_signals_of_others(agent):
    agent.say("hold", id=1, count=4)
    agent.start("b", "import time; time.sleep(600)")
    agent.start(
        "a",
        """
        import os, signal
        print(*{*map(int, os.listdir("/proc/self/fd"))} ^ {int(os.environ["MWMAGIC_LINE"])})
        lines = open("/proc/self/status").read().splitlines()
        print(*(line for line in lines if line.startswith(("SigI", "SigB"))), sep="\\n")
        """,
    )
    agent.wait("exited", process="a", code=0)
    descriptors, *signals = agent.printed("a").decode().splitlines()
    assert descriptors == "0 1 2 3"  # beside its line; the last is the listing's own
    ignored_by_python = {signal.SIGPIPE, signal.SIGXFSZ}
    assert signals_of(signals) == {"SigBlk": set(), "SigIgn": ignored_by_python}


def test_too_few_descriptors_fail_some_workers_and_not_the_agent(agent):
    agent.start("a", "import time\ntime.sleep(600)")
    agent.wait("started", process="a")
    hard = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)[1]
    used = len(list(Path(f"/proc/{agent.pid}/fd").iterdir()))
    resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (used + 40, hard))
    names = [f"b{number}" for number in range(20)]
    for name in names:
        agent.start(name, "import time\ntime.sleep(600)")
    agent.until(
        lambda: {event["process"] for event in agent.events if "process" in event} > {*names}
    )
    failed = [event for event in agent.events if event["type"] == "exited"]
    assert {event["reason"] for event in failed} == {"not-started"}
    assert all("too many open files" in event["error"] for event in failed)
    assert "a" not in {event["process"] for event in failed}
    assert 0 < len(failed) < len(names)
    agent.say("ping", n=1, until=None)
    agent.wait("pong")


def test_a_signal_that_asks_something_ends_nothing(agent):
    file = agent.folder / "answers"
    file.touch()
    ask = {"signal": 50, "file": str(file)}
    agent.start("a", f"import time\nheld = open({str(file)!r})\nprint('bare')\ntime.sleep(600)")
    agent.says("a", "bare")
    agent.say("ask", process="a", **ask)
    agent.wait("refused", command="ask", process="a")
    code = """
        import os, signal, sys, time
        held = open("answers", "a")
        caught = False
        def answer(*_):
            global caught
            caught = True
            print("answer", flush=True)
        signal.signal(50, answer)
        print("ready", flush=True)
        while not caught:
            time.sleep(0.01)
        os.execv(sys.executable, [sys.executable, "-c", "print('new', flush=True); input()"])
        """
    agent.start("b", code)
    agent.says("b", "ready")
    agent.say("ask", process="b", **ask)
    agent.says("b", "answer")
    deaf = "signal.pthread_sigmask(signal.SIG_BLOCK, [50])"
    for name, more in (("c", "held.close()"), ("d", deaf), ("e", "os.remove('answers')")):
        agent.start(
            name, code.replace('        print("ready', f'        {more}\n        print("ready')
        )
        agent.says(name, "ready")
        agent.say("ask", process=name, **ask)
        agent.wait("refused", command="ask", process=name)
    agent.start("f", code.replace("while not caught", "signal.pause()\n        while not caught"))
    pid = agent.wait("started", process="f")["pid"]
    agent.until(lambda: waits_for_signals(pid))
    agent.say("ask", process="f", **ask)
    agent.wait("refused", command="ask", process="f")
    agent.say("ask", process="gone", **ask)
    agent.say("ping", n=1, until=None)
    agent.wait("pong")


def test_a_signal_reaches_the_main_process_only(agent):
    agent.start(
        "a",
        """
        import os, signal, time
        child = os.fork()
        signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"main" if child else b"kid"))
        if child:
            print(f"child={child}")
        while True:
            time.sleep(600)
        """,
    )
    agent.number("a", "child")
    agent.say("signal", process="a", signal=signal.SIGUSR1)
    agent.says("a", "main")
    agent.say("signal", process="a", signal=signal.SIGTERM)
    agent.wait("exited", signal=signal.SIGTERM, oom=False)
    assert b"kid" not in agent.printed("a")


@pytest.mark.parametrize(
    ("content", "report"),
    [
        ('{"error": "x"}', {"error": "x"}),
        ("[]", None),
        ("{", None),
        ("", None),
        ('{"a": "' + "x" * 65536 + '"}', None),
    ],
)
def test_the_report_a_worker_leaves_is_reported(agent, tmp_path, content, report):
    path = tmp_path / "report.json"
    agent.start("a", f"open({str(path)!r}, 'w').write({content!r})", report=str(path))
    assert agent.wait("exited", code=0)["report"] == report


def test_a_report_that_is_no_file_is_none(agent, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for name, path in (("a", tmp_path / "fifo"), ("b", tmp_path), ("c", tmp_path / "none")):
        agent.start(name, report=str(path))
        assert agent.wait("exited", process=name, code=0)["report"] is None


@pytest.mark.slow
def test_usage_is_sampled_with_descendants(speak):
    agent = speak(sample=0.05)
    agent.start(
        "a",
        """
        import os, time
        block = b"x" * 50_000_000
        if not os.fork():
            while time.process_time() < 0.3:
                pass
        time.sleep(600)
        """,
    )

    def busy():
        used = [event["processes"].get("a") for event in agent.all("usage")]
        return used and used[-1] and used[-1]["processes"] == 2 and used[-1]["cpu"] > 0.2

    agent.until(busy, "usage of two processes")
    used = agent.all("usage")[-1]["processes"]["a"]
    assert used["state"] == "S"
    assert 50_000_000 < used["memory"] < 500_000_000
    machine = agent.all("usage")[-1]["machine"]
    assert machine["load"] >= 0
    assert used["memory"] < machine["memory"]
    agent.say("end", process="a", grace=0)
    usage = agent.wait("exited")["usage"]
    assert usage["cpu"] > 0.2
    assert usage["memory"] >= used["memory"]


def test_close_ends_all_and_reports_it(agent):
    for name in "abc":
        agent.start(name, "import time; time.sleep(600)")
    agent.until(lambda: len(agent.all("started")) == 3)
    with agent.together():  # it may have ended before it reads a second piece
        agent.say("close")
        agent.start("d")
    agent.wait("refused", process="d", error="the agent is closing")
    agent.until(lambda: agent.over)
    assert len(agent.all("exited", signal=signal.SIGKILL)) == 3
    assert agent.child.wait() == 0


def test_sigterm_closes_it(agent):
    agent.start("a", "import time; time.sleep(600)")
    agent.wait("started")
    agent.child.terminate()
    exited = agent.wait("exited", code=None, signal=None)
    assert exited["error"] == "which got SIGTERM"
    assert agent.child.wait() == 0


SAVES = """
import os, signal, sys, time
def save(*_):
    print("saving")
    time.sleep(0.2)
    print("saved")
    sys.exit({0})
signal.signal(signal.SIGTERM, save)
os.write(1, b"up\\n")  # `save` must not print while this does
time.sleep(600)
"""


@pytest.mark.slow
def test_sigterm_lets_the_workers_save(agent):
    """The exits are reported together: the first would have the others killed."""
    agent.start("a", SAVES.format(0), grace=50)
    agent.start("b", SAVES.format(42), grace=50)
    agent.start("c", "print('up'); import time; time.sleep(600)", grace=50)
    for name in "abc":
        agent.says(name, "up")
    agent.child.terminate()
    agent.say("ping", n=1, until=None)
    agent.wait("pong")
    agent.child.terminate()  # as Slurm does, at once
    agent.says("a", "saving")
    agent.until(lambda: agent.over)
    assert agent.printed("a") == agent.printed("b") == b"up\nsaving\nsaved\n"
    exits = [(one["process"], one["code"], one["signal"]) for one in agent.all("exited")]
    assert sorted(exits) == [("a", None, None), ("b", 42, None), ("c", None, None)]
    assert {one["error"] for one in agent.all("exited")} == {"which got SIGTERM"}
    order = [one["type"] for one in agent.events if one["type"] in ("output", "exited")]
    assert order[-3:] == ["exited"] * 3


@pytest.mark.slow
def test_a_second_sigterm_does_not_wait(agent):
    agent.start("a", IGNORING.replace("signal.SIG_IGN", "lambda *_: os.write(1, b'no')"), grace=600)
    agent.says("a", "up")
    agent.child.terminate()
    agent.says("a", "no")
    agent.start("b")
    agent.wait("refused", process="b", error="which got SIGTERM")
    assert not agent.all("exited")
    agent.until(lambda: agent.over or agent.child.terminate())
    agent.wait("exited", process="a", code=None, signal=None)
    assert agent.child.wait() == 0


def test_an_interrupt_of_its_group_touches_nothing(agent):
    agent.start("a", "import time; print('up'); time.sleep(600)")
    agent.says("a", "up")
    for number in (signal.SIGINT, signal.SIGHUP):
        os.killpg(agent.pid, number)
    agent.say("ping", n=1, until=None)
    agent.wait("pong")
    assert not gone([agent.wait("started")["pid"]])


def test_memory_kills_are_counted_once_each(tmp_path):
    path = tmp_path / "memory.events"
    path.write_text("oom 1\noom_kill 1\noom_group_kill 0\n")
    oom = Oom()
    oom.path = str(path)
    first, second = oom.mark(), oom.mark()
    assert oom.claim(first) is False
    path.write_text("oom 1\noom_kill 2\n")
    assert oom.claim(first) is True
    assert oom.claim(second) is False
    oom.path = str(tmp_path / "none")
    assert oom.claim(first) is None


def test_a_kill_from_elsewhere_is_not_called_out_of_memory(agent):
    agent.start("a", "import time; time.sleep(600)")
    os.kill(agent.wait("started")["pid"], signal.SIGKILL)
    known = Oom().mark() is not None
    assert agent.wait("exited", signal=9)["oom"] is (False if known else None)


def test_no_process_stays_a_zombie(agent):
    agent.start(
        "a",
        """
        import os, time
        for _ in range(20):
            if not os.fork():
                if not os.fork():
                    os.setsid()
                    os._exit(0)
                os._exit(0)
        for _ in range(20):
            os.wait()
        print("done")
        time.sleep(600)
        """,
    )
    agent.says("a", "done")
    eventually(lambda: len(children(agent.pid)) == 1, "end of the zombies")


def test_a_refusal_names_the_file_that_finds_no_space(agent, tmp_path):
    path = tmp_path / "full"
    path.symlink_to("/dev/full")
    agent.say("put", id=1, path=str(path), offset=0, data=packed(b"b"))
    refused = agent.wait("refused", id=1)
    assert refused["error"] == f"[Errno 28] No space left on device: '{path}'"
