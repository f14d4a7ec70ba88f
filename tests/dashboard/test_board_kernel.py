"""The kernel's side of the dashboard, in a real kernel with small real processes.

It runs with the versions that Colab ships too: their pages are others, the messages are the same.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal

import psutil
import pytest
from processes import eventually

pytestmark = pytest.mark.slow

DECLARE = "%mw_cluster 2 --no-warm --grace 0.2 --quiet"
COUNT = """%%mw_worker
import os, time
for step in range(1, 301):
    while step == 151 and not os.path.exists("go"):
        time.sleep(0.02)
    print(f"step {step}/300 loss={1 / step:.4f} __proto__=1.5 nan=nan", flush=True)
"""
SLEEP = "%%mw_worker\nimport time\nprint('up', flush=True)\ntime.sleep(600)\n"
VIEW = "application/vnd.jupyter.widget-view+json"
BUNDLE = {"text/plain", "text/html"}


def counted(page, steps):
    """Whether a page has every line of both workers, each once and in order."""
    told = [[int(text[5:].split("/")[0]) for i, text in page.lines if i == task] for task in (0, 1)]
    return told == [list(range(1, steps + 1))] * 2


def test_two_pages_lose_nothing_and_agree(kernel, tmp_path):
    kernel.run(DECLARE)
    kernel.run(COUNT)
    first = kernel.page("first")
    kernel.until(lambda: counted(first, 150), "the first half")
    second = kernel.page("second")
    kernel.until(lambda: counted(second, 150), "the first half, in the second page")
    (tmp_path / "go").touch()
    for page in (first, second):
        kernel.until(lambda page=page: counted(page, 300), "every line")
        kernel.until(lambda page=page: page.header["over"], "the end")
    kernel.until(lambda: sorted(first.points) == sorted(second.points), "the same points")
    losses = [x for task, _, metric, x, _ in first.points if (task, metric) == (0, "loss")]
    assert losses == sorted(set(losses)), "no point comes twice"
    assert {metric for _, _, metric, _, _ in first.points} >= {"loss", "__proto__", "nan"}
    kernel.until(lambda: first.rows == second.rows, "the same rows")
    assert [row["state"] for row in first.rows.values()] == ["finished"] * 2


def test_a_run_that_is_in_the_way_says_so_below_the_cell_that_it_refused(kernel, tmp_path):
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    page = kernel.page("page")
    kernel.until(lambda: page.header, "the run")
    assert page.header["notice"] == ""
    told = "run 1 is still going"
    with pytest.raises(AssertionError, match=told):
        kernel.run(SLEEP)
    kernel.until(lambda: page.header["notice"].startswith(told), "the notice")
    kernel.error = ""
    kernel.run("%mw_stop --quiet")
    kernel.until(lambda: page.header["over"], "the end")
    assert page.header["notice"] == "", "it is no longer true"


def test_stacks_are_shown_until_they_are_closed(kernel):
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    page = kernel.page("page")
    kernel.until(lambda: len(page.lines) == 2, "both workers")
    kernel.message({"kind": "stacks"})
    kernel.until(lambda: page.stacks, "the stacks")
    title, first, *_ = page.stacks.splitlines()
    assert title.startswith("Stacks at ")
    assert "is at main.py" in first
    assert len(page.lines) == 2, "the log is the workers'"
    kernel.run("%mw_stop --quiet")
    kernel.until(lambda: page.header["over"], "the end")
    late = kernel.page("late")
    kernel.until(lambda: late.stacks == page.stacks, "the stacks, in a page that came later")
    kernel.message({"kind": "close"})
    kernel.until(lambda: not page.stacks and not late.stacks, "no stacks")
    assert kernel.states[-1]["stacks"] == ""


REFUSE = """
from mwmagic.client.run import Run
from mwmagic.errors import RunActive
def refuse(self):
    raise RunActive("not now")
Run.stacks = refuse
"""


def test_why_an_action_was_refused_is_reported_as_long_as_it_is_true(kernel):
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    kernel.run(REFUSE)
    page = kernel.page("page")
    kernel.until(lambda: len(page.lines) == 2, "both workers")
    kernel.message({"kind": "stacks"})
    kernel.until(lambda: page.header["notice"] == "not now", "the refusal")
    kernel.run("%mw_stop --quiet")
    kernel.until(lambda: page.header["over"], "the end")
    assert page.header["notice"] == ""


def test_a_page_that_asks_twice_is_answered(kernel, tmp_path):
    (tmp_path / "go").touch()
    kernel.run(DECLARE)
    kernel.run(COUNT)
    page = kernel.page("page")
    kernel.message({"kind": "__class__"})
    kernel.message({})
    page.say(line=0, point=0, state=0)
    page.say()
    kernel.until(lambda: counted(page, 300), "every line")
    assert not kernel.error


def test_a_page_gets_whole_logs_and_no_other_files(kernel, tmp_path):
    (tmp_path / "go").touch()
    kernel.run(DECLARE)
    kernel.run(COUNT)
    page = kernel.page("page")
    kernel.until(lambda: page.header and page.header["over"], "the end")
    kernel.message({"kind": "log", "page": "page", "task": 1, "at": 0, "id": 1})
    kernel.until(lambda: kernel.pieces, "a piece")
    [(told, piece)] = kernel.pieces
    whole = (tmp_path / page.rows["1"]["log"]).read_bytes()
    assert (told["id"], told["size"], piece) == (1, len(whole), whole)
    kernel.message({"kind": "log", "page": "page", "task": -1, "at": 0, "id": 2})
    kernel.until(lambda: len(kernel.pieces) > 1, "a piece")
    told, piece = kernel.pieces[1]
    assert told["size"] == 2 * (len(b"==> worker-0.log <==\n") + len(whole))
    assert piece == b"==> worker-0.log <==\n"
    kernel.message({"kind": "log", "page": "page", "task": -1, "at": told["size"] - 5, "id": 3})
    kernel.until(lambda: len(kernel.pieces) > 2, "a piece")
    assert kernel.pieces[2][1] == whole[-5:]
    kernel.message({"kind": "log", "page": "page", "task": 2, "at": 0, "id": 4})
    kernel.until(lambda: len(kernel.pieces) > 3, "an answer")
    assert (kernel.pieces[3][0]["size"], kernel.pieces[3][1]) == (0, b""), "there is no such task"


def test_the_end_is_static_text(kernel, tmp_path):
    (tmp_path / "go").touch()
    kernel.run(DECLARE)
    kernel.run(COUNT)
    assert set(kernel.board["data"]) in (BUNDLE, BUNDLE | {VIEW})
    kernel.run("%mw_wait")
    kernel.until(lambda: set(kernel.board["data"]) == BUNDLE, "static text")
    shown = kernel.board["data"]
    assert shown["text/plain"].splitlines() == [
        "run 1: finished",
        "  worker:0  finished  step 300/300  loss 0.0033  __proto__ 1.5  nan nan",
        "  worker:1  finished  step 300/300  loss 0.0033  __proto__ 1.5  nan nan",
    ]
    picture = shown["text/html"].partition("data:image/svg+xml;base64,")[2].partition('"')[0]
    assert {">loss<", ">__proto__<", ">worker:0<", ">worker:1<", ">step<"} <= {
        *re.findall(">[^<]+<", base64.b64decode(picture).decode())
    }
    kernel.until(lambda: kernel.states and kernel.states[-1]["header"]["over"], "the last state")
    assert len(json.dumps(kernel.states[-1])) < 10_000


def test_a_wait_below_a_dashboard_leaves_nothing_that_is_false_later(kernel, tmp_path):
    kernel.run(DECLARE)
    kernel.run(COUNT)
    kernel.page("page")
    kernel.until(lambda: kernel.pages[0].header, "the page's first frame")
    kernel.start("%mw_wait")
    began = "waiting for run 1 since "
    kernel.until(lambda: [text for text in texts(kernel) if text.startswith(began)], "the wait")
    [said] = [text for text in texts(kernel) if text.startswith(began)]
    assert said.endswith("interrupt the cell to use the notebook, and the run continues")
    (tmp_path / "go").touch()
    kernel.until(lambda: kernel.replied == kernel.request, "the end of the wait")
    assert [text for text in texts(kernel) if text.startswith(began)] == []
    assert "run 1: finished  step 300/300" in "".join(texts(kernel))


def texts(kernel):
    return [output["data"].get("text/plain", "") for output in kernel.outputs.values()]


def test_the_dashboard_is_below_the_cell_that_launched_last(kernel):
    kernel.run(DECLARE)
    for index in (0, 1):
        kernel.run(f"%%mw_worker --index {index}\nprint('hello')")
    kernel.run("%mw_wait")
    kernel.until(lambda: VIEW not in kernel.board["data"], "static text")
    kernel.run(SLEEP)
    widgets = "[w for w in __import__('ipywidgets').Widget.widgets.values() if hasattr(w, '_esm')]"
    kernel.run(f"assert len({widgets}) == 1")
    forming, over, waited, live = (output["data"] for output in kernel.outputs.values())
    assert forming == {"text/plain": "run 1 continues below"}
    assert set(over) == BUNDLE
    assert over["text/plain"].startswith("run 1: finished\n  worker:0  finished")
    assert waited == {"text/plain": "run 1: finished"}
    assert set(live) == BUNDLE | {VIEW}
    assert live["text/plain"].startswith("run 2: ")


def test_only_a_page_that_finds_the_place_by_itself_does_without_the_views_mark(kernel):
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    assert set(kernel.board["data"]) == BUNDLE | {VIEW}
    page = kernel.page("page")
    kernel.until(lambda: page.header is not None, "a packet")
    assert set(kernel.board["data"]) == BUNDLE | {VIEW}
    kernel.message({"kind": "hosts", "hosts": True, "age": 1000})
    kernel.until(lambda: set(kernel.board["data"]) == BUNDLE, "the update")
    told = r"\(still going at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, when this was saved\)"
    assert re.search(told, kernel.board["data"]["text/html"])


def test_colabs_own_widget_manager_is_enabled_and_told_of(kernel):
    url = "https://example.org/manager.js"
    kernel.run(f"""
import sys, types
colab, output = types.ModuleType("google.colab"), types.ModuleType("google.colab.output")
enabled = []
output.enable_custom_widget_manager = lambda: enabled.append(True)
output._widgets = types.SimpleNamespace(_installed_url="{url}")
sys.modules |= {{"google.colab": colab, "google.colab.output": output}}
""")
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    assert kernel.board["metadata"] == {VIEW: {"colab": {"custom_widget_manager": {"url": url}}}}
    kernel.run("assert enabled == [True]")


def test_a_supervisor_that_is_killed_is_reported(kernel):
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    page = kernel.page("page")
    kernel.until(lambda: len(page.lines) == 2, "both workers")
    below = psutil.Process(kernel.manager.provisioner.process.pid).children()
    [supervisor] = [one for one in below if "supervisor" in " ".join(one.cmdline())]
    os.kill(supervisor.pid, signal.SIGKILL)
    kernel.until(lambda: page.header["words"].startswith("lost"), "the loss")
    assert len(page.lines) == 2


def test_a_flood_leaves_the_kernel_answering_and_the_end_right(kernel):
    lines = 200_000
    kernel.run(DECLARE)
    kernel.run(f"%%mw_worker\nfor line in range({lines}): print(line)\n")
    page = kernel.page("page")
    kernel.run("1 + 1")
    kernel.until(lambda: page.header and page.header["over"], "the end")
    for task in (0, 1):
        last = (task, str(lines - 1))  # another task's may come long after it
        kernel.until(lambda last=last: last in page.lines, "the last line")
    eventually(lambda: kernel.look() or "run 1: finished" in kernel.board["data"]["text/plain"])


FAULT = """
from mwmagic.dashboard.feed import Feed
packet = Feed.packet
def faulty(self, *args):
    Feed.packet = packet
    raise RuntimeError("lone \\ud800")
Feed.packet = faulty
"""


def test_a_fault_of_the_dashboard_is_noted_and_it_goes_on(kernel, tmp_path):
    (tmp_path / "go").touch()
    kernel.run(FAULT)
    kernel.run(DECLARE)
    kernel.run(COUNT)
    page = kernel.page("page")
    kernel.until(lambda: counted(page, 300), "every line")
    kernel.until(lambda: page.header["over"], "the end")
    assert len([line for _, line in page.lines if "RuntimeError" in line]) == 1
    kernel.run(COUNT)
    kernel.until(lambda: page.run == 2 and counted(page, 300), "every line of another run")
