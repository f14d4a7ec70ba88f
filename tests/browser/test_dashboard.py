"""The dashboard in a real JupyterLab and a real Notebook 7, with small real processes."""

from __future__ import annotations

import os
import re
import signal
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median

import cells
import pytest
from contrast import faint
from lab import PLACES
from processes import eventually

pytestmark = [pytest.mark.slow, pytest.mark.browser]

STEPS = 400
LOADED = "image => image.complete && image.naturalWidth > 0"
both = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)


def done(notebook):
    """Return how much of its steps worker:0 has done, in percent, as the page shows it."""
    bar = notebook.board.get_by_role("progressbar").first
    return round(100 * bar.evaluate("bar => bar.value"))


def numbers(notebook, page=None):
    """Return the steps that the log pane shows, for each worker."""
    lines = {index: notebook.lines(f"worker:{index}", page) for index in (0, 1)}
    return {i: [int(text[5:].split("/")[0]) for text in lines[i]] for i in lines}


def counted(steps):
    return {index: list(range(1, steps + 1)) for index in (0, 1)}


def until_equal(look, wanted):
    """Wait until a look at the page is as it should be.

    Jupyter may render the output again at any moment, and a look then finds what is half there.
    """
    eventually(lambda: look() == wanted, lambda: f"{wanted}: there is {look()}")


def saved(notebook, cell):
    """Save the notebook and return what it keeps of a cell's output."""
    [output] = notebook.save().cells[cell].outputs
    return output.data


def keeps(notebook, cell, words):
    """Wait until the saved notebook keeps these words, and needs no kernel to show them."""

    def kept():
        data = saved(notebook, cell)
        return set(data) == {"text/plain", "text/html"} and f"<b>{words}" in data["text/html"]

    eventually(kept, words)


def reopened(notebook, shot, name, ways=(True,)):
    """Reopen the saved notebook, trusted or not; yield the output that it keeps."""
    for trusted in ways:
        notebook.reopen(trusted=trusted)
        static = notebook.see(notebook.page.locator(".mwmagic-static"))
        assert notebook.page.locator(".mw").count() == 0
        for theme in ("Dark", "Light"):
            notebook.theme(f"JupyterLab {theme}")
            way = "trusted" if trusted else "untrusted"
            shot(notebook, f"{name}-{way}-{theme.lower()}", whole=True)
            assert not faint(static)
        yield static


@both
def test_a_run_is_live_through_a_reload_and_in_two_views(notebook, shot):
    notebook.write(cells.declare(), cells.counting(STEPS)).open().run()
    eventually(lambda: done(notebook) > 5, "progress")
    eventually(lambda: done(notebook) == 50, "further progress, until the workers wait")
    notebook.save()
    second = notebook.page.context.new_page()
    notebook.load(second).load()
    for page in (notebook.page, second):
        eventually(lambda page=page: numbers(notebook, page) == counted(STEPS // 2), "all lines")
    shot(notebook, "two-live")
    (notebook.folder / "go").touch()
    for page in (notebook.page, second):
        notebook.state("finished", page=page)
        eventually(lambda page=page: numbers(notebook, page) == counted(STEPS), "all lines")
    first, other = (page.locator(".mw-card") for page in (notebook.page, second))
    eventually(
        lambda: first.count() and first.all_text_contents() == other.all_text_contents(),
        lambda: f"same rows: {first.all_text_contents()}, {other.all_text_contents()}",
    )
    second.close()
    shot(notebook, "two-finished")
    keeps(notebook, 1, "run 1: finished")


@both
def test_a_page_that_is_reloaded_while_a_cell_waits_is_live(notebook, shot):
    notebook.write(cells.declare(), cells.counting(STEPS), "%mw_wait").open().start()
    eventually(lambda: done(notebook) == 50, "progress, until the workers wait")
    notebook.save()
    notebook.load()
    eventually(lambda: numbers(notebook) == counted(STEPS // 2), "all lines")
    shot(notebook, "reloaded-while-waiting", whole=True)
    notebook.button("Stacks").click()
    stacks = notebook.board.get_by_role("region", name="Where each worker is")
    notebook.see(stacks.get_by_text("worker:1 is at main.py"))
    (notebook.folder / "go").touch()
    notebook.state("finished")
    eventually(lambda: numbers(notebook) == counted(STEPS), "all lines")
    keeps(notebook, 1, "run 1: finished")


@both
def test_a_finished_run_stays_in_the_saved_notebook(notebook, shot):
    notebook.write(cells.declare(), cells.counting(STEPS))
    (notebook.folder / "go").touch()
    notebook.open().run().state("finished")
    keeps(notebook, 1, "run 1: finished")
    for static in reopened(notebook, shot, "finished", (False, True)):
        assert f"step {STEPS}/{STEPS}" in static.text_content()
        eventually(lambda static=static: static.locator("img").evaluate(LOADED), "the picture")
    static = notebook.see(notebook.converted().locator(".mwmagic-static"))
    assert f"step {STEPS}/{STEPS}" in static.text_content()
    eventually(lambda: static.locator("img").evaluate(LOADED), "the picture")


def test_figures_that_programs_show_are_below_the_charts(notebook, shot):
    notebook.write(cells.declare(), cells.FIGURES).open().run()
    image = notebook.board.locator("img")
    eventually(lambda: image.count() == 3, "the first figure of both, the second of each")
    captions = ["[0-1] · figure 1", "worker:0 · figure 2", "worker:1 · figure 2"]
    shown = notebook.board.locator("figcaption")
    until_equal(lambda: sorted(shown.all_text_contents()), captions)
    until_equal(lambda: shown.all_text_contents()[:1], captions[:1])
    for theme in ("Dark", "Light"):
        notebook.theme(f"JupyterLab {theme}")
        shot(notebook, f"figures-{theme.lower()}")
        assert not faint(notebook.board)
    notebook.save()
    notebook.load()
    eventually(lambda: image.count() == 3, "the figures, after a reload")
    (notebook.folder / "go").touch()
    notebook.state("finished")
    keeps(notebook, 1, "run 1: finished")
    for static in reopened(notebook, shot, "figures", (False,)):
        assert static.locator("img").count() == 3
        for each in static.locator("img").all():
            eventually(lambda each=each: each.evaluate(LOADED), "the picture")


def test_buttons_act_while_a_cell_blocks(notebook, shot):
    notebook.write(cells.declare(), cells.SLEEPING, "%mw_wait").open().start()
    eventually(lambda: notebook.lines() == [cells.UP] * 2, "both workers")
    notebook.button("Stacks").click()
    stacks = notebook.board.get_by_role("region", name="Where each worker is")
    notebook.see(stacks.get_by_text("worker:1 is at main.py"))
    until_equal(notebook.lines, [cells.UP] * 2)  # the log is the workers'
    for theme in ("Dark", "Light"):
        notebook.theme(f"JupyterLab {theme}")
        shot(notebook, f"stacks-{theme.lower()}")
        assert not faint(notebook.board)
    notebook.sure("Restart")
    notebook.see(notebook.board.locator(".mw-line:not([data-task])", has_text="attempt 2"))
    notebook.see(stacks)
    notebook.button("Close").click()
    stacks.wait_for(state="hidden")
    eventually(lambda: len(notebook.lines()) == 4, "the second attempt")
    notebook.sure("Stop")
    notebook.state("stopped")
    notebook.see(notebook.page.get_by_text("RunStopped: run 1 was stopped before its end"))
    notebook.button("Restart").click()
    notebook.see(notebook.board.get_by_text("Run 2 · main.py"))
    eventually(lambda: notebook.lines() == [cells.UP] * 2, "the new run")
    notebook.sure("Stop")
    notebook.state("stopped")


def test_a_failure_is_explained_and_a_workers_markup_stays_text(notebook, shot):
    notebook.write(cells.declare(), cells.FAILING).open().run().state("failed")
    message = "ValueError: the learning rate must be positive <svg onload='window.hacked = 1'>"
    cause = notebook.board.locator(".mw-cause pre", has_text=message)
    notebook.see(cause.filter(has_text='raise ValueError("the learning rate'))
    markup = [
        "<img src=x onerror='window.hacked = 2'>",
        "</script><script>window.hacked = 3</script>",
    ]
    until_equal(lambda: notebook.lines()[:2], markup)
    notebook.button("Show in the log").click()
    notebook.see(notebook.board.locator(".mw-error", has_text="Traceback"))
    notebook.button("Copy its log").click()
    notebook.see(notebook.button("Copied"))
    copied = notebook.page.evaluate("() => navigator.clipboard.readText()")
    assert copied.startswith("<img src=x")
    assert copied.endswith(message)
    shot(notebook, "failed")
    keeps(notebook, 1, "run 1: failed: worker:1 exited with code 1")
    for static in reopened(notebook, shot, "failed"):
        assert message in static.text_content()
        assert notebook.page.evaluate("() => window.hacked") is None
    page = notebook.converted()
    assert message in notebook.see(page.locator(".mwmagic-static")).text_content()
    assert page.evaluate("() => window.hacked") is None


def test_the_page_keeps_what_it_has_when_the_kernel_dies(notebook, shot):
    pid = "import os, pathlib\npathlib.Path('pid').write_text(str(os.getpid()))"
    notebook.write(pid, cells.declare(), cells.SLEEPING).open().run()
    eventually(lambda: notebook.lines() == [cells.UP] * 2, "both workers")
    keeps(notebook, 2, "run 1: running")
    os.kill(int((notebook.folder / "pid").read_text()), signal.SIGKILL)
    notebook.state("kernel gone")
    until_equal(notebook.lines, [cells.UP] * 2)
    assert notebook.button("Stop").is_disabled()
    assert notebook.button("Whole log").is_disabled()
    notebook.page.get_by_role("button", name="Ok", exact=True).click()
    shot(notebook, "kernel-gone")
    for static in reopened(notebook, shot, "saved-in-mid-run"):
        told = r"running \(still going at [\d-]+ [\d:]+, when this was saved\)"
        assert re.search(told, static.text_content())


def test_a_slip_ends_no_run(notebook):
    notebook.write(cells.declare(), cells.SLEEPING).open().run()
    eventually(lambda: notebook.lines() == [cells.UP] * 2, "both workers")
    keeps(notebook, 1, "run 1: running")  # so Jupyter does not render the output again meanwhile
    for name in ("Restart", "Stop"):
        notebook.button(name).dblclick()
        asked = notebook.board.locator("[aria-live=polite]", has_text=f"{name}? Click again")
        notebook.see(asked).wait_for(state="detached")
        notebook.see(notebook.board.get_by_role("button", name=name, exact=True))
    until_equal(notebook.lines, [cells.UP] * 2)
    notebook.state("running")
    notebook.sure("Stop")
    notebook.state("stopped")
    notebook.button("Restart").click()  # nothing is lost by that
    notebook.see(notebook.board.get_by_text("Run 2 · main.py"))


@both
def test_output_of_workers_is_not_typeset_as_a_formula(notebook):
    formula = "from IPython.display import HTML\nHTML('$x$')"
    notebook.write(formula, cells.declare(), cells.SLEEPING).open().run()
    formulas = notebook.page.locator("mjx-container")
    notebook.see(formulas)
    eventually(lambda: notebook.lines() == [cells.UP] * 2, "both workers")
    notebook.sure("Restart")
    keeps(notebook, 2, "run 1: running")  # so Jupyter has rendered the output again
    eventually(lambda: notebook.lines() == [cells.UP] * 4, "the second attempt")
    notebook.page.wait_for_function("() => new Promise(requestAnimationFrame)")
    until_equal(formulas.count, 1)


@pytest.mark.usefixtures("own_page")
def test_a_lost_connection_loses_nothing(notebook):
    sockets = []

    def route(socket):
        sockets.append(socket)
        socket.connect_to_server()

    notebook.page.route_web_socket("**/api/kernels/**", route)
    notebook.write(cells.declare(), cells.counting(STEPS)).open().run()
    eventually(lambda: numbers(notebook) == counted(STEPS // 2), "the first half")
    for socket in sockets:
        socket.close(code=4000, reason="the lid was closed")
    (notebook.folder / "go").touch()
    notebook.state("finished")
    eventually(lambda: numbers(notebook) == counted(STEPS), "every line")


def test_the_log_can_be_searched_filtered_unfolded_and_paused(notebook, shot):
    notebook.write(cells.declare(), cells.NOTICES).open().run()
    keeps(notebook, 1, "run 1: running")  # so Jupyter does not render the output again meanwhile
    eventually(lambda: len(notebook.lines()) == 491, "all lines")
    pane = notebook.board.locator(".mw-lines")
    hidden = notebook.board.locator(".mw-line", has_text="oneDNN").first
    hidden.wait_for(state="hidden")
    notebook.see(notebook.board.get_by_text("412 lines shown · all in"))
    notebook.button("Notices").click()
    notebook.see(notebook.board.get_by_text("492 lines shown · all in"))
    until_equal(lambda: pressed(notebook, "Notices"), "true")
    pane.evaluate("node => node.scrollTo(0, 0)")
    notebook.see(hidden)
    eventually(lambda: pressed(notebook, "Follow") == "false", "pause")
    notebook.board.get_by_label("Search the log").fill("NEEDLE")
    notebook.see(notebook.board.get_by_text("4 found"))
    until_equal(lambda: [line.split()[1] for line in notebook.lines()], ["7", "150"] * 2)
    shot(notebook, "search")
    notebook.board.get_by_label("Search the log").fill("")
    until_equal(lambda: len(notebook.lines()), 491)
    notebook.button("worker:1").click()
    until_equal(lambda: len(notebook.lines("worker:1")), 251)
    until_equal(lambda: notebook.lines("worker:0"), [])
    notebook.button("Follow").click()
    below = "n => n.scrollHeight - n.scrollTop - n.clientHeight < 2"
    eventually(lambda: pane.evaluate(below), "the end of the log")
    name, text = downloaded(notebook)
    [log] = notebook.folder.rglob("worker-1.log")
    assert (name, text) == ("run-1-worker-1.log", log.read_bytes())
    notebook.board.get_by_label("Task", exact=True).select_option("all tasks")
    name, text = downloaded(notebook)
    logs = [
        f"==> {one.name} <==\n".encode() + one.read_bytes()
        for one in (log.with_stem("worker-0"), log)
    ]
    assert (name, text) == ("run-1-all.log", b"".join(logs))
    os.truncate(log, 201 * 2**20)
    notebook.button("Whole log").click()
    notebook.see(notebook.board.get_by_text("Too large: see the path"))


def test_the_page_keeps_the_last_lines(notebook):
    notebook.write(cells.declare(1), cells.worker("for line in range(15_000): print(line)"))
    notebook.open().run().state("finished")
    keeps(notebook, 1, "run 1: finished")
    eventually(lambda: notebook.lines()[-1:] == ["14999"], "the last line")
    search = notebook.board.get_by_label("Search the log")
    first_shown(notebook)
    search.fill("9")
    search.fill("")  # what is shown again is all that is kept; until then, whole blocks go
    first = first_shown(notebook)
    search.fill("9")
    found = sum("9" in str(line) for line in range(first, 15_000))
    notebook.see(notebook.board.get_by_text(re.compile(rf"\b{found}\b found")))


def test_a_task_that_prints_much_takes_no_lines_from_the_others(notebook):
    notebook.write(cells.declare(), cells.UNEVEN).open().run().state("finished")
    keeps(notebook, 1, "run 1: finished")
    eventually(lambda: notebook.lines("worker:1")[-1:] == ["line 14999"], "the last line")
    notebook.button("worker:0").click()
    until_equal(lambda: pressed(notebook, "worker:0"), "true")
    until_equal(lambda: pressed(notebook, "worker:1"), "false")
    until_equal(notebook.lines, ["line 0", "line 1", "line 2"])
    notebook.button("worker:1").click()
    eventually(lambda: 9900 <= len(notebook.lines("worker:1")) <= 10_000, "the lines kept")
    until_equal(lambda: notebook.lines("worker:0"), [])
    notebook.button("worker:1").click()
    until_equal(lambda: pressed(notebook, "worker:1"), "false")
    notebook.board.get_by_label("Search the log").fill("line 1")
    notebook.see(notebook.board.get_by_text(re.compile(r"\b5001 found")))


STYLES = """nodes => nodes.map((node) => {
    const style = getComputedStyle(node);
    return [node.textContent, style.color, style.fontWeight, style.textDecorationLine];
})"""


def test_colours_are_shown_matches_marked_and_errors_found(notebook, shot):
    notebook.write(cells.declare(), cells.COLOURED).open().run().state("failed")
    keeps(notebook, 1, "run 1: failed: worker:1")
    log = notebook.board.locator(".mw-blocks")
    wanted = [f"colour {colour} and more" for colour in cells.COLOURS]
    # JupyterLab may be rendering the output again at this moment.
    eventually(lambda: [one for one in notebook.lines("worker:0") if "colour" in one] == wanted)
    styles = log.locator("[data-task='worker:0'] .mw-ansi").evaluate_all(STYLES)
    assert all(line == "underline" for text, *_, line in styles if text == "more")
    indents = log.locator(".mw-ansi").evaluate_all(
        "nodes => nodes.map((n) => n.offsetLeft - n.closest('.mw-line').offsetLeft)"
    )
    assert min(indents) > 50, "beside the task's name, not below it"
    colours = {text: colour for text, colour, *_ in styles}
    assert len({colours[f"colour {code}"] for code in range(31, 37)}) == 6
    assert {text: weight for text, _, weight, _ in styles}["colour 1;32"] == "700"
    for words, count in (("LOUR 3", 20), ("5 and mo", 4)):
        notebook.board.get_by_label("Search the log").fill(words)
        marks = log.locator("mark")
        until_equal(lambda: "".join(marks.all_text_contents()).lower(), words.lower() * count)  # noqa: B023
        notebook.see(marks.first)
    shot(notebook, "marked")


@both
def test_a_syntax_error_is_marked_as_an_error(notebook):
    notebook.write(cells.declare(), cells.BROKEN).open().run().state("failed")
    keeps(notebook, 1, "run 1: failed")
    errors = notebook.board.locator(".mw-error")
    eventually(lambda: "SyntaxError" in "".join(errors.all_text_contents()), "the error")
    notebook.button("First error").click()
    notebook.see(errors.first)


def test_every_text_is_legible_in_both_themes(notebook, shot):
    notebook.write(cells.declare(), cells.COLOURED).open().run()
    notebook.state("failed")
    keeps(notebook, 1, "run 1: failed: worker:1")
    notebook.button("Notices").click()
    for theme in ("Dark", "Light"):
        notebook.theme(f"JupyterLab {theme}")
        for words in ("", "colour"):
            notebook.board.get_by_label("Search the log").fill(words)
            eventually(lambda: len(notebook.lines()) > 20, "lines")
            shot(notebook, f"colours-{theme.lower()}{words and '-found'}")
            assert not faint(notebook.board)


def test_controls_have_names_of_their_own(notebook):
    notebook.write(cells.declare(), cells.EVERY_POINT, cells.METRICS).open().run()
    charts = notebook.board.locator(".mw-plot[aria-label]")
    eventually(lambda: charts.count() == 2, "both charts")
    names = notebook.board.locator("button, select, input, progress, [role=slider], [tabindex]")
    look = "nodes => nodes.map((n) => n.ariaLabel || n.textContent)"
    told = eventually(lambda: names.evaluate_all(look), "controls")
    assert all(told)
    assert len(told) == len(set(told)), told
    assert notebook.board.get_attribute("aria-label") == "Run 1 · main.py"


def first_shown(notebook):
    """Return the first of the numbers that the log pane shows, which end with 14999."""
    first, *others = map(int, notebook.lines())
    assert others == list(range(first + 1, 15_000))
    assert 5000 <= first <= 5300
    return first


def downloaded(notebook):
    """Press "Whole log"; return the file's name and what is in it."""
    with notebook.page.expect_download() as begun:
        notebook.button("Whole log").click()
    return begun.value.suggested_filename, Path(begun.value.path()).read_bytes()


def pressed(notebook, name):
    return notebook.button(name).get_attribute("aria-pressed")


OUTSIDE = """chart => {
    const box = chart.querySelector("svg").getBoundingClientRect();
    const out = (one) => one.top < box.top - 1 || one.bottom > box.bottom + 1;
    return [...chart.querySelectorAll("text")]
        .filter((text) => out(text.getBoundingClientRect())).map((text) => text.textContent);
}"""


def test_a_chart_shows_any_metric_and_marks_attempts(notebook, shot):
    notebook.write(cells.declare(), cells.EVERY_POINT, cells.METRICS).open().run()
    charts = notebook.board.locator("figure")
    eventually(lambda: charts.count() == 2, "both charts")
    chart, speed = charts.all()
    label = partial(chart.locator(".mw-plot").get_attribute, "aria-label")
    first = "loss: [0-1] · step 20: 0.05"
    eventually(lambda: label() == first, label)
    until_equal(chart.locator(".mw-attempt").count, 0)
    notebook.sure("Restart")
    eventually(lambda: "[0-1] · attempt 2 · step 20: 0.05" in label(), label)
    assert label().startswith(f"{first}, ")
    until_equal(chart.locator(".mw-attempt").count, 1)
    notebook.see(chart.get_by_text("attempt 2", exact=True))
    until_equal(chart.locator("path[opacity='0.35']").count, 2)
    chart.get_by_label("Metric").select_option("acc")
    eventually(lambda: label().startswith("acc: [0-1] · step 20: 0.2, "), label)
    chart.get_by_label("Metric").select_option(cells.LONG)
    eventually(lambda: label().startswith(f"{cells.LONG}: [0-1]"), label)
    until_equal(lambda: chart.evaluate(OUTSIDE), [])
    shot(notebook, "long-name")
    until_equal(speed.get_by_label("Metric").input_value, "steps/s")


def test_a_metric_with_one_point_has_a_chart(notebook, shot):
    notebook.write(cells.declare(), cells.EVERY_POINT, cells.METRICS).open().run()
    chart = notebook.board.locator("figure").first
    choice = chart.get_by_label("Metric")
    eventually(lambda: "once" in choice.locator("option").all_text_contents(), "the metric")
    choice.select_option("once")
    told = "once: [0-1] · step 20: 0.5"
    eventually(lambda: chart.locator(".mw-plot").get_attribute("aria-label") == told, told)
    notebook.see(choice)
    until_equal(lambda: dots(chart), [1, 1])
    shot(notebook, "one-point")
    choice.select_option("loss")
    eventually(lambda: dots(chart) == [], "the lines")


def dots(chart):
    """Return how many dots a chart has of each line with any, in one look: it is redrawn.

    One that Jupyter has just replaced, as it rendered the output again, shows none.
    """
    paths = chart.evaluate(
        """(chart) => [...(chart.isConnected ? chart.querySelectorAll(".mw-dot") : [])].map(
            (path) => [
                path.getTotalLength(),
                getComputedStyle(path).strokeLinecap,
                path.getAttribute("d"),
            ],
        )"""
    )
    assert all(look[:2] == [0, "round"] for look in paths), "lines of no length with round ends"
    return [d.count("h0") for *_, d in paths]


def test_a_point_between_values_that_cannot_be_drawn_is_a_dot(notebook, shot):
    notebook.write(cells.declare(), cells.EVERY_POINT, cells.ALONE).open().run()
    chart = notebook.board.locator("figure").first
    eventually(lambda: dots(chart) == [1, 1], "the loss between values that are no numbers")
    shot(notebook, "lone-loss")
    chart.get_by_label("Metric").select_option("acc")
    eventually(lambda: "[0-1] · step 7: 0.5" in told(chart, "label"), lambda: told(chart, "label"))
    until_equal(lambda: dots(chart), [])
    chart.get_by_role("button", name="Logarithmic scale").click()
    until_equal(lambda: dots(chart), [2, 2])  # zeros are nowhere on this scale
    shot(notebook, "lone-logarithms")


def test_a_chart_has_numbers_titles_epochs_and_a_logarithmic_scale(notebook, shot):
    notebook.write(cells.declare(), cells.EVERY_POINT, cells.EPOCHS).open().run()
    chart = notebook.board.locator("figure").first
    words = chart.locator("svg text")
    eventually(lambda: "epoch 3" in words.all_text_contents(), "the third epoch")
    eventually(lambda: "step 30: " in told(chart, "label"), lambda: told(chart, "label"))
    wanted = {"step", "loss", "epoch 2", "0.1", "10", "20"}
    eventually(lambda: wanted <= set(words.all_text_contents()), words.all_text_contents)
    assert "epoch 1" not in words.all_text_contents(), "it begins where the axis does"
    scale = chart.get_by_role("button", name="Logarithmic scale")
    scaled = partial(scale.get_attribute, "aria-pressed")
    until_equal(scaled, "false")
    scale.click()
    until_equal(scaled, "true")
    eventually(lambda: {"0.1", "0.01"} <= set(words.all_text_contents()), "powers of ten")
    assert not {"0.05", "0.15"} & set(words.all_text_contents())
    until_equal(chart.locator("path[opacity]").count, 2)
    chart.get_by_label("Smoothing").press("End")
    eventually(lambda: chart.locator("path[opacity='0.2']").count() == 2, "both lines, faint")
    until_equal(chart.locator("path[opacity='1']").count, 2)  # and their means
    for theme in ("Dark", "Light"):
        notebook.theme(f"JupyterLab {theme}")
        shot(notebook, f"epochs-{theme.lower()}")
    notebook.page.set_viewport_size({"width": 700, "height": 1000})
    shot(notebook, "epochs-narrow")
    scale.click()
    until_equal(scaled, "false")
    eventually(lambda: "0.15" in words.all_text_contents(), "numbers of a linear scale")


COLLIDING = """chart => {
    const texts = [...chart.querySelectorAll("text")];
    const boxes = texts.filter((text) => text.textContent.startsWith("epoch "))
        .map((text) => text.getBoundingClientRect()).sort((a, b) => a.left - b.left);
    const edge = chart.querySelector("svg").getBoundingClientRect().right;
    return boxes.filter((box, i) => box.right > (boxes[i + 1]?.left ?? edge + 1)).length;
}"""


def test_large_values_have_numbers_and_epochs_names_that_can_be_read(notebook, shot):
    notebook.write(cells.declare(), cells.EVERY_POINT, cells.DIVERGED).open().run()
    chart = notebook.board.locator("figure").first
    words = chart.locator("svg text")
    eventually(lambda: "step 24: " in told(chart, "label"), lambda: told(chart, "label"))
    wanted = {"4.1e10", "4.2e10"}
    eventually(lambda: wanted <= set(words.all_text_contents()), words.all_text_contents)
    until_equal(lambda: chart.evaluate(COLLIDING), 0)
    notebook.see(words.filter(has_text=re.compile("^epoch ")).first)
    shot(notebook, "large-values")
    chart.get_by_label("Metric").select_option("acc")
    chart.get_by_role("button", name="Logarithmic scale").click()
    eventually(
        lambda: {"2", "5", "10", "20"} <= set(words.all_text_contents()), "numbers below ten"
    )
    shot(notebook, "few-decades")


def told(chart, what):
    """Return what a screen reader is told of a chart."""
    return chart.locator(".mw-plot").get_attribute(f"aria-{what}") or ""


def test_keys_read_out_the_values_of_a_chart(notebook):
    notebook.write(cells.declare(), cells.EVERY_POINT, cells.EPOCHS).open().run()
    chart = notebook.board.locator("figure").first
    eventually(lambda: told(chart, "label").count("step 30: ") == 2, lambda: told(chart, "label"))
    plot = chart.get_by_role("slider", name="loss: worker:0")
    value = partial(told, chart, "valuetext")
    plot.focus()
    until_equal(value, "worker:0 · step 30: 0.002, worker:1 · step 30: 0.0021")
    plot.press("ArrowLeft")
    before = "worker:0 · step 29: 0.0019, worker:1 · step 29: 0.002"
    until_equal(value, before)
    tip = chart.locator(".mw-tip")
    until_equal(lambda: tip.text_content().split("\n"), before.split(", "))
    plot.press("Home")
    until_equal(value, "worker:0 · step 1: 0.11, worker:1 · step 1: 0.12")
    until_equal(lambda: (told(chart, "valuenow"), told(chart, "valuemax")), ("1", "30"))


@pytest.mark.parametrize(("workers", "size"), [(2, "rows"), (9, "cards")])
def test_a_narrow_page_shows_every_metric_and_the_losses_first(notebook, shot, workers, size):
    notebook.page.set_viewport_size({"width": 700, "height": 1000})
    notebook.write(cells.declare(workers), cells.WIDE).open().run()
    until_equal(lambda: notebook.board.locator(".mw-tasks").get_attribute("data-size"), size)
    # They are equal on all tasks: above cards they stand once.
    metrics = notebook.board.locator(".mw-metrics" if size == "rows" else ".mw-shared").first

    def names():
        return re.findall(r"(\w+)\s[\d.]+", metrics.text_content())

    until_equal(lambda: sorted(names()), sorted(cells.NAMES))
    until_equal(lambda: names()[:2], ["loss", "val_loss"])
    notebook.see(metrics)
    look = "nodes => nodes.map((n) => [n.textContent, n.scrollWidth - n.clientWidth])"
    card = notebook.board.locator(".mw-card > *")
    parts = eventually(lambda: card.evaluate_all(look), "the rows")
    assert [part for part, hidden in parts if hidden > 0] == []
    for theme in ("Dark", "Light"):
        notebook.theme(f"JupyterLab {theme}")
        shot(notebook, f"narrow-{size}-{theme.lower()}")


def test_a_stalled_run_looks_stalled(notebook, shot):
    notebook.write(cells.declare(2, "--stall-timeout 1"), cells.SLEEPING).open().run()
    notebook.state("stalled:")
    head = notebook.board.locator("header")
    until_equal(lambda: head.get_attribute("data-tone"), "stall")
    content = "node => getComputedStyle(node, '::before').content"
    eventually(lambda: "⚠" in head.evaluate(content), "the sign")
    boxes = """head => [".mw-words", "button"].map((part) => {
        const { left, top, bottom } = head.querySelector(part).getBoundingClientRect();
        return { left, top, bottom };
    })"""
    words, buttons = eventually(lambda: head.evaluate(boxes), "both")
    assert words["top"] >= buttons["bottom"]
    assert words["left"] < buttons["left"]
    for theme in ("Dark", "Light"):
        notebook.theme(f"JupyterLab {theme}")
        shot(notebook, f"stalled-{theme.lower()}")
        assert not faint(notebook.board)


def test_why_an_earlier_attempt_failed_stays_in_view(notebook, shot):
    notebook.write(cells.declare(2, "--restarts 1"), cells.AGAIN).open().run()
    earlier = notebook.board.locator("details")
    # A task that kills itself sends no last report, so where it was may be unknown.
    why = re.compile(r"attempt 1.*: worker:1 .*SIGKILL.*; restarted from epoch 2 step 1")
    notebook.see(earlier.get_by_text(why))
    notebook.see(earlier.get_by_text("How 1 earlier attempt ended", exact=True))
    shot(notebook, "earlier")
    notebook.save()
    notebook.load()
    notebook.see(earlier.get_by_text(why))
    earlier.locator("summary").click()
    earlier.locator("pre").wait_for(state="hidden")
    (notebook.folder / "go").touch()
    notebook.state("finished")
    earlier.locator("pre").wait_for(state="hidden")
    keeps(notebook, 1, "run 1: finished")
    notebook.reopen(trusted=False)
    static = notebook.see(notebook.page.locator(".mwmagic-static"))
    notebook.see(static.locator("details").get_by_text(why))


def test_a_run_that_waits_can_be_read_live_and_saved(notebook, shot):
    notebook.write(cells.declare(), cells.WAITING).open().run().state("waiting for worker:1")
    cards = notebook.board.locator(".mw-card")
    look = "nodes => nodes.map(node => node.dataset.tone)"
    until_equal(lambda: cards.evaluate_all(look), ["wait", "run"])
    for theme in ("Dark", "Light"):
        notebook.theme(f"JupyterLab {theme}")
        shot(notebook, f"waiting-{theme.lower()}")
        assert not faint(notebook.board)
    keeps(notebook, 1, "run 1: waiting for worker:1")
    for static in reopened(notebook, shot, "waiting"):
        states = static.locator("td:nth-child(2)")
        assert states.all_text_contents() == ["waiting for worker:1", "running"]
        marks = states.evaluate_all("cells => cells.map(c => getComputedStyle(c).borderLeftColor)")
        assert marks == ["rgb(230, 81, 0)", "rgb(26, 115, 232)"]


def test_the_keyboard_is_enough(notebook):
    notebook.write(cells.declare(), cells.SLEEPING).open().run().state("running")
    keeps(notebook, 1, "run 1: running")
    log = notebook.board.get_by_role("log", name="Log")
    assert log.get_attribute("aria-live") == "off"
    assert "running" in notebook.board.get_by_role("status").all_text_contents()
    keyboard = notebook.page.keyboard
    notebook.button("Stacks").focus()
    seen = []
    for _ in range(10):
        seen.append(notebook.page.evaluate("() => document.activeElement.textContent"))
        keyboard.press("Tab")
    assert seen[:5] == ["Stacks", "Restart", "Stop", "worker:0", "worker:1"]
    assert {"Follow", "Whole log"} <= set(seen)
    notebook.button("Follow").focus()
    keyboard.press("Enter")
    until_equal(lambda: pressed(notebook, "Follow"), "false")
    for key in ("Space", "d", "d", "b"):  # the last three change the notebook where Jupyter hears
        keyboard.press(key)
    until_equal(lambda: pressed(notebook, "Follow"), "true")
    assert notebook.page.locator(".jp-CodeCell").count() == 2
    notebook.button("Stop").focus()
    keyboard.press("Enter")
    notebook.see(notebook.button("Stop? Click again"))
    keyboard.press("Enter")
    notebook.state("stopped")


@both
def test_the_focus_stays_when_jupyter_renders_the_output_again(notebook):
    notebook.write(cells.declare(), cells.counting(STEPS)).open().run()
    eventually(lambda: numbers(notebook) == counted(STEPS // 2), "the first half")
    search = notebook.board.get_by_label("Search the log")
    search.click()
    (notebook.folder / "go").touch()
    keeps(notebook, 1, "run 1: finished")
    eventually(lambda: search.evaluate("node => node === document.activeElement"), "the focus")
    notebook.page.keyboard.type(f"step {STEPS}/")
    notebook.see(notebook.board.get_by_text("2 found"))
    assert notebook.page.locator(".jp-CodeCell").count() == 2
    notebook.page.locator(".jp-CodeCell .cm-content").first.click()
    focused = "node => node === document.activeElement"
    eventually(lambda: not search.evaluate(focused), "the focus elsewhere")


@pytest.mark.parametrize("workers", [16, 64])
def test_many_tasks_stay_usable(notebook, shot, workers):
    notebook.write(cells.declare(workers), cells.MANY).open().run().state("failed", 120_000)
    cards = notebook.board.locator(".mw-card")
    look = "nodes => nodes.map((n) => [n.offsetTop, n.offsetLeft, n.textContent])"
    boxes = eventually(lambda: cards.evaluate_all(look), "the cards")
    assert min(boxes)[2].startswith(f"worker:{workers // 2}"), "failures come first"
    assert notebook.board.locator(".mw-tasks").evaluate("node => node.offsetHeight") < 450
    chart = notebook.board.locator("figure").first
    values = partial(told, chart, "valuetext")
    eventually(lambda: values().count(" · step ") == 8, values)
    assert "… and " in values()
    culprit = f"worker:{workers // 2}"
    notebook.board.get_by_role("button", name=culprit, exact=True).click()
    chart.locator(".mw-plot").press("End")
    eventually(lambda: re.fullmatch(rf"{culprit} · step 60: [\d.]+", values()), values)
    for theme in ("Dark", "Light"):
        notebook.theme(f"JupyterLab {theme}")
        shot(notebook, f"{workers}-tasks-{theme.lower()}")


TYPES = """() => {
  window.drawn = [];
  const note = () => window.drawn.push(performance.now());
  const log = document.querySelector(".mw-blocks");
  new MutationObserver(note).observe(log, { childList: true, subtree: true });
  const key = { key: "F24", bubbles: true };
  setInterval(() => document.body.dispatchEvent(new KeyboardEvent("keydown", key)), 20);
}"""
"""Notes when the log is drawn, and presses a key again and again outside the dashboard."""

LEAST_MS = 150
"""Between two drawings, where 250 pass after a key: a busy page presses its keys late."""


@pytest.mark.usefixtures("own_page")
def test_while_you_type_elsewhere_what_is_printed_comes_at_once_now_and_then(notebook):
    notebook.write(cells.declare(), cells.counting(STEPS)).open().run()
    notebook.page.locator(".mw-blocks").first.wait_for(state="attached")
    notebook.page.evaluate(TYPES)
    eventually(lambda: numbers(notebook) == counted(STEPS // 2), "every line before the pause")
    drawn = notebook.page.evaluate("() => window.drawn")
    assert median(after - before for before, after in pairwise(drawn)) > LEAST_MS
    Path(notebook.folder, "go").touch()
    notebook.state("finished")
    eventually(lambda: numbers(notebook) == counted(STEPS), "all lines")
