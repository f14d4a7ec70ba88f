"""The board of a sweep in a real JupyterLab: live, saved, without a kernel, and of many trials."""

from __future__ import annotations

import os
import signal

import cells
import pytest
from processes import eventually
from test_runs_page import OVERFLOWS, column, on_paper, pictured

from mwmagic.experiments.space import read_space, space_of
from mwmagic.experiments.sweep import Plan, every, planned_sweep
from mwmagic.record import RunDirectory
from mwmagic.record.metrics import metric_line

pytestmark = [pytest.mark.slow, pytest.mark.browser]

BAD = "<img src=x onerror='window.hacked = 1'>"
TRAINING = f"""
import mwmagic.worker

units = 64
label = "ok"
for step in range(1, 11):
    while units == 16 and step == 5 and os.path.exists("hold"):
        time.sleep(0.05)
    mwmagic.worker.report(epoch=1 + step // 6, step=step, loss=20 / units / step + 0.1 * index)
    time.sleep(0.12)  # reports that come faster are not all kept
if units == 7:
    raise ValueError("too few units {BAD}")
"""
LAUNCH = cells.worker(TRAINING, "--quiet", "--wait")
SWEEP = "%mw_sweep units=7,32,16,128"


def board(page):
    """Return the view of the sweep, in which the board of a run may be."""
    return page.locator("section.mw", has=page.get_by_role("region", name="Trials")).first


def trials(shown):
    return [text.strip() for text in column(shown.get_by_role("region", name="Trials"), "trial")]


def title(shown, words):
    shown.locator("strong", has_text=words).first.wait_for(timeout=120_000)


def choose(shown, trial):
    shown.get_by_role("button", name=str(trial), exact=True).click()
    return shown.get_by_role("region", name="The chosen trial")


@pytest.mark.usefixtures("own_page")
def test_a_sweep_is_shown_live_and_kept(notebook, shot):
    (notebook.folder / "hold").touch()
    notebook.write(cells.declare(), LAUNCH, SWEEP).open().start()
    shown = notebook.see(board(notebook.page))
    title(shown, "sweep 1: 2 of 4 trials, 1 running")
    eventually(lambda: trials(shown) == ["2", "3", "1", "4"], "the best first")
    assert column(shown, "state")[:4] == ["finished", "running", "failed", "waiting"]
    assert shown.locator(".mw-best").all_text_contents() == ["0.0625"]
    chart = shown.locator("figure").first
    eventually(lambda: "trial 3" in str(chart.locator(".mw-plot").get_attribute("aria-label")), "")
    # The one that is going has its own board.
    chosen = choose(shown, 3)
    inner = notebook.see(chosen.locator("section.mw"))
    inner.locator("header strong", has_text="run 4").wait_for()
    assert chosen.locator("strong").first.text_content() == "trial 3, run 4"
    pictured(notebook, shot, "sweep-live", shown)
    # One that is over has its saved one, also by the keyboard alone.
    shown.get_by_role("button", name="1", exact=True).focus()
    notebook.page.keyboard.press("Enter")
    notebook.see(chosen.locator("pre", has_text="ValueError: too few units <img"))
    notebook.page.keyboard.type("dd")
    assert notebook.page.evaluate("document.activeElement.textContent.trim()") == "1"
    assert chosen.locator("section.mw").count() == 0
    assert choose(shown, 4).locator("strong").first.text_content() == "trial 4 was not launched yet"
    # Saved in the middle, and the page loaded again.
    saved = notebook.save().cells[2].outputs[-1].data
    assert set(saved) == {"text/plain", "text/html"}
    assert "sweep 1: 2 of 4 trials, 1 running" in saved["text/html"]
    assert "still going at " in saved["text/html"]
    assert "data:image/svg+xml" in saved["text/html"]
    notebook.load()
    shown = notebook.see(board(notebook.page))
    (notebook.folder / "hold").unlink()
    title(shown, "sweep 1, 4 trials: 3 finished, 1 failed")
    eventually(lambda: trials(shown) == ["4", "2", "3", "1"], "the best first")
    notebook.see(shown.get_by_text("best: trial 4 (run 5; units 128), loss 0.01562"))
    assert "trial 4, run 5" in shown.text_content()
    shown.get_by_role("button", name="Close").first.click()
    choose(shown, 4).locator("img[alt^='loss']").wait_for()
    pictured(notebook, shot, "sweep-over", shown)
    # The saved notebook needs no kernel, and runs scripts only if it is trusted.
    notebook.save()
    on_paper(notebook).close()
    notebook.reopen(trusted=False)
    shown = notebook.see(notebook.page.locator(".mwmagic-plain"))
    assert not board(notebook.page).count()
    assert column(shown, "trial") == ["4", "2", "3", "1"]
    eventually(lambda: shown.locator("img").first.evaluate("one => one.naturalWidth"), "picture")
    pictured(notebook, shot, "sweep-untrusted", shown)
    notebook.reopen(trusted=True)
    shown = notebook.see(board(notebook.page))
    shown.get_by_role("button", name="units").click()
    assert trials(shown) == ["1", "3", "2", "4"]
    assert "%mw_show 5 shows its board" in choose(shown, 4).text_content()
    assert notebook.page.evaluate("window.hacked") is None


@pytest.mark.usefixtures("own_page")
def test_a_killed_kernel_leaves_the_trials_as_they_were(notebook, shot):
    (notebook.folder / "hold").touch()
    pid = "import os, pathlib\npathlib.Path('pid').write_text(str(os.getpid()))"
    notebook.write(pid, cells.declare(), LAUNCH, SWEEP).open().start()
    shown = notebook.see(board(notebook.page))
    title(shown, "sweep 1: 2 of 4 trials, 1 running")
    os.kill(int((notebook.folder / "pid").read_text()), signal.SIGKILL)
    notebook.see(shown.get_by_text("kernel gone; as last seen"))
    notebook.page.locator(".jp-Dialog").get_by_role("button", name="Ok").click()
    assert "%mw_show 3 shows its board" in choose(shown, 2).text_content()
    notebook.page.set_viewport_size({"width": 700, "height": 900})
    shot(notebook, "sweep-gone", whole=True)


def recorded(root, count):
    """Record a sweep of many trials, as if it had run; the last ones wait."""
    source = "units = 1\nlr = 0.1\n"
    words = read_space([f"units={','.join(map(str, range(1, count // 2 + 1)))}", "lr=0.1,0.2"])
    space = space_of(words, source, (), {})
    sweep = planned_sweep(root, Plan(script="main.py", cwd=str(root)), source, every(space))
    for trial in sweep.trials()[:-2]:
        run = RunDirectory.create(root, "main")
        (run.paths.root / "main.py").write_text(source)
        losses = [trial.params["lr"] * 10 / trial.params["units"] / step for step in range(1, 9)]
        entry = {"task": "worker:0", "attempt": 1, "source": "report", "kind": "train", "epoch": 1}
        lines = [
            metric_line(**entry, wall=1e9 + step, step=step, metrics={"loss": loss})
            for step, loss in enumerate(losses, 1)
        ]
        run.paths.metrics.write_text("\n".join(lines) + "\n")
        reached = {"value": losses[-1], "attempt": 1, "epoch": 1, "step": 8}
        launch = {"script": "main.py", "source": "main.py", "args": [], "given": {}}
        run.write(
            {
                "state": "failed" if trial.number == 9 else "finished",
                "started": 1e9,
                "ended": 1e9 + 9,
                "tasks": {"worker:0": {}},
                "launches": {"worker:0": {**launch, "trial": sweep.label(trial)}},
                "metrics": {"worker:0": {"loss": {"last": reached, "best": reached}}},
            }
        )
        run.flush()
    return sweep


def test_64_trials_stay_usable(notebook, shot):
    recorded(notebook.folder, 64)
    notebook.write("%load_ext mwmagic\n%mw_sweep --show", "from mwmagic import sweeps\nsweeps()[0]")
    notebook.open().run()
    shown = notebook.see(board(notebook.page))
    title(shown, "sweep 1: 62 of 64 trials")
    assert len(trials(shown)) == 20
    pictured(notebook, shot, "sweep-64", shown)
    shown.get_by_role("button", name="Show all 64").click()
    assert len(trials(shown)) == 64
    shown.get_by_role("button", name="units").click()
    assert trials(shown)[:2] == ["1", "2"]
    shown.get_by_role("searchbox", name="Filter the trials").fill("lr=0.2 finished")
    assert len(trials(shown)) == 31
    choose(shown, 60)
    assert "%mw_show 60 shows its board" in shown.text_content()
    notebook.page.set_viewport_size({"width": 700, "height": 900})
    shot(notebook, "sweep-64-narrow", whole=True)
    assert not notebook.page.evaluate(OVERFLOWS)
