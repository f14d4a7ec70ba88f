"""Tasks on several hosts, in a page without a kernel: what a feed says of made-up runs."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from contrast import faint
from lab import watched
from plain import COLOURS, DARK, LIGHT, Host

from mwmagic.dashboard.board import Widget
from mwmagic.dashboard.feed import Cursor, Feed, Opened
from mwmagic.dashboard.rows import View
from mwmagic.model.findings import Cause, Finding, Symptom
from mwmagic.model.machine import HostStatus
from mwmagic.model.status import Reached, RunState, RunStatus, TaskState, TaskStatus

pytestmark = [pytest.mark.slow, pytest.mark.browser]

GB = 2**30
OUTSIDE = """board => {
    const { right } = board.getBoundingClientRect();
    const shown = [...board.querySelectorAll("*")].filter((node) => node.checkVisibility());
    return shown.filter((node) => node.getBoundingClientRect().right > right + 1)
        .map((node) => node.outerHTML.slice(0, 200));
}"""
LEFTS = "nodes => [...new Set(nodes.map((node) => Math.round(node.getBoundingClientRect().left)))]"
FAILED = TaskStatus(
    TaskState.ENDED, finding=Finding(Symptom.EXITED, "worker:17", code=1), address="10.0.0.2:20001"
)


def run(hosts, each):
    """Return a run on so many hosts, with all that can be known of them."""
    names = [f"worker:{index}" for index in range(hosts * each)]
    tasks = {name: training(index) for index, name in enumerate(names)}
    there = tuple(
        HostStatus(
            f"gpu-a-{at:03}.cluster",
            tuple(names[each * at : each * (at + 1)]),
            processors=64,
            load=3.2 + at,
            memory=251 * GB,
            used=(12 + at) * GB,
            gpus={"NVIDIA H100 80GB HBM3": 8},
            job="123456",
            until=time.time() + 18_000,
        )
        for at in range(hosts)
    )
    known = {"number": 7, "script": "main.py", "state": RunState.RUNNING, "attempt": 1}
    return RunStatus(**known, tasks=tasks, hosts=there)


def training(index):
    values = {"loss": 0.5, "accuracy": 0.75}
    progress = Reached("train", 1, 2, 40 + index % 8, 100, values, 0.5)
    address = f"10.0.0.{index // 8}:20000"
    return TaskStatus(
        TaskState.RUNNING, address, 4000 + index, phase="training", progress=progress, memory=GB
    )


class Kernel:
    """What a page talks to: a feed of a run that the test makes up."""

    def __init__(self, status):
        self.feed = Feed(View(status))
        self.opened = {"_esm": Widget._esm, "_css": Widget._css, "label": "mw-x"}
        self.states = [self.feed.saved]
        self.pages, self.heard = [], {}

    def message(self, content):
        self.heard |= content if content["kind"] == "at" else {}

    def tell(self, status):
        """Send what is new."""
        opened = (frozenset(self.heard.get(name, ())) for name in ("hosts", "tasks"))
        self.feed.show(Opened(*opened))
        self.feed.update(View(status))
        message, _ = self.feed.packet(Cursor(), 10_000)
        for page in self.pages:
            page.take({"kind": "packet", "now": 0, "question": 0, "to": (0, 0, 0), **message})


@pytest.fixture
def page(context, shot):
    opened = watched(context)
    yield opened
    assert not opened.problems
    opened.close()


def shows(host, name):
    return host.board.get_by_role("button", name=name, exact=True).is_visible()


@pytest.mark.parametrize("paper", ["light", "dark"])
def test_many_hosts_are_folded_and_open_by_keyboard(page, shot, paper):
    status = run(125, 8)
    kernel = Kernel(status)
    colours = (COLOURS["vscode"], DARK if paper == "dark" else LIGHT)
    host = Host(kernel, page, dict(zip(*colours, strict=True)))
    lost = replace(status.hosts[3], lost=True, why="node failure <i>")
    status = replace(
        status,
        hosts=(*status.hosts[:3], lost, *status.hosts[4:]),
        tasks={**status.tasks, "worker:17": FAILED},
        cause=Cause(FAILED.finding),
    )
    kernel.tell(status)
    machines = host.board.locator(".mw-machine")
    assert machines.count() == 125
    assert "lost with 8 tasks: node failure <i>" in machines.nth(3).text_content()
    assert host.board.locator(".mw-card:visible:not(.mw-machine)").count() == 1
    assert shows(host, "worker:17")
    shot(host, f"hosts-many-{paper}")
    button = host.board.get_by_role("button", name="gpu-a-001.cluster", exact=True)
    assert button.get_attribute("aria-expanded") == "false"
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    assert kernel.heard["hosts"] == [1]
    kernel.tell(status)
    nine = page.get_by_role("button", name="worker:9", exact=True)
    assert "step 41/100" in host.board.locator(".mw-card", has=nine).text_content()
    shot(host, f"hosts-open-{paper}")
    assert not faint(host.board)
    assert len(machines.locator(".mw-state").evaluate_all(LEFTS)) == 1
    for width in (1280, 420):
        page.set_viewport_size({"width": width, "height": 1000})
        assert not host.board.evaluate(OUTSIDE)
    shot(host, f"hosts-narrow-{paper}")
    button.press("Space")
    assert not shows(host, "worker:9")


def test_few_tasks_are_all_seen_and_a_choice_outlives_a_restart_elsewhere(page, shot):
    status = run(2, 4)
    kernel = Kernel(status)
    host = Host(kernel, page, {})
    kernel.tell(status)
    assert host.board.locator(".mw-card:visible").count() == 2 + 8
    shot(host, "hosts-few")
    host.board.get_by_role("button", name="gpu-a-000.cluster", exact=True).click()
    assert not shows(host, "worker:0")
    moved = replace(status.hosts[1], name="gpu-b")
    kernel.tell(replace(status, hosts=(status.hosts[0], moved)))
    assert shows(host, "gpu-b")
    assert shows(host, "worker:4")
    assert not shows(host, "worker:0")
    kernel.tell(replace(status, hosts=()))
    assert host.board.locator(".mw-machine").count() == 0
    assert host.board.locator(".mw-card:visible").count() == 8
