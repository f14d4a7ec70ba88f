"""The supervisor's socket, spoken to by hand."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
from contextlib import closing
from pathlib import Path

import pytest
from processes import eventually

from mwmagic.model.messages import REPLIES, REQUESTS, VERSION, Launch, Start, check, encode
from mwmagic.model.options import ClusterOptions
from mwmagic.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.slow


class Wire:
    """A client that says what no client of ours would."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(30)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("rb")

    def write(self, data):
        self.socket.sendall(data)

    def say(self, kind, **fields):
        self.write(encode({"type": kind, **fields}))

    def hear(self):
        """Return the next message that is no news, or None at the end."""
        for line in self.lines:
            message = check(json.loads(line), REPLIES)
            if message["type"] != "snapshot":
                return message
        return None

    def ask(self, kind, **fields):
        self.say(kind, **fields)
        return self.hear()

    def greet(self):
        return self.ask("hello", id=1, version=VERSION, owner=False)

    def close(self):
        self.lines.close()
        self.socket.close()


@pytest.fixture
def one(cluster):
    return cluster(1)


@pytest.fixture
def wire(one):
    with closing(Wire(one._connection.path)) as wire:
        yield wire


def test_only_its_user_can_reach_the_socket(one):
    path = one._connection.path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    beside = sorted(path.parent.glob(f"{path.stem}.*"))
    assert [other.suffix for other in beside] == [".log", ".sock"]
    assert path.with_suffix(".log").read_text() == ""


def test_a_client_of_another_version_is_told_what_to_do(wire, one):
    answer = wire.ask("hello", id=7, version=VERSION + 1, owner=False)
    assert (answer["type"], answer["id"]) == ("error", 7)
    assert f"speaks version {VERSION}, not {VERSION + 1}" in answer["error"]
    assert f"kill {one._process.pid}" in answer["error"]
    assert wire.ask("snapshot", id=8)["error"] == "the first request of a connection must be hello"
    assert wire.greet()["type"] == "reply"


def test_nothing_is_done_for_a_client_that_does_not_greet(wire, one):
    assert "must be hello" in wire.ask("close", id=1)["error"]
    assert not one.closed


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"\n", "not a message"),
        (b"hello\n", "not a message"),
        (b"[1]\n", "not a message"),
        (b'{"type": 3}\n', "not a message"),
        (b'{"type": "nothing", "id": 5}\n', "unknown message 'nothing'"),
        (b'{"type": "signal", "id": 5}\n', "lacks 'task'"),
        (b'{"type": "signal", "id": 5, "task": "worker:0", "signal": "x"}\n', "has signal"),
        (b'{"type": "snapshot", "id": "five"}\n', "has id = 'five'"),
        (b'{"type": "snapshot", "id": null}\n', "has id = None"),
        (b'{"type": "snapshot"}\n', "lacks 'id'"),
        (b"\xff\xfe\x00\n", "not a message"),
        (b"[" * 100_000 + b"\n", "the supervisor failed|not a message"),
    ],
)
def test_lines_that_are_no_messages_are_refused_and_the_next_ones_heard(wire, one, line, error):
    wire.greet()
    wire.write(line)
    answer = wire.hear()
    assert answer["type"] == "error"
    assert any(part in answer["error"] for part in error.split("|"))
    assert wire.ask("snapshot", id=9)["id"] == 9
    assert one.run("main.py", source="").wait(120).state == "finished"


def test_a_client_that_leaves_within_a_line_harms_no_other(wire, one):
    wire.greet()
    wire.write(b'{"type": "clo')
    wire.close()
    assert one.run("main.py", source="").wait(120).state == "finished"


def test_a_mistake_in_a_request_does_not_end_the_cluster(wire, one):
    wire.greet()
    launch = {"tasks": [], "source": "", "draft": "", "options": {}}
    launch |= Launch("a.py", cwd="/").as_json()
    answer = wire.ask("launch", id=2, **{**launch, "options": {"nonsense": 1}})
    assert answer["kind"] == "ClusterError"
    assert "nonsense" in answer["error"]
    answer = wire.ask("launch", id=3, **{**launch, "source": "\ud800"})
    assert answer["kind"] == "ClusterError"
    assert (
        "line 1 of the text has a lone surrogate ('\\ud800'), half of a character that"
        in answer["error"]
    )
    assert one.latest is None
    assert one.run("main.py", source="").wait(120).state == "finished"


def test_requests_are_answered_in_order(wire):
    wire.greet()
    wire.write(b"".join(encode({"type": "snapshot", "id": number}) for number in range(50)))
    assert [wire.hear()["id"] for _ in range(50)] == list(range(50))


def test_a_client_that_does_not_read_delays_no_other_and_gets_the_last_news(wire, one):
    wire.greet()
    ask = encode({"type": "snapshot", "id": 2}) * 100
    for _ in range(40):  # more answers than a socket and the supervisor's patience hold
        wire.write(ask)
    run = one.run("main.py", source="print('well')").wait(120)
    assert run.logs(0) == b"well\n"
    last = None
    for line in wire.lines:
        message = json.loads(line)
        last = message["run"] if message["type"] == "snapshot" else message["result"]["run"]
        if last and last["state"] == "finished":
            break
    assert last["number"] == run.number


def test_clients_come_and_go(one):
    for _ in range(30):
        with closing(Wire(one._connection.path)) as wire:
            assert wire.greet()["result"]["cluster"]["pid"] == one._process.pid
    descriptors = Path(f"/proc/{one._process.pid}/fd")
    eventually(lambda: len(list(descriptors.iterdir())) < 30)
    assert one.run("main.py", source="").wait(120).state == "finished"


LAUNCH = {"tasks": [], "source": "import time; time.sleep(600)", "draft": ""}
LAUNCH |= Launch("a.py", cwd="/").as_json()
SAID = {
    "hello": {"version": VERSION, "owner": False},
    "launch": {**LAUNCH, "options": {}},
    "stop": {"task": None, "grace": 0.0},
    "signal": {"task": "worker:0", "signal": 0},
    "fetch": {"key": "k", "task": "worker:0", "path": "a", "to": None, "overwrite": False},
    "forget": {"key": "k"},
    "cell": {"tasks": [], "name": "In [1]", "source": "1"},
    "look": {"tasks": [], "wanted": "names", "text": "a"},
    "carry": {"tasks": [], "path": "/nowhere", "back": False},
    "interrupt": {"cell": 1},
    "reply": {"task": "worker:0", "text": "a"},
    "update": {"options": {"grace": 0.0}},
}
"""What is asked besides the ``id``."""


def test_what_the_supervisor_says_is_what_the_table_says(wire):
    for number, kind in enumerate(REQUESTS):
        answer = wire.ask(kind, id=number, **SAID.get(kind, {}))
        assert answer["id"] == number
        if answer["type"] == "reply":
            check({"type": "snapshot", **answer["result"]}, REPLIES)
        else:
            refused = ("restart", "signal", "stacks", "cell", "look", "carry", "interrupt", "reply")
            assert kind in refused, answer


def test_the_supervisor_answers_every_request_there_is(tmp_path):
    async def known():
        start = Start(ClusterOptions(directory=str(tmp_path)))
        return set(Supervisor(start, tmp_path / "s")._requests)

    assert asyncio.run(known()) == set(REQUESTS)
