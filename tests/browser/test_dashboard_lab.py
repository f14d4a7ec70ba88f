"""The dashboard in a real JupyterLab, with small real processes."""

from __future__ import annotations

import os
import signal

import cells
import nbformat
import pytest
from processes import eventually

pytestmark = [pytest.mark.slow, pytest.mark.browser]

COUNTED = 400


def done(notebook):
    """Return how much of its steps worker:0 has done, in percent, as the page shows it."""
    bar = notebook.board.locator('[role="progressbar"]').first
    return int(bar.get_attribute("aria-valuenow"))


def steps(notebook, page=None):
    """Return the steps that the log pane shows, for each worker."""
    lines = {index: notebook.lines(f"worker:{index}", page) for index in (0, 1)}
    return {i: [int(text[5:].split("/")[0]) for text in lines[i]] for i in lines}


def test_a_run_is_live_and_survives_a_reload_and_a_second_view(notebook, shot):
    notebook.write(cells.declare(), cells.counting(COUNTED, 0.02)).open().run()
    eventually(lambda: done(notebook) > 5, "progress")
    before = done(notebook)
    eventually(lambda: done(notebook) > before, "further progress")
    notebook.save()
    second = notebook.page.context.new_page()
    notebook.open(page=second)
    notebook.open()
    eventually(lambda: done(notebook) > before, "progress after the reload")
    shot(notebook, "two-live")
    notebook.state("finished")
    notebook.state("finished", page=second)
    shot(notebook, "two-finished")
    expected = {index: list(range(1, COUNTED + 1)) for index in (0, 1)}
    eventually(lambda: steps(notebook) == expected, "every line after the reload")
    eventually(lambda: steps(notebook, second) == expected, "every line in the second view")


def test_buttons_act_while_a_cell_blocks(notebook):
    notebook.write(cells.declare(), cells.SLEEPING, "%mw_wait").open().start()
    eventually(lambda: notebook.lines() == ["up", "up"], "both workers")
    notebook.button("Stacks").click()
    notebook.see(notebook.board.locator(".mw-note", has_text="worker:1 is at main.py"))
    notebook.button("Restart").click()
    notebook.see(notebook.board.locator(".mw-note", has_text="attempt 2"))
    eventually(lambda: len(notebook.lines()) == 4, "the second attempt")
    notebook.button("Stop").click()
    notebook.state("stopped")
    notebook.see(notebook.page.get_by_text("RunStopped: run 1 was stopped before its end"))
    notebook.button("Restart").click()
    notebook.see(notebook.board.get_by_text("Run 2 · main.py"))
    eventually(lambda: notebook.lines() == ["up", "up"], "the new run")
    notebook.button("Stop").click()
    notebook.state("stopped")


def test_a_failure_is_explained_and_stays_in_the_saved_notebook(notebook, shot):
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    notebook.write(cells.declare(), cells.FAILING).open().run().state("failed")
    message = "ValueError: the learning rate must be positive"
    cause = notebook.board.locator(".mw-cause pre").text_content()
    assert message in cause
    assert 'raise ValueError("the learning rate must be positive")' in cause
    notebook.button("Show in the log").click()
    notebook.see(notebook.board.locator(".mw-error", has_text="Traceback"))
    notebook.button("Copy its log").click()
    copied = notebook.page.evaluate("() => navigator.clipboard.readText()")
    assert copied.startswith("starting\nTraceback (most recent call last):")
    assert copied.endswith(message)
    shot(notebook, "failed")
    saved = notebook.save()
    [output] = saved.cells[1].outputs
    assert set(output.data) == {"text/plain", "text/html"}
    assert output.data["text/plain"].startswith("run 1: failed: worker:1 exited with code 1")
    for trusted in (True, False):
        notebook.reopen(trusted=trusted)
        static = notebook.see(notebook.page.locator(".mwmagic-static"))
        assert message in static.text_content()
        assert notebook.page.locator(".mw").count() == 0
        shot(notebook, f"failed-reopened-{'trusted' if trusted else 'untrusted'}", whole=True)


def test_a_workers_markup_stays_text(notebook):
    notebook.write(cells.declare(1), cells.HOSTILE).open().run().state("failed")
    assert notebook.lines()[:2] == [
        "<img src=x onerror='window.hacked = 1'>",
        "</script><script>window.hacked = 2</script>",
    ]
    assert notebook.lines()[-1] == "<svg onload='window.hacked = 3'>"
    notebook.save()
    notebook.reopen(trusted=True)
    notebook.see(notebook.page.locator(".mwmagic-static"))
    assert notebook.page.evaluate("() => window.hacked") is None


def test_the_page_keeps_what_it_has_when_the_kernel_dies(notebook, shot):
    pid = "import os, pathlib\npathlib.Path('pid').write_text(str(os.getpid()))"
    notebook.write(pid, cells.declare(), cells.SLEEPING).open().run()
    eventually(lambda: notebook.lines() == ["up", "up"], "both workers")
    os.kill(int((notebook.folder / "pid").read_text()), signal.SIGKILL)
    notebook.state("kernel gone")
    assert notebook.lines() == ["up", "up"]
    assert notebook.button("Stop").is_disabled()
    notebook.page.get_by_role("button", name="Ok", exact=True).click()
    shot(notebook, "kernel-gone")


def test_the_log_can_be_searched_filtered_unfolded_and_paused(notebook, shot):
    notebook.write(cells.declare(), cells.NOTICES).open().run()
    eventually(lambda: len(notebook.lines()) == 480, "all lines")
    pane = notebook.board.locator(".mw-lines")
    hidden = notebook.board.locator(".mw-line", has_text="oneDNN").first
    assert not hidden.is_visible()
    notebook.button("Notices").click()
    assert notebook.button("Notices").get_attribute("aria-pressed") == "true"
    pane.evaluate("node => node.scrollTo(0, 0)")
    notebook.see(hidden)
    assert notebook.button("Follow").get_attribute("aria-pressed") == "false"
    notebook.board.get_by_label("Search the log").fill("NEEDLE")
    notebook.see(notebook.board.get_by_text("4 of 4 found"))
    notebook.board.get_by_label("Search the log").press("Enter")
    notebook.see(notebook.board.get_by_text("1 of 4 found"))
    assert "line 7 of" in notebook.board.locator(".mw-now").text_content()
    shot(notebook, "search")
    notebook.board.get_by_label("Search the log").fill("")
    notebook.button("worker:1").click()
    assert notebook.lines("worker:0") == []
    assert len(notebook.lines("worker:1")) == 240
    notebook.button("Follow").click()
    assert pane.evaluate("n => n.scrollHeight - n.scrollTop - n.clientHeight") < 2


@pytest.mark.parametrize("workers", [16, 64])
def test_many_tasks_stay_usable(notebook, shot, workers):
    notebook.write(cells.declare(workers), cells.MANY).open().run().state("failed", 60_000)
    cards = notebook.board.locator(".mw-card")
    boxes = cards.evaluate_all(
        "nodes => nodes.map((n) => [n.offsetTop, n.offsetLeft, n.textContent])"
    )
    assert min(boxes)[2].startswith(f"worker:{workers // 2}"), "failures come first"
    assert notebook.board.locator(".mw-tasks").bounding_box()["height"] < 450
    for theme in ("Dark", "Light"):
        notebook.theme(f"JupyterLab {theme}")
        shot(notebook, f"{workers}-tasks-{theme.lower()}")


def test_a_run_that_goes_on_at_save_time_shows_its_last_state(notebook):
    notebook.write(cells.declare(), cells.SLEEPING).open().run().state("running")
    eventually(lambda: "up" in notebook.lines(), "a worker")
    [output] = notebook.save().cells[1].outputs
    assert "run 1: running" in output.data["text/html"]
    notebook.button("Stop").click()
    notebook.state("stopped")
    [output] = notebook.save().cells[1].outputs
    assert output.data["text/plain"].startswith("run 1: stopped")
    assert nbformat.reader.reads(notebook.path.read_text())["nbformat"] == 4
