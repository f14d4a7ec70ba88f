"""A worker's private line: what it says beside its output, and what it is told."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from processes import children, eventually
from speaker import ZYGOTE, state

BOOTSTRAP = """
import sys

def preload(*_):
    pass

remember = preload

def main(argv):
    exec(open(argv[0]).read(), {"__name__": "__main__"})

if __name__ == "__main__":
    main(sys.argv[1:])
"""
OPEN = """
import os, socket, sys, time
line = socket.socket(fileno=int(os.environ["MWMAGIC_LINE"]))
line.set_inheritable(False)
sys.stdout.reconfigure(line_buffering=True)
"""
PACKET = 64 << 10


@pytest.fixture(params=["cold", "warm"])
def start(request, agent):
    """Start workers with an open line, from nothing and from a zygote."""
    bootstrap = agent.folder / "bootstrap.py"
    bootstrap.write_text(BOOTSTRAP)
    if request.param == "warm":
        argv = [sys.executable, *ZYGOTE, str(bootstrap), "json"]
        agent.say("warm", key="k", argv=argv, env={"PATH": os.environ["PATH"]}, cwd="/")
        agent.wait("warmed")

    def begin(name, code, **fields):
        script = agent.folder / f"{name}.py"
        script.write_text(OPEN + code)
        argv = [sys.executable, str(bootstrap), str(script)]
        zygote = "k" if request.param == "warm" else None
        agent.start(name, argv=argv, zygote=zygote, **fields)
        return agent.wait("started", process=name, warm=request.param == "warm")["pid"]

    return begin


def packets(agent, name):
    """Return the packets that a worker sent, as bytes."""
    return [
        one["data"].encode("utf-8", "surrogateescape") for one in agent.all("packet", process=name)
    ]


def test_packets_keep_their_boundaries_and_bytes(agent, start):
    start("a", "for data in (b'one', b'', b'\\xff\\0\\xe9', b'x' * 65536): line.send(data)")
    exited = agent.wait("exited", process="a", code=0)
    assert packets(agent, "a") == [b"one", b"\xff\0\xe9", b"x" * PACKET]
    assert exited["dropped"] == 0
    assert agent.events.index(exited) > agent.events.index(agent.all("packet")[-1])


def test_what_is_too_long_is_dropped_and_counted(agent, start):
    start("a", "for size in (65537, 100_000, 3): line.send(b'x' * size)")
    assert agent.wait("exited", process="a", code=0)["dropped"] == 2
    assert packets(agent, "a") == [b"xxx"]


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_what_was_said_last_comes_before_the_exit(agent, start, end):
    for turn in range(5):
        name = f"a{turn}"
        start(name, f"for n in range(50): line.send(b'%d' % n)\n{end}")
        exited = agent.wait("exited", process=name)
        assert packets(agent, name) == [b"%d" % n for n in range(50)]
        assert agent.events.index(exited) > agent.events.index(
            agent.all("packet", process=name)[-1]
        )


def test_what_was_printed_before_is_within_the_size_that_is_reported(agent, start):
    start(
        "a",
        """
for n in range(20):
    os.write(1, b"%04d\\n" % n)
    line.send(b"%d" % n)
    time.sleep(0.001 * (n % 3))
""",
    )
    agent.wait("exited", process="a", code=0)
    content = agent.log("a").read_bytes()
    for number, event in enumerate(agent.all("packet")):
        assert content[: event["size"]].startswith(b"".join(b"%04d\n" % n for n in range(number)))
        assert event["size"] >= 5 * (number + 1)


FLOOD = """
line.setblocking(False)
sent = refused = 0
while sent < 20_000 and refused < 1000:
    try:
        line.send(b"%07d" % sent + b"x" * 1000)
        sent += 1
    except BlockingIOError:
        refused += 1
        time.sleep(0.0005)
print(f"sent={sent} refused={refused}", flush=True)
"""


def descriptors(pid):
    """Return what a process has open."""
    return [os.readlink(one) for one in Path(f"/proc/{pid}/fd").iterdir()]  # noqa: PTH115 - as text


def memory(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


@pytest.mark.slow
def test_a_flood_arrives_whole_and_in_order_where_it_is_read(agent, start):
    start("a", FLOOD)
    agent.wait("exited", process="a", code=0)
    sent = agent.number("a", "sent")
    assert [int(data[:7]) for data in packets(agent, "a")] == list(range(sent))
    assert sent > 1000


@pytest.mark.slow
def test_a_flood_that_nobody_reads_is_refused_by_the_kernel(agent, start):
    pid = start("a", FLOOD)
    eventually(lambda: state(pid) in ("", "Z"), "end of a worker whose reader sleeps")
    agent.wait("exited", process="a", code=0)
    assert memory(agent.pid) < 60 << 20
    sent = agent.number("a", "sent")
    assert agent.number("a", "refused") == 1000
    assert [int(data[:7]) for data in packets(agent, "a")] == list(range(sent))


@pytest.mark.slow
def test_a_stopped_agent_blocks_no_worker(agent, start):
    go, done = agent.folder / "go", agent.folder / "done"
    wait = f"while not os.path.exists({str(go)!r}): time.sleep(0.001)\n"
    start(
        "a", f"{wait}{FLOOD}open({str(done)!r}, 'w').close()\nline.setblocking(True)\nline.recv(9)"
    )
    os.kill(agent.pid, signal.SIGSTOP)
    go.touch()
    eventually(done.exists, "a worker that has given up")
    os.kill(agent.pid, signal.SIGCONT)
    assert agent.number("a", "refused") == 1000
    agent.say("end", process="a", grace=0)
    agent.wait("exited", process="a")
    sent = agent.number("a", "sent")
    assert [int(data[:7]) for data in packets(agent, "a")] == list(range(sent))


def test_a_worker_receives_packets(agent, start):
    start("a", "while (data := line.recv(1 << 20)) != b'end': line.send(data[::-1][:100])")
    agent.say("tell", cell=0, processes=["a"], data="\xe9")
    agent.say("tell", cell=0, processes=["a"], data="\udcff")
    agent.say("tell", cell=0, processes=["a"], data="x" * 100_000)
    agent.say("tell", cell=0, processes=["a"], data="end")
    agent.wait("exited", process="a", code=0)
    assert packets(agent, "a") == ["\xe9".encode()[::-1], b"\xff", b"x" * 100]


def test_a_worker_may_be_told_something_before_it_runs(agent, tmp_path):
    code = OPEN + "print(line.recv(10).decode())"
    agent.start("a", code)
    agent.say("tell", cell=0, processes=["a"], data="first")
    agent.wait("exited", process="a", code=0)
    assert agent.printed("a") == b"first\n"


def test_a_worker_that_does_not_listen_is_sent_no_more(agent, start):
    start("a", "time.sleep(1000)")
    for _ in range(1000):
        agent.say("tell", cell=0, processes=["a"], data="x" * 1000)
    refused = agent.wait("refused", command="tell", process="a")
    assert "unavailable" in refused["error"]
    agent.say("tell", cell=7, processes=["a"], data="x" * 10_000_000)
    assert agent.wait("refused", command="tell", process="a", cell=7)
    agent.until(lambda: "too long" in agent.all("refused")[-1]["error"])
    agent.say("end", process="a", grace=0)
    agent.wait("exited", process="a")
    agent.say(
        "tell", cell=0, processes=["a"], data="x"
    )  # no error: its exit may not have been heard
    agent.say("ping", n=1, until=None)
    agent.wait("pong")
    assert "too long" in agent.all("refused")[-1]["error"]


@pytest.mark.parametrize(
    "how", ["line.close()", "line.shutdown(socket.SHUT_RDWR)", "line.shutdown(socket.SHUT_WR)"]
)
def test_a_line_that_a_worker_closes_costs_nothing(agent, start, how):
    start("a", f"line.send(b'last')\n{how}\nprint('closed', flush=True)\ntime.sleep(1000)")
    agent.says("a", "closed")

    def used():
        fields = Path(f"/proc/{agent.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    agent.until(lambda: packets(agent, "a") == [b"last"])
    before = used()
    agent.hear(0.1)
    assert used() - before <= 2
    agent.say("tell", cell=0, processes=["a"], data="hello")
    agent.say("ping", n=1, until=None)
    agent.wait("pong")
    agent.say("end", process="a", grace=0)
    agent.wait("exited", process="a", signal=signal.SIGKILL, error=None)


def test_packets_survive_a_worker_that_leaves_its_own_unread(agent, start):
    start("a", "line.send(b'one'); print('up', flush=True); time.sleep(1000)")
    agent.says("a", "up")
    os.kill(agent.pid, signal.SIGSTOP)
    agent.say("tell", cell=0, processes=["a"], data="unread")
    os.kill(agent.pid, signal.SIGCONT)
    agent.say("end", process="a", grace=0)
    agent.wait("exited", process="a", error=None)
    assert packets(agent, "a") == [b"one"]


def test_descriptors_sent_over_the_line_go_nowhere(agent, start):
    before = len(descriptors(agent.pid))
    start("a", "for _ in range(20): socket.send_fds(line, [b'x'], [0, 1, 2])")
    agent.wait("exited", process="a", code=0)
    assert packets(agent, "a") == [b"x"] * 20
    eventually(lambda: len(descriptors(agent.pid)) <= before)


def test_no_other_process_inherits_a_line(agent, start):
    code = """
import subprocess
sockets = lambda: [one for one in os.listdir("/proc/self/fd") if one.isdigit() and
                   os.path.exists(f"/proc/self/fd/{one}") and
                   os.readlink(f"/proc/self/fd/{one}").startswith("socket:")]
print(f"own={len(sockets())}", flush=True)
child = "import os; print('child=' + str(sum('socket:' in os.readlink(f'/proc/self/fd/{n}') " \\
        "for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}'))))"
subprocess.run([sys.executable, "-c", child], close_fds=False)
line.recv(10)
"""
    pids = [start(name, code) for name in "abc"]
    for name in "abc":
        assert (agent.number(name, "own"), agent.number(name, "child")) == (1, 0)
    zygotes = [pid for pid in children(agent.pid) if pid not in pids]
    for pid in zygotes:  # its own socket to the agent only
        assert sum(one.startswith("socket:") for one in descriptors(pid)) == 1
    for name in "abc":
        agent.say("tell", cell=0, processes=[name], data="end")
        agent.wait("exited", process=name, code=0)


def test_a_process_that_a_worker_leaves_is_no_end_of_its_line(agent):
    agent.start(
        "a",
        OPEN
        + """
if not os.fork():
    os.setsid()
    os.close(1), os.close(2)
    line.send(b"child")
    time.sleep(1000)
line.send(b"parent")
time.sleep(0.05)
""",
    )
    agent.wait("exited", process="a", code=0, error=None)
    assert sorted(packets(agent, "a")) == [b"child", b"parent"]
