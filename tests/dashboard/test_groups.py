"""Tasks on several hosts, as each display shows them."""

from __future__ import annotations

import json
import time
from copy import copy
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace

import pytest
from processes import eventually
from rich.console import Console

from mwmagic.dashboard import board
from mwmagic.dashboard import feed as module
from mwmagic.dashboard.feed import Cursor, Feed, Opened
from mwmagic.dashboard.rows import (
    MOST_RAISED_TASKS,
    MOST_UNFOLDED_TASKS,
    EqualMetrics,
    View,
    grouped,
    header,
    host_row,
    row,
)
from mwmagic.dashboard.static import DISTINCT_CURVES, page, text
from mwmagic.dashboard.terminal import table
from mwmagic.experiments.series import Key, Point
from mwmagic.model.findings import Cause, Finding, Stall, Symptom
from mwmagic.model.machine import HostStatus
from mwmagic.model.status import Reached, RunState, RunStatus, TaskState, TaskStatus

NOT_A_TAG = "<b onload=alert(1)>"
FAILED = TaskStatus(TaskState.ENDED, finding=Finding(Symptom.EXITED, code=1))
GB = 2**30


def reached(step):
    return Reached("train", 1, 2, step, 100, {"loss": 0.5}, 1.0)


def training(step=7):
    return TaskStatus(TaskState.RUNNING, phase="training", progress=reached(step), cpu=1.0)


def run(hosts, each, **fields):
    """Return a run whose tasks train on so many hosts."""
    names = [f"worker:{index}" for index in range(hosts * each)]
    shares = [tuple(names[each * host : each * (host + 1)]) for host in range(hosts)]
    gpus = {"NVIDIA H100": 8}
    seen = {"processors": 64, "load": 3.21, "memory": 256 * GB, "used": 12.1 * GB, "gpus": gpus}
    there = tuple(HostStatus(f"node-{at}", share, **seen) for at, share in enumerate(shares))
    known = {"number": 1, "state": RunState.RUNNING, "hosts": there}
    return RunStatus(**{**known, "tasks": {name: training() for name in names}, **fields})


def failing(status, *names):
    return replace(status, tasks={**status.tasks, **dict.fromkeys(names, FAILED)})


def losing(status, at=1, why="node failure"):
    hosts = list(status.hosts)
    hosts[at] = replace(hosts[at], lost=True, why=why)
    lost = replace(FAILED, finding=Finding(Symptom.HOST_LOST, host=hosts[at].name))
    tasks = {**status.tasks, **dict.fromkeys(hosts[at].tasks, lost)}
    return replace(status, hosts=tuple(hosts), tasks=tasks)


def drawn(status, width=150):
    console = Console(file=StringIO(), width=width)
    console.print(table(status))
    return console.file.getvalue()


FEW, MANY = run(2, 2), run(125, 8)


def test_few_tasks_are_all_shown_below_their_hosts():
    assert text(FEW).splitlines()[1:] == [
        "  node-0  2 tasks training  epoch 1/2 · step 7/100",
        "    worker:0  training  epoch 1/2 step 7/100  loss 0.5",
        "    worker:1  training  epoch 1/2 step 7/100  loss 0.5",
        "  node-1  2 tasks training  epoch 1/2 · step 7/100",
        "    worker:2  training  epoch 1/2 step 7/100  loss 0.5",
        "    worker:3  training  epoch 1/2 step 7/100  loss 0.5",
    ]
    told = header(View(FEW))
    assert told["hosts"] == [["node-0", [0, 1]], ["node-1", [2, 3]]]
    assert not told["folded"]


def test_each_display_tells_what_a_host_has_and_uses():
    usage = "load 3.2 of 64 · 12.1 of 256.0 GB · 8 NVIDIA H100"
    assert usage in page(FEW)
    assert usage in drawn(FEW)
    assert host_row(grouped(FEW)[0])["usage"] == usage


def test_many_tasks_are_a_line_for_each_host():
    assert len(text(MANY).splitlines()) == 1 + 125
    assert page(MANY).count("<tr>") == 125
    assert drawn(MANY).count("node-") == 125
    assert header(View(MANY))["folded"]
    assert (header(View(MANY))["size"], header(View(run(2, 8)))["size"]) == ("rows", "cards")
    assert MOST_UNFOLDED_TASKS == 16


@pytest.mark.parametrize("show", [text, page, drawn])
def test_a_task_that_failed_is_shown_on_a_folded_host(show):
    shown = show(failing(MANY, "worker:9"))
    assert "8 tasks: 7 training, 1 failed" in shown
    assert "exited with code 1" in shown
    assert "worker:9" in shown
    assert "worker:8" not in shown


def test_no_more_than_some_tasks_are_shown_the_culprit_first():
    status = failing(MANY, *(f"worker:{index}" for index in range(20, 60)))
    cause = Cause(Finding(Symptom.EXITED, "worker:59", code=1))
    stall = Stall(60.0, "worker:3")
    raised = [
        name
        for group in grouped(replace(status, cause=cause, stall=stall))
        for name in group.raised
    ]
    assert len(raised) == MOST_RAISED_TASKS
    assert {"worker:59", "worker:3", "worker:20"} <= {*raised}


@pytest.mark.parametrize("show", [text, page, drawn])
def test_a_lost_host_is_one_line_and_not_its_tasks(show):
    shown = show(losing(MANY))
    assert "lost with 8 tasks: node failure" in shown
    assert "worker:8" not in shown


def test_a_lost_host_comes_first_in_a_terminal():
    lines = drawn(losing(MANY)).splitlines()
    assert lines[1].startswith("node-1 ")


def test_one_machine_is_not_named():
    alone = replace(FEW, hosts=())
    assert "node" not in text(alone) + page(alone) + drawn(alone)
    assert header(View(alone))["hosts"] == []


def test_hosts_of_a_damaged_record_hide_no_task():
    for tasks in ((), ("worker:9",), ("worker:0", "worker:0")):
        damaged = replace(FEW, hosts=(FEW.hosts[0], HostStatus("x", tasks)))
        assert grouped(damaged) == []
        assert text(damaged) == text(replace(FEW, hosts=()))


def test_names_from_a_scheduler_are_no_markup_and_no_codes_for_a_terminal():
    odd = replace(FEW.hosts[0], name=NOT_A_TAG, lost=True, why="\x1b[2J" + NOT_A_TAG)
    status = replace(FEW, hosts=(odd, FEW.hosts[1]))
    assert NOT_A_TAG not in page(status)
    assert "\x1b" not in drawn(status)


def test_a_legend_names_what_it_can_tell_apart():
    points = [Point(at, Key(name, 1, "loss"), 1.0, 0.5) for at, name in enumerate(MANY.tasks)]
    whole = replace(MANY, hosts=())
    assert len(page(whole, points)) - len(page(MANY, points)) > 80 * (1000 - DISTINCT_CURVES)


class Watch:
    """A page of a feed: what it is sent, and what it knows by then."""

    def __init__(self, status):
        self.feed = Feed(View(status))
        self.at = Cursor()
        self.rows, self.hosts, self.header = {}, {}, {}

    def take(self, status=None):
        """Return the size of the next packet."""
        if status is not None:
            self.feed.update(View(status))
        found = self.feed.packet(self.at, 10_000)
        if found is None:
            return 0
        message, self.at = found
        self.header |= message.get("header", {})
        for name in ("rows", "hosts"):
            for index, changed in message.get(name, {}).items():
                getattr(self, name).setdefault(index, {}).update(changed)
        return len(json.dumps(message))

    def shown(self):
        return {index for index, row in self.rows.items() if "state" in row}


def steps(status, step):
    tasks = {name: replace(task, progress=reached(step)) for name, task in status.tasks.items()}
    return replace(status, tasks=tasks)


@pytest.fixture
def unpaced(monkeypatch):
    monkeypatch.setattr(module, "MOVING_SECONDS", 0.0)
    monkeypatch.setattr(module, "SUMMARY_SECONDS", 0.0)


@pytest.mark.usefixtures("unpaced")
def test_a_page_gets_the_rows_of_what_it_opened():
    page = Watch(failing(MANY, "worker:17"))
    page.take()
    assert page.shown() == {17}
    page.feed.show(Opened(frozenset({1, 999}), frozenset({500, 10**9})))
    page.take(failing(MANY, "worker:17"))
    assert page.shown() == {*range(8, 16), 17, 500}
    page.feed.show(Opened(frozenset(), frozenset()))
    page.take(steps(MANY, 8))
    assert "step 8/" not in page.rows[8]["progress"]
    page.feed.show(Opened(frozenset({1}), frozenset()))
    page.take(steps(MANY, 8))
    assert "step 8/" in page.rows[8]["progress"]


@pytest.mark.usefixtures("unpaced")
def test_replaced_hosts_are_reported_again():
    page = Watch(FEW)
    page.take()
    before = page.hosts
    page.hosts = {}
    moved = (FEW.hosts[0], replace(FEW.hosts[1], name="node-7"))
    page.take(replace(FEW, hosts=moved))
    assert page.header["hosts"][1][0] == "node-7"
    assert page.hosts == before


@pytest.mark.usefixtures("unpaced")
def test_a_thousand_tasks_are_sent_by_host():
    page = Watch(MANY)
    first = page.take()
    then = page.take(steps(MANY, 8))
    ungrouped = Watch(replace(MANY, hosts=()))
    all_first, all_then = ungrouped.take(), ungrouped.take(steps(replace(MANY, hosts=()), 8))
    print(f"first {first} of {all_first} bytes, then {then} of {all_then}")
    assert first < all_first / 4
    assert then < all_then / 8
    assert page.take(steps(MANY, 8)) == 0


def test_summaries_wait_for_their_time_unless_a_task_fails(monkeypatch):
    monkeypatch.setattr(module, "MOVING_SECONDS", 0.0)
    page = Watch(MANY)
    page.take()
    assert page.take(steps(MANY, 8)) == 0
    assert page.take(failing(steps(MANY, 8), "worker:17")) > 0
    assert page.hosts[2]["state"] == "8 tasks: 7 training, 1 failed"
    assert "step 8/" not in page.hosts[1]["progress"]


class Silent:
    """A widget without a page: what it is sent, and how a page's messages arrive."""

    hosted, watched, loaded, label = True, True, 0.0, "mw-x"

    def __init__(self):
        self.packets, self.state = [], {}

    def on_msg(self, hear):
        self.hear = hear

    def send(self, message):
        self.packets.append(message)


def test_a_board_sends_each_page_what_it_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(board, "display", lambda *_, **__: None)
    monkeypatch.setattr(board, "listen", lambda *_: lambda: None)
    status, widget = replace(MANY, directory=str(tmp_path)), Silent()
    cluster = SimpleNamespace(options=SimpleNamespace(detach=True))
    run = SimpleNamespace(number=1, cluster=cluster, status=lambda: status)
    shown = board.Board(run, widget)

    def say(page, **looks):
        at = {"kind": "at", "page": page, "run": 1, "at": [0, 0, 0], "question": 0}
        widget.hear(widget, {**at, **looks}, [])

    def sent():
        rows = (packet.get("rows", {}) for packet in widget.packets)
        return {index for each in rows for index, row in each.items() if "state" in row}

    try:
        say("one", hosts=[1], tasks=[])
        say("two", hosts=[], tasks=[500])
        eventually(lambda: sent() == {*range(8, 16), 500}, "the rows that are looked at")
    finally:
        monkeypatch.setattr(shown, "_leave", lambda _: None)
        widget.close = lambda: None
        shown.close()


def test_a_job_and_its_time_left_are_reported():
    def told(seconds, job="7"):
        until = None if seconds is None else time.time() + seconds
        host = HostStatus("a", ("worker:0",), job=job, until=until)
        return host_row(grouped(replace(FEW, hosts=(host, HostStatus("b", rest))))[0])["usage"]

    rest = ("worker:1", "worker:2", "worker:3")
    assert told(None) == "job 7"
    assert told(None, "") == ""
    assert told(2 * 3600 + 301) == "job 7, 2 h 5 min left"
    assert told(1e300, "").endswith(" min left")
    assert told(-5) == "job 7, 0:00 left"


def synchronous(steps, losses):
    metrics = [{"loss": loss, "acc": 0.1 * index} for index, loss in enumerate(losses)]
    return {
        f"worker:{index}": TaskStatus(
            TaskState.RUNNING, progress=Reached("train", 1, 2, step, 100, values)
        )
        for index, (step, values) in enumerate(zip(steps, metrics, strict=True))
    }


def shared(tmp_path, steps, losses, compared=None, state=RunState.RUNNING):
    """Return what stands above the cards, and what the first card has besides."""
    compared = compared or EqualMetrics()
    run = RunStatus(1, str(tmp_path), state=state, tasks=synchronous(steps, losses))
    compared.update(run)
    words = header(View(run), compared)["shared"]
    task = run.tasks["worker:0"]
    return words.split(), row(task, shared=compared.names)["metrics"].split()


def test_what_is_equal_on_all_tasks_is_shown_once(tmp_path):
    compared = EqualMetrics()
    assert shared(tmp_path, [8] * 16, [0.5] * 16, compared) == (
        ["[0-15]", "loss", "0.5"],
        ["acc", "0"],
    )
    at_once = shared(tmp_path, [9, *[8] * 15], [0.4, *[0.5] * 15], compared)[0]
    assert at_once == ["[0-15]", "loss", "0.4"], "some are a step behind"
    ended = shared(tmp_path, [9, *[8] * 15], [0.4, *[0.5] * 15], copy(compared), RunState.FAILED)
    assert ended[0] == [], "they stay a step behind"
    final = shared(tmp_path, [9] * 16, [0.3, *[0.4] * 15], compared)[0]
    assert final == ["[0-15]", "loss", "0.3"], "some have not reported the mean yet"
    assert shared(tmp_path, [9] * 16, [0.3, *[0.4] * 15], compared)[0] == []
    assert shared(tmp_path, [8] * 16, [0.1 * index for index in range(16)])[0] == []
    assert shared(tmp_path, [*range(16)], [0.5] * 16)[0] == [], "never at the same step"
    assert shared(tmp_path, [8] * 2, [0.5] * 2)[0] == [], "rows have room for all"
