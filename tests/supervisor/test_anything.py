"""Nothing that a worker prints or reports makes a parser raise."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from fakes import FakeEngine, FakeMachine
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mwmagic.diagnosis import Exit, diagnose, kind, remarks
from mwmagic.diagnosis.observation import parse
from mwmagic.engines.channel import Channel
from mwmagic.logs import Guard, loops, tracebacks
from mwmagic.logs.lines import Lines
from mwmagic.logs.noise import Noise
from mwmagic.logs.progress import Drafts, Phases, Progress
from mwmagic.logs.terminal import Terminal
from mwmagic.model.cluster import Task
from mwmagic.model.findings import Cause
from mwmagic.model.messages import Launch
from mwmagic.model.status import RunStatus
from mwmagic.model.values import finite
from mwmagic.record import TaskPaths
from mwmagic.supervisor.process import TaskOutput, TaskProcess
from mwmagic.supervisor.program import TaskProgram

PIECES = [
    b"Traceback (most recent call last):\n",
    b'  File "main.py", line 3, in <module>\n',
    b'  File "main.py", line 99999999999999999999, in f\n',
    b"ValueError: no\n",
    b"ExceptionGroup: two (2 sub-exceptions)\n  +-+---------------- 1 ----------------\n",
    b"in user code:\n",
    b"Fatal Python error: Aborted\n\nCurrent thread 0x00007f (most recent call first):\n",
    b"Epoch 1/3\n",
    b"\r 3/10 \xe2\x94\x81\xe2\x94\x81 1s 64ms/step - loss: nan - accuracy: 1e999",
    b"epoch 12 step 999999999999999999 loss: 1e-400\n",
    b" 40%|####      | 4/10 [00:01<00:02,  2.5it/s, loss=nan]\r",
    b"I0000 00:00:1795230874.609583    6545 port.cc:153] Waiting for 3/4 tasks to connect.\n",
    b'unshardable source dataset: \nattr {\n  key: "x"\n',
    b"(PerReplica:{\n  0: <tf.Tensor: shape=(",
    b"\x1b[31m\x1b]0;title\x07\x1b[99999999C\x1b[2K\x08\x08\r",
    b"\xff\xfe\xed\xa0\x80\xf0\x9f",
    b"\n",
]
DATA = st.lists(st.binary(max_size=40) | st.sampled_from(PIECES), max_size=20)
TEXT = st.text(st.characters(categories=("Cs", "L", "P", "Zs")), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
REPORT = st.none() | st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("type", "message", "time", "where", "frames"), VALUES)
    | {"where": VALUES | st.fixed_dictionaries({}, optional={"file": VALUES, "line": VALUES})},
)
THOROUGH = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def raised(fault):
    pytest.fail(str(fault))


@THOROUGH
@given(DATA)
def test_parsers_of_bytes(pieces):
    for parser in (Terminal(), Terminal(ansi=True), Lines(Guard(raised))):
        for data in pieces:
            parser.feed(data)
    drafts, progress = Drafts(), Progress()
    for data in pieces:
        text = data.decode("utf-8", "surrogateescape")
        drafts.write(text)
        progress.write(text, Guard(raised))
    terminal, noise, phases = Terminal(), Noise(), Phases()
    lines = [line for data in pieces for line in terminal.feed(data)] + terminal.close()
    for line in lines:
        noise.hides(line)
        phases.feed(line)
        loops.printed_metrics(line)


@THOROUGH
@given(DATA)
def test_parsers_of_whole_texts(pieces):
    text = b"".join(pieces).decode("utf-8", "replace")
    found = tracebacks.find(text, "/home/me/main.py")
    assert found is None or isinstance(found.title, str)
    assert parse(text).text == text


@THOROUGH
@given(DATA, REPORT, st.integers(-1, 300), TEXT)
def test_all_that_a_process_leaves(tmp_path, pieces, report, code, error):
    paths = TaskPaths(tmp_path / "attempt-1/worker-0.log")
    program = TaskProgram(Launch("/home/me/main.py"), tmp_path / "main.py")
    process = TaskProcess(Task("worker", 0), 1, program, paths, Guard(raised))
    for data in pieces:
        text = data.decode("utf-8", "surrogateescape")
        process.output.feed({"offset": process.output.size, "data": text})
    assert process.output.size == sum(map(len, pieces))
    event = {
        "code": code,
        "signal": None,
        "time": 1.0,
        "size": 0,
        "oom": None,
        "reason": None,
        "errno": None,
    }
    end = process.exited({**event, "error": error, "report": report})
    assert isinstance(end, Exit)
    kind(end)
    remarks([process.seen()])
    cause = diagnose([end])
    status = process.status("10.0.0.1:1", importing=None)
    for one in (cause, status):
        if one is not None:
            text = json.dumps(one.as_json(), ensure_ascii=False, allow_nan=False)
            assert text.encode()
    if cause is not None:
        assert Cause.from_json(json.loads(json.dumps(cause.as_json()))) == cause


@THOROUGH
@given(TEXT | VALUES.map(json.dumps))
def test_reports_beside_the_log(data):
    TaskOutput(Guard(raised)).on_packet(data)


async def heard(report):
    """Return an exit with this report as it is heard of a machine with another clock."""
    machine = FakeMachine("far", clock=5000.0)
    channel = await Channel.open(FakeEngine([machine]).host(machine))
    events = asyncio.Queue()
    channel.listener = events.put_nowait
    channel.lost = lambda: events.put_nowait(None)
    (agent,) = machine.agents
    fields = dict.fromkeys(("code", "signal", "oom", "reason", "error", "errno"))
    rest = {"size": 0, "usage": {}, "dropped": 0, "report": report}
    agent.emit("exited", process="p", time=machine.time, wall=0.0, **fields, **rest)
    event = await events.get()
    await channel.close()
    return event


@THOROUGH
@given(REPORT)
@example({"time": "soon"})
@example({"time": 10**400})
def test_reports_from_a_machine_with_another_clock(report):
    event = asyncio.run(heard(finite(report)))
    assert event is not None, "the agent was ended"
    assert event["time"] < time.monotonic() + 1


@THOROUGH
@given(VALUES)
def test_statuses_and_causes_of_any_version(values):
    RunStatus.from_json(values)
    Cause.from_json(values)
