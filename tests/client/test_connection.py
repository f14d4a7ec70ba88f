"""Connections to supervisors that are there, that answer oddly, and that are not there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from processes import children, eventually, printed

import mwmagic
from mwmagic import Cluster
from mwmagic.client import starting
from mwmagic.client.connection import Connection
from mwmagic.client.starting import start_supervisor
from mwmagic.errors import ClusterError, MwmagicError, SupervisorError, SupervisorLost
from mwmagic.model.messages import Start
from mwmagic.model.options import ClusterOptions


class Pretender:
    """A supervisor that answers each line with what it is told to."""

    def __init__(self, path, *answers):
        self.path = path
        self.answers = answers
        self.heard = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        connection, _ = self.listener.accept()
        with connection, connection.makefile("rb") as lines:
            for line, answer in zip(lines, self.answers, strict=False):
                self.heard.append(json.loads(line))
                if answer is None:
                    return
                connection.sendall(answer)
            self.heard.append("end" if not lines.readline() else "more")

    def close(self):
        self.thread.join(120)
        self.listener.close()


def news(number, state="running"):
    return {"cluster": {}, "run": {"number": number, "state": state}}


def reply(number, result):
    return json.dumps({"type": "reply", "id": number, "result": result}).encode() + b"\n"


@pytest.fixture
def pretend(own_sockets):
    path = starting.socket_directory() / f"{os.getpid()}.pretender"
    made = []

    def begin(*answers):
        made.append(Pretender(path, *answers))
        return Connection(path, owner=True)

    yield begin, made
    path.unlink(missing_ok=True)
    for one in made:
        one.close()


def test_nobody_listens(tmp_path):
    with pytest.raises(SupervisorLost, match="no supervisor listens at"):
        Connection(tmp_path / "none.sock", owner=False)


def test_answers_are_news_too_as_soon_as_they_are_there(pretend):
    begin, made = pretend
    connection = begin(reply(1, news(0)), reply(2, news(7)))
    assert connection.request("snapshot") == news(7)
    assert connection.news == news(7)
    connection.close()
    made[0].thread.join(120)
    assert [line["type"] for line in made[0].heard[:2]] == ["hello", "snapshot"]
    assert made[0].heard[2] == "end"  # hung up at once, though a thread still reads


def test_an_error_is_of_the_class_that_was_raised(pretend):
    begin, _ = pretend
    refusal = {"type": "error", "id": 2, "kind": "ClusterError", "error": "no such task"}
    unknown = {"type": "error", "id": 3, "kind": "Nonsense", "error": "what"}
    connection = begin(
        reply(1, news(0)),
        json.dumps(refusal).encode() + b"\n",
        json.dumps(unknown).encode() + b"\n",
    )
    with pytest.raises(ClusterError, match="no such task"):
        connection.request("snapshot")
    with pytest.raises(SupervisorError, match="what"):
        connection.request("snapshot")
    assert not connection.lost
    connection.close()


def test_a_refused_client_hangs_up(pretend):
    begin, made = pretend
    refusal = {"type": "error", "id": 1, "kind": "SupervisorError", "error": "another version"}
    with pytest.raises(SupervisorError, match="another version"):
        begin(json.dumps(refusal).encode() + b"\n")
    made[0].thread.join(120)
    assert made[0].heard[-1] == "end"


@pytest.mark.parametrize(
    "answer", [b"garbage\n", b"[]\n", b'{"type": "reply"}\n', reply(2, {"run": None}), None]
)
def test_garbage_is_a_lost_supervisor(pretend, answer):
    begin, _ = pretend
    connection = begin(reply(1, news(0)), answer)
    with pytest.raises(SupervisorLost, match="is gone"):
        connection.request("snapshot")
    assert connection.lost
    connection.close()


def test_a_request_that_no_supervisor_takes_is_not_sent(pretend):
    begin, made = pretend
    connection = begin(reply(1, news(0)))
    with pytest.raises(MwmagicError, match="unknown message 'dance'"):
        connection.request("dance")
    connection.close()
    made[0].thread.join(120)
    assert made[0].heard == [made[0].heard[0], "end"]


def test_a_listener_that_fails_is_dropped_and_told(pretend, capfd):
    begin, _ = pretend
    connection = begin(reply(1, news(0)), reply(2, news(1)), reply(3, news(2)))
    heard = []
    connection.listen(lambda _: 1 / 0)
    stop = connection.listen(heard.append)
    connection.request("snapshot")
    connection.request("snapshot")
    eventually(lambda: heard == [news(1), news(2)], "all news")
    assert capfd.readouterr().err.count("ZeroDivisionError") == 1
    stop()
    stop()
    connection.close()


def test_waiting_ends_with_the_time_or_the_supervisor(pretend):
    begin, _ = pretend
    connection = begin(reply(1, news(3)))
    assert connection.wait(lambda news: news["run"]["number"] == 3, None)
    assert not connection.wait(lambda news: False, 0.01)
    connection.close()
    with pytest.raises(SupervisorLost):
        connection.wait(lambda news: False, None)
    assert connection.wait(lambda news: news["run"]["number"] == 3, None)


def start(tmp_path, **fields):
    return Start(ClusterOptions(name="c", directory=str(tmp_path)), **fields)


def test_a_supervisor_that_cannot_start_says_why(tmp_path, nothing_survives):
    path = starting.new_socket("c", tmp_path)
    options = ClusterOptions(directory=str(tmp_path), engine="cloud")
    with pytest.raises(ClusterError, match=r"^unknown engine 'cloud'"):
        start_supervisor(Start(options), path)
    assert not list(starting.socket_directory().iterdir())


def test_a_supervisor_that_breaks_shows_its_last_words(tmp_path, nothing_survives):
    path = starting.new_socket("c", tmp_path)
    path.with_suffix(".new").mkdir()  # where it would make its socket
    with pytest.raises(SupervisorError, match=r"(?s)did not start: .*Traceback.*OSError"):
        start_supervisor(start(tmp_path), path)
    path.with_suffix(".new").rmdir()
    assert not list(starting.socket_directory().iterdir())


def test_an_interpreter_that_does_not_start_is_reported(tmp_path, monkeypatch, nothing_survives):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    big = start(tmp_path, env={"X": "x" * 200_000})
    with pytest.raises(SupervisorError, match="did not start"):
        start_supervisor(big, starting.new_socket("c", tmp_path))


@pytest.mark.parametrize("moment", ["Popen", "_first_line", "while_starting", "_check_ready"])
def test_an_interrupted_start_leaves_nothing(tmp_path, monkeypatch, nothing_survives, moment):
    def interrupted(*_):
        raise KeyboardInterrupt

    if moment == "Popen":
        monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: interrupted())
    elif moment != "while_starting":
        monkeypatch.setattr(f"mwmagic.client.starting.{moment}", interrupted)
    while_starting = interrupted if moment == "while_starting" else None
    with pytest.raises(KeyboardInterrupt):
        start_supervisor(start(tmp_path), starting.new_socket("c", tmp_path), while_starting)
    assert not list(starting.socket_directory().iterdir())


def test_a_supervisor_whose_parent_ends_before_it_names_a_cluster_ends_too(nothing_survives):
    code = "from mwmagic.client.starting import _Newborn; print(_Newborn().process.pid)"
    pid = int(printed(code))
    eventually(lambda: not psutil.pid_exists(pid), "end of the supervisor's process")


@pytest.mark.slow
def test_a_supervisor_that_cannot_be_reached_is_ended(tmp_path, monkeypatch, nothing_survives):
    def refused(*_, **__):
        raise SupervisorLost("refused")

    monkeypatch.setattr("mwmagic.client.cluster.Connection", refused)
    before = children(os.getpid())
    with pytest.raises(SupervisorLost, match="refused"):
        Cluster(1, directory=str(tmp_path), warm=False)
    assert not list(starting.socket_directory().iterdir())
    assert children(os.getpid()) == before


@pytest.mark.slow
def test_files_named_like_standard_modules_do_no_harm(cluster, tmp_path):
    for name in ("json", "asyncio", "signal", "random", "psutil", "socket", "types", "mwmagic"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the wrong file')\n")
    assert cluster(1).run("main.py", source="print('well')").wait(120).logs(0) == b"well\n"


@pytest.mark.slow
def test_a_package_that_only_its_owner_finds(tmp_path, nothing_survives):
    """The supervisor and the workers find this package where the owner found it."""
    code = """
import sys
sys.path.insert(0, sys.argv[1])
from mwmagic import Cluster
with Cluster(1, warm=False) as cluster:
    print(cluster.run("main.py", source="import sys; print(len(sys.argv))").wait(120).logs(0))
"""
    root = str(Path(mwmagic.__file__).parents[1])
    blank = [sys.executable, "-c", code, root]
    done = subprocess.run(blank, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "b'1\\n'\n", done.stderr


@pytest.mark.slow
def test_a_cluster_is_used_by_many_threads(cluster):
    one = cluster(1)
    run = one.run("main.py", source="import time; time.sleep(600)")
    answers = []
    asks = [
        threading.Thread(target=lambda: answers.append(one._connection.request("snapshot")))
        for _ in range(20)
    ]
    for thread in asks:
        thread.start()
    for thread in asks:
        thread.join()
    assert {answer["run"]["number"] for answer in answers} == {run.number}
    assert isinstance(one, Cluster)


@pytest.mark.slow
def test_a_default_timeout_of_sockets_does_not_lose_the_supervisor(own_sockets, tmp_path):
    socket.setdefaulttimeout(0.01)
    try:
        with Cluster(1, directory=tmp_path, warm=False) as cluster:
            run = cluster.run("main.py", source="import time; time.sleep(0.5)", cwd=tmp_path)
            assert run.wait(120).state == "finished"
    finally:
        socket.setdefaulttimeout(None)
