"""Runs go on though a parser of what their workers print fails."""

from __future__ import annotations

import json

import pytest
from processes import eventually

from mwmagic.agent.wire import LOG_LOST
from mwmagic.logs import Guard
from mwmagic.logs.progress import Progress
from mwmagic.logs.terminal import Terminal
from mwmagic.model.cluster import Task
from mwmagic.model.messages import Launch
from mwmagic.record import TaskPaths
from mwmagic.supervisor.process import TaskProcess
from mwmagic.supervisor.program import TaskProgram
from mwmagic.words.run import remarks

FAULTY = """
import mwmagic.logs.{0} as module
original = module.{1}.{2}

def faulty(*args):
    if "bad" in str(args):
        raise ValueError("a parser's fault \\ud800")
    return original(*args)

module.{1}.{2} = faulty
"""


@pytest.fixture
def faults():
    return []


@pytest.fixture
def process(tmp_path, faults):
    paths = TaskPaths(tmp_path / "attempt-1/worker-0.log")
    program = TaskProgram(Launch("main.py"), tmp_path / "main.py")
    return TaskProcess(Task("worker", 0), 1, program, paths, Guard(faults.append))


def printed(process, data):
    text = data.decode("utf-8", "surrogateescape")
    return process.output.feed({"offset": process.output.size, "data": text})


def exited(process, **event):
    given = {
        "code": 1,
        "signal": None,
        "time": 2.0,
        "size": 0,
        "oom": None,
        "error": None,
        "errno": None,
    }
    return process.exited({**given, "reason": None, "report": None, **event})


NOTICE = b"2026-11-27 10:00:00.000001: I external/xla/cpu_client.cc:12] ready\n"


@pytest.mark.parametrize("lost", ["nothing", "between", "end", "unwritten", "cut"])
def test_nothing_is_concluded_from_a_log_that_is_not_whole(process, lost):
    process.logs_start = True
    printed(process, NOTICE * 3)
    assert process.seen().verbose
    if lost == "between":
        process.output.feed({"offset": process.output.size + 5, "data": "later\n"})
    if lost == "unwritten":
        process.unwritten({"size": 0, "path": "/dev/shm/x", "error": "No space left on device"})
    reason = LOG_LOST if lost == "cut" else None
    exited(process, code=0, size=process.output.size + 5 * (lost == "end"), reason=reason)
    assert process.seen().verbose is (lost == "nothing")


def test_output_is_decoded_however_it_is_cut(process, faults):
    data = "é loss: 1 €\n".encode() + b"\xff\n"
    for index in range(len(data)):
        printed(process, data[index : index + 1])
    assert process.output.size == len(data)
    assert process.seen().log == "é loss: 1 €\n\N{REPLACEMENT CHARACTER}"
    assert faults == []


def test_a_line_that_a_parser_fails_at_is_lost_to_it_alone(process, faults, monkeypatch):
    line = Progress.line

    def faulty(self, text, first=""):
        if "bad" in text:
            raise KeyError(text)
        return line(self, text, first)

    monkeypatch.setattr(Progress, "line", faulty)
    printed(process, b"epoch 1 loss: 3\n")
    [update] = printed(process, b"bad\nepoch 2 loss: 2\nbad\n")
    assert (update.epoch, update.metrics) == (2, {"loss": 2.0})
    assert [fault.parser for fault in faults if fault.parser == "progress"] == ["progress"]
    assert process.seen().log.splitlines()[-1] == "bad"


def test_a_terminal_that_fails_is_replaced(process, faults, monkeypatch):
    write = Terminal.write
    monkeypatch.setattr(Terminal, "write", lambda self, text: write(self, text)[9])
    printed(process, b"lost\n")
    monkeypatch.setattr(Terminal, "write", write)
    printed(process, b"kept\n")
    assert process.seen().log == "kept"
    assert [fault.parser for fault in faults] == ["terminal"]


@pytest.mark.parametrize(
    "report",
    [
        {"type": "E", "message": "lone \ud800", "time": 1.0, "where": {"file": "\udcff"}},
        {"type": "E", "message": "x", "time": None, "where": "main.py"},
        {"type": 3, "message": ["x"], "time": "soon", "where": {"line": "x"}},
        {"time": float("nan")},
        {},
    ],
)
def test_a_report_is_used_as_far_as_it_can_be(process, report):
    end = exited(process, report=report, error="lone \ud800")
    assert end.moment in (1.0, 2.0)
    assert json.dumps(end.report, ensure_ascii=False).encode()
    assert end.detail.encode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "parser", ["terminal Terminal write", "progress Progress line", "progress Phases feed"]
)
def test_a_run_goes_on_and_its_owner_is_told(cluster, tmp_path, monkeypatch, parser):
    (tmp_path / "site").mkdir()
    code = FAULTY.format(*parser.split())
    (tmp_path / "site/sitecustomize.py").write_text(guarded(code))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=":")
    one = cluster(2)
    going = tmp_path / "go"
    waits = f"while not os.path.exists({str(going)!r}): time.sleep(0.01)"
    source = f"import os, time\nprint('bad', flush=True)\n{waits}\nprint('epoch 1 loss: 0.5')"
    run = one.run("main.py", source=source)
    eventually(lambda: len(run.record.events("fault")) == 1)  # both tasks have the same
    eventually(lambda: run.logs(0) == run.logs(1) == b"bad\n")
    going.touch()
    assert run.wait(120).state == "finished"
    events = run.record.events("fault")
    assert len({event["parser"] for event in events}) == len(events)
    assert all("a parser's fault" in event["error"] for event in events)
    assert run.record.info["faults"]
    assert any("a parser's fault" in line for line in remarks(run.status()))
    assert run.logs(0) == b"bad\nepoch 1 loss: 0.5\n"
    assert {entry["metrics"]["loss"] for entry in run.record.metrics()} == {0.5}


def guarded(code):
    """Return code that runs in supervisors alone."""
    here = "any('mwmagic.supervisor' in word for word in sys.orig_argv)"
    return f"import sys\nif {here}:\n    exec({code!r})\n"
