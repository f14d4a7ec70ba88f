"""The table of runs and their comparison, in a real JupyterLab and a real Notebook 7."""

from __future__ import annotations

import cells
import pytest
from contrast import faint
from lab import PLACES, saved
from processes import eventually

pytestmark = [pytest.mark.slow, pytest.mark.browser]

both = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)

TRAINING = """
import mwmagic.worker

units = 64
lr = 0.1
label = "<img src=x onerror='window.hacked = 1'>"
for step in range(1, 11):
    loss = 20 / units / step + 0.1 * index
    mwmagic.worker.report(epoch=1 + step // 6, step=step, loss=loss)
    time.sleep(0.12)  # reports that come faster are not all kept
if units == 7:
    raise ValueError("too few units")
"""
LAUNCHES = [
    cells.worker(TRAINING, "--quiet", "--wait", *options)
    for options in (["-p units=32"], ["-p units=128"], ["-p units=64 -p lr=0.3"])
]
FAILING = cells.worker(TRAINING, "--quiet", "-p units=7") + "\n"
CHANGED = LAUNCHES[1].replace("lr = 0.1\n", "lr = 0.1\nextra = 1\n")
OVERFLOWS = "document.documentElement.scrollWidth > window.innerWidth"


def written(notebook, *more):
    """Write a notebook that records runs and then shows something, and run it."""
    failed = "try:\n    %mw_wait --quiet\nexcept Exception:\n    pass"
    notebook.write(cells.declare(), *LAUNCHES, FAILING, failed, *more).open()
    return notebook.run()


def view(shown):
    return shown.locator(".mwmagic-view > .mw")


def column(shown, name):
    """Return the cells below a name, in the order of the rows."""
    names = [text.strip() for text in shown.locator("thead th").all_text_contents()]
    at = names.index(name) + 1
    return shown.locator(f"tbody tr > :nth-child({at})").all_text_contents()


def pictured(notebook, shot, name, shown):
    """Look at what is shown in both themes."""
    for theme in ("Dark", "Light"):
        notebook.theme(f"JupyterLab {theme}")
        shown.evaluate("shown => shown.scrollIntoView()")
        shot(notebook, f"{name}-{theme.lower()}", whole=True)
        assert not faint(shown)


def on_paper(notebook):
    """Return what a narrow page without Jupyter shows of the saved notebook."""
    page = notebook.converted()
    page.set_viewport_size({"width": 700, "height": 900})
    notebook.see(view(page).last)
    assert not page.evaluate(OVERFLOWS)
    assert not faint(view(page).last)
    assert page.evaluate("window.hacked") is None
    return page


@both
def test_the_table_sorts_filters_and_chooses_columns(notebook, shot):
    written(notebook, "%mw_runs", "from mwmagic import runs\nruns()[:2]")
    table = notebook.see(view(notebook.page).first)
    heads = [text.strip() for text in table.locator("thead th").all_text_contents()]
    assert heads[:6] == ["run", "began", "took", "state", "units", "lr"]
    assert column(table, "run") == ["1", "2", "3", "4"]
    pictured(notebook, shot, "table", table)
    sort = table.get_by_role("button", name="units")
    sort.click()
    assert column(table, "units") == ["7", "32", "64", "128"]
    sort.click()
    assert column(table, "run") == ["2", "3", "1", "4"]
    assert table.locator("th[aria-sort=descending]").all_text_contents() == ["units"]
    sort.click()
    assert column(table, "run") == ["1", "2", "3", "4"]
    find = table.get_by_role("searchbox", name="Filter the runs")
    find.fill("finished lr=0.1")
    assert column(table, "run") == ["1", "2"]
    assert table.locator("output").text_content() == "2 of 4"
    find.fill("")
    table.locator("summary").click()
    table.get_by_label("tasks").check()
    assert column(table, "tasks") == ["2"] * 4
    table.get_by_label("took").uncheck()
    assert "took" not in table.locator("thead").text_content()
    assert column(view(notebook.page).nth(1), "run") == ["1", "2"], "a list of runs is the table"
    assert notebook.page.evaluate("window.hacked") is None


def test_the_keyboard_is_enough_and_deletes_no_cell(notebook):
    written(notebook, "%mw_runs")
    table = notebook.see(view(notebook.page))
    find = table.get_by_role("searchbox", name="Filter the runs")
    find.focus()
    keys = notebook.page.keyboard
    keys.type("ddfailed")
    assert find.input_value() == "ddfailed"
    for _ in range(2):
        find.press("Home")
        keys.press("Delete")
    assert column(table, "run") == ["4"]
    find.fill("")
    table.get_by_role("button", name="units").focus()
    for name, order in (("Enter", ["4", "1", "3", "2"]), ("Space", ["2", "3", "1", "4"])):
        keys.press(name)
        assert column(table, "run") == order
    keys.type("dd")
    assert notebook.page.locator(".jp-CodeCell").count() == 7
    assert "units" in notebook.page.evaluate("document.activeElement.textContent")
    table.locator("summary").focus()
    keys.press("Enter")
    keys.press("Tab")
    keys.press("Space")
    assert table.locator("thead th").first.text_content() == "began", "the first column is hidden"


@pytest.mark.parametrize("trusted", [True, False], ids=["trusted", "untrusted"])
def test_a_saved_notebook_shows_both_without_a_kernel(notebook, shot, trusted):
    written(notebook, "%mw_runs", "%mw_compare 1 2")
    notebook.see(view(notebook.page).nth(1))
    notebook.save()
    page = on_paper(notebook)
    view(page).first.get_by_role("button", name="units").click()
    assert column(view(page).first, "units") == ["7", "32", "64", "128"]
    chart = view(page).nth(1).locator("figure").first
    assert saved(page, chart, "PNG").path().read_bytes().startswith(b"\x89PNG")
    assert "<text" in saved(page, chart, "SVG").path().read_text()
    assert "run 1,1,loss,step,1," in saved(page, chart, "CSV").path().read_text()
    page.close()
    notebook.reopen(trusted=trusted)
    shown = notebook.page.locator(".mwmagic-view")
    notebook.see(shown.first)
    name = "saved" if trusted else "saved-untrusted"
    if trusted:
        notebook.see(view(notebook.page).nth(1))
        view(notebook.page).first.get_by_role("button", name="units").click()
        assert column(view(notebook.page).first, "units") == ["7", "32", "64", "128"]
    else:
        assert view(notebook.page).count() == 0
        assert column(shown.first, "units") == ["32", "128", "64", "7"]
        images = shown.last.locator("img")
        eventually(lambda: images.first.evaluate("one => one.complete && one.naturalWidth"), "it")
        assert shown.last.locator("b").first.text_content().startswith("run 2 is best by loss")
    pictured(notebook, shot, name, shown.last)
    assert notebook.page.evaluate("window.hacked") is None


@both
def test_runs_are_compared_by_their_curves_and_what_differs(notebook, shot):
    written(notebook, CHANGED, "%mw_compare 1 2 3", "%mw_compare 2 5")
    shown = notebook.see(view(notebook.page).first)
    said = "run 2 is best by loss (0.01562); it differs from run 3 in units and lr"
    assert shown.locator("strong").text_content() == said
    chart = shown.locator("figure").first
    eventually(lambda: chart.locator("svg path").count() > 3, "curves")
    plot = chart.locator(".mw-plot")
    ends = "loss: run 1 · step 10: 0.1125 (0.0625 to 0.1625)"
    assert plot.get_attribute("aria-label").startswith(ends)
    bands = chart.locator("path[style*='fill']")
    assert bands.count() == 3, "the spread of the workers"
    pictured(notebook, shot, "comparison", shown)
    for axis, last in (("epoch", 2), ("seconds", None)):
        shown.get_by_label("What the charts count").select_option(axis)
        label = plot.get_attribute("aria-label")
        assert f" · {axis} {last or ''}" in label
    shown.get_by_role("button", name="run 3").click()
    assert bands.count() == 2
    assert "run 3" not in plot.get_attribute("aria-label")
    chart.get_by_role("button", name="Logarithmic scale").click()
    plot.focus()
    notebook.page.keyboard.press("Home")
    assert plot.get_attribute("aria-valuetext").startswith("run 1 · seconds ")
    cells_ = shown.locator("tbody tr", has_text="units").locator("td").all_text_contents()
    assert cells_ == ["32", "128", "64"]
    two = view(notebook.page).nth(1)
    assert two.locator("strong").text_content().endswith("differ in 1 line of code")
    assert two.locator(".mw-more").all_text_contents() == ["+ extra = 1\n"]
    notebook.page.set_viewport_size({"width": 700, "height": 900})
    plot.focus()
    notebook.page.keyboard.press("End")
    tip, around = chart.locator(".mw-tip").bounding_box(), plot.bounding_box()
    assert tip["x"] >= around["x"]
    assert tip["x"] + tip["width"] <= around["x"] + around["width"] + 1
    shot(notebook, "comparison-narrow", whole=True)
    assert notebook.page.evaluate("window.hacked") is None
