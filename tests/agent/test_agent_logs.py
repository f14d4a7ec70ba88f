"""Every byte that a worker prints is in its file, and what is forwarded says where it is from."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from processes import eventually
from speaker import AGENT, PYTHON, state

from mwmagic.agent.wire import REST_SECONDS
from mwmagic.agent.workers import Workers

CHUNK = 64 << 10
FLOOD = 200 << 20
FLOODING = """
import os
block = b"".join(b"%063d\\n" % number for number in range(1024))
for _ in range(3200):
    os.write(1, block)
"""


def peak(pid):
    """Return the most memory that a process has had, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def whole(path, size):
    """Whether a file holds what FLOODING prints."""
    block = b"".join(b"%063d\n" % number for number in range(1024))
    with path.open("rb") as file:
        return file.read(len(block)) == block and path.stat().st_size == size


@pytest.mark.slow
def test_a_flood_without_credit(agent):
    agent.start("a", FLOODING, credit=0)
    exited = agent.wait("exited", code=0)
    assert exited["size"] == FLOOD
    assert whole(agent.log("a"), FLOOD)
    [tail] = agent.all("output")
    assert tail["offset"] == FLOOD - CHUNK
    assert agent.log("a").read_bytes()[-CHUNK:] == agent.printed("a")
    assert peak(agent.pid) < 40 << 20
    agent.log("a").unlink()


@pytest.mark.slow
def test_a_flood_that_nobody_reads(agent):
    agent.start("a", FLOODING, credit=1 << 40)
    pid = agent.wait("started")["pid"]
    eventually(lambda: state(pid) == "", "end of a worker whose reader sleeps")
    assert agent.log("a").stat().st_size == FLOOD
    assert peak(agent.pid) < 60 << 20
    assert agent.wait("exited", code=0)["size"] == FLOOD
    last = agent.all("output")[-1]
    assert last["offset"] + len(last["data"]) == FLOOD
    agent.log("a").unlink()


def test_pieces_say_where_they_are_from(agent):
    agent.start("a", FLOODING.replace("3200", "160"), credit=1 << 40)
    exited = agent.wait("exited", code=0)
    content = agent.log("a").read_bytes()
    assert exited["size"] == len(content) == 10 << 20
    end = 0
    for piece in agent.all("output"):
        data = piece["data"].encode()
        assert piece["offset"] >= end
        assert len(data) <= CHUNK
        end = piece["offset"] + len(data)
        assert content[piece["offset"] : end] == data
    assert end == len(content)


def test_credit_is_what_may_be_sent(agent):
    agent.start("a", "import time; print('y' * 999); time.sleep(600)", credit=10)
    agent.until(lambda: agent.printed("a"))
    agent.say("ping", n=1, until=None)
    agent.wait("pong")
    assert agent.printed("a") == b"y" * 10
    agent.say("credit", process="a", bytes=20)
    agent.until(lambda: len(agent.printed("a")) == 30)
    agent.say("end", process="a", grace=0)
    agent.wait("exited", process="a", size=1000)
    assert agent.printed("a") == b"y" * 999 + b"\n"  # at the end the rest comes without credit


def test_a_reader_far_behind_skips_ahead(agent):
    agent.start(
        "a",
        """
        import os, time
        os.write(1, b"a" * 5_000_000 + b"b" * 65_536)
        print(file=open("done", "w"))
        time.sleep(600)
        """,
        credit=100,
    )
    eventually((agent.folder / "done").exists, "end of the printing")
    assert agent.printed("a") == b""
    agent.until(lambda: agent.printed("a"))
    sent = len(agent.printed("a"))
    agent.say("credit", process="a", bytes=1 << 20)
    agent.until(lambda: agent.printed("a").endswith(b"b" * 65_536))
    assert agent.all("output")[0]["offset"] == 0
    assert sent <= 100 + CHUNK
    assert len(agent.printed("a")) <= 100 + CHUNK


def test_every_worker_has_its_turn(agent):
    for name in "abc":
        agent.start(name, "while True: print('x' * 60000)", credit=1 << 50)
    agent.until(lambda: all(len(agent.all("output", process=name)) > 20 for name in "abc"))
    agent.say("end", process=None, grace=0)
    agent.until(lambda: len(agent.all("exited")) == 3)


def test_many_small_prints_become_few_events(agent):
    agent.start("a", "import os\nfor _ in range(20000): os.write(1, b'x')")
    agent.wait("exited", code=0)
    assert agent.printed("a") == b"x" * 20000
    assert len(agent.all("output")) < 2000


@pytest.mark.slow
def test_small_prints_are_let_gather(agent):
    agent.start(
        "a",
        """
        import os, time
        for _ in range(400_000):
            os.write(1, b"x" * 63 + b"\\n")
        print(time.process_time())
        """,
        credit=0,
    )
    agent.wait("exited", code=0)
    worker = float(agent.log("a").read_bytes().splitlines()[-1])
    used = psutil.Process(agent.pid).cpu_times()
    assert used.user + used.system < 0.7 * worker  # as much as the worker, if each is looked at


def test_a_small_print_is_not_held_back(agent):
    agent.start("a", "import sys, time; sys.stdout.write('50%\\r'); time.sleep(600)")
    agent.until(lambda: agent.printed("a") == b"50%\r")


def test_both_streams_arrive_in_order(agent):
    code = "import os\nfor i in range(500): os.write(1 + i % 2, b'%d ' % i)"
    agent.start("a", code)
    agent.wait("exited", code=0)
    assert agent.printed("a").split() == [b"%d" % number for number in range(500)]


@pytest.mark.slow
def test_the_last_line_is_there_before_the_exit(agent):
    code = "import os, signal; os.write(1, b'x' * {0}); os.kill(os.getpid(), 9)"
    for turn in range(20):
        agent.start(str(turn), code.format(turn * 1000))
        exited = agent.wait("exited", process=str(turn), signal=signal.SIGKILL)
        assert exited["size"] == turn * 1000
        assert len(agent.printed(str(turn))) == turn * 1000
        assert agent.log(str(turn)).stat().st_size == turn * 1000


def test_what_a_helper_prints_before_it_is_killed_is_there(agent):
    agent.start(
        "a",
        """
        import os, time
        if not os.fork():
            print("from the helper")
            open("done", "w")
            time.sleep(600)
        while not os.path.exists("done"):
            time.sleep(0.001)
        """,
    )
    agent.wait("exited", code=0)
    assert agent.printed("a") == b"from the helper\n"


def test_bytes_survive_whatever_they_are(agent):
    data = bytes(range(256)) * 3 + "漢字🙂é".encode() * 50 + b"\xf0\x9f\x99\n\x80\xed\xa0\x80"
    path = agent.folder / "data"
    path.write_bytes(data)
    agent.start("a", "import os, time; os.write(1, open('data', 'rb').read()); time.sleep(600)")
    agent.until(lambda: agent.printed("a") == data)


def test_characters_may_be_cut_anywhere(agent):
    text = "é漢🙂" * 20
    generator = random.Random(0)
    code = f"import os, time; os.write(1, {text.encode()!r}); time.sleep(600)"
    agent.start("a", code, credit=1)
    while len(agent.printed("a")) < len(text.encode()):
        seen = len(agent.printed("a"))
        agent.say("credit", process="a", bytes=generator.randint(1, 5))
        agent.until(lambda seen=seen: len(agent.printed("a")) > seen)
    assert agent.printed("a").decode() == text
    assert len(agent.all("output", process="a")) > 30


def test_a_log_is_private_and_grows(agent):
    agent.log("a").write_bytes(b"before\n")
    agent.start("a", "print('after')")
    assert agent.wait("exited", process="a", code=0)["size"] == 13
    assert agent.log("a").read_bytes() == b"before\nafter\n"
    assert agent.all("output", process="a")[0]["offset"] == 7
    agent.start("b", "print('new')")
    agent.wait("exited", process="b", code=0)
    assert stat.S_IMODE(agent.log("b").stat().st_mode) == 0o600


def test_a_truncated_log_goes_on(agent):
    agent.start(
        "a",
        """
        import os, time
        print("x" * 1000)
        while not os.path.exists("truncated"):
            time.sleep(0.001)
        print("y")
        """,
        credit=10,
    )
    agent.until(lambda: len(agent.printed("a")) == 10)
    eventually(lambda: agent.log("a").stat().st_size == 1001)
    os.truncate(agent.log("a"), 0)
    (agent.folder / "truncated").touch()
    agent.wait("exited", process="a", code=0)
    assert agent.log("a").read_bytes() == b"y\n"


def test_a_full_disk_is_reported_and_stops_no_task(agent):
    agent.start("a", "for _ in range(100): print('x' * 10000)", log="/dev/full")
    exited = agent.wait("exited", code=0)
    assert "No space left on device" in exited["error"]
    unwritten = agent.wait("unwritten", process="a", size=0)
    assert unwritten["path"].startswith(f"/proc/{agent.pid}/fd/")
    assert exited["size"] == len(Path(unwritten["path"]).read_bytes()) == 100 * 10001


def test_what_a_full_disk_did_not_take_is_let_go_some_time_after_the_exit():
    rest = os.memfd_create("rest")
    process = SimpleNamespace(name="a", pid=7, log=SimpleNamespace(rest=rest), close=lambda: None)
    own = SimpleNamespace(mains={7: "a"})
    workers = SimpleNamespace(processes={"a": process}, family=own, rests=[])
    Workers.forget(workers, process)
    assert not workers.processes
    assert not own.mains
    Workers.close_rests(workers, time.monotonic())
    os.fstat(rest)
    Workers.close_rests(workers, time.monotonic() + REST_SECONDS + 1)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(rest)


@pytest.mark.slow
def test_a_stranger_that_holds_the_log_delays_the_exit_only_so_long(agent):
    agent.start("a", "import time; print('up'); time.sleep(600)")
    agent.says("a", "up")
    pid = agent.wait("started")["pid"]
    with Path(f"/proc/{pid}/fd/1").open("wb", buffering=0) as stranger:
        os.kill(pid, signal.SIGKILL)
        stranger.write(b"late")
        exited = agent.wait("exited", signal=signal.SIGKILL)
        assert "could not be ended" in exited["error"]
        assert agent.printed("a") == b"up\nlate"
        with pytest.raises(BrokenPipeError):
            stranger.write(b"too late")


def test_a_worker_may_close_its_output(agent):
    agent.start("a", "import os, time; print('x'); os.close(1); os.close(2); time.sleep(600)")
    agent.says("a", "x")
    agent.say("ping", n=1, until=None)
    agent.wait("pong")
    assert not agent.all("exited")
    agent.say("end", process="a", grace=10)
    agent.wait("exited", signal=signal.SIGTERM, size=2)


def test_a_reader_that_pauses_loses_no_event(agent):
    agent.start("noise", "while True: print('x' * 60000)", credit=1 << 50)
    for number in range(50):
        agent.start(f"w{number}", argv=["true"])
    for number in range(2000):
        agent.say("ping", n=number, until=None)
    agent.until(lambda: len(agent.all("pong")) == 2000)
    agent.until(lambda: len(agent.all("exited", code=0)) == 50)
    assert [event["n"] for event in agent.all("pong")] == list(range(2000))


def test_it_sleeps_when_there_is_nothing_to_do(agent):
    agent.start("a", "import os, time; os.close(1); os.close(2); time.sleep(600)", credit=0)
    agent.wait("started")
    agent.say("ping", n=1, until=None)
    agent.wait("pong")  # it has nothing left to do with the start

    def used():
        fields = Path(f"/proc/{agent.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    before = used()
    agent.hear(0.2)
    assert used() - before <= 1


def test_output_comes_over_a_socket_too(tmp_path):
    near, far = socket.socketpair()
    with near, far:
        child = subprocess.Popen([*PYTHON, str(AGENT)], stdin=far, stdout=far)
        far.close()
        hello = {"type": "hello", "version": 1, "parent": None, "silence": 0, "sample": 0}
        hello["inherit"] = False
        near.sendall(json.dumps(hello).encode() + b"\n")
        assert b"hello" in near.recv(1000)
        near.shutdown(socket.SHUT_WR)
        assert child.wait(120) == 0
