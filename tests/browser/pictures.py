"""The pictures of README and docs: ``make pictures`` takes them in a real JupyterLab.

``python tests/browser/pictures.py failure sweep`` takes those of these names. Each is taken in the
light and in the dark theme.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from PIL import Image
from studio import IMAGES, THEMES, studio, tidy

sys.path.append(str(Path(__file__).parents[1] / "slowness"))

import cells
from slowed import PROGRAM

SIZE_PIXELS = {"width": 1000, "height": 1400}
COLOURS_LIMIT = 128
"""Of how many colours a picture consists, which makes its file small."""

FAILING = """%%mw_worker
from mwmagic.worker import this_task

if this_task().index == 1:
    raise ValueError("the learning rate must be positive")
import time

time.sleep(600)
"""
HANGING = """%%mw_worker
import time

import tensorflow as tf
from mwmagic.worker import report, this_task

strategy = tf.distribute.MultiWorkerMirroredStrategy()


def load_batch(step):
    if this_task().index == 1 and step == 40:
        time.sleep(600)
    return tf.random.normal([64])


@tf.function
def train(batch):
    return strategy.reduce("MEAN", strategy.run(tf.norm, (batch,)), axis=None)


for step in range(1, 101):
    loss = train(load_batch(step)) / step
    report(step=step, steps=100, loss=float(loss))
"""
RUNS = """%%mw_worker --quiet --wait
import time

from mwmagic.worker import report, this_task

units = 32
learning_rate = 0.1
for step in range(1, 21):
    loss = 1 / (learning_rate * units * step) ** 0.3 + 0.02 * this_task().index
    report(step=step, loss=loss, accuracy=1 - loss / 4)
    time.sleep(0.12)
"""
CHANGED = [
    RUNS.replace("--wait", f"--wait {params}")
    for params in ("-p units=64", "-p units=64 -p learning_rate=0.5")
]
SWEEP = "%mw_sweep units=32,64 learning_rate=0.1,0.5 --metric accuracy"
SLOWED = PROGRAM.replace('"base"', '"input-waits"').replace("0.06 *", "0.12 *")
NAMED = ",".join(f"{name}=127.0.0.1" for name in ("node-a", "node-b"))
HOSTS = cells.declare(6, f"--engine command --hosts {NAMED} -- env NODE={{host}} {{python}} -")
LIVE = """%%mw_live
import os

rank = int(os.environ["MWMAGIC_TASK"][-1])
print("ready")
1 / (1 - rank)
"""


def board(notebook):
    return notebook.board


def view(notebook):
    """Return the last table or comparison."""
    return notebook.page.locator(".mwmagic-view > .mw, section.mw").last


def cell(notebook):
    """Return the last cell that has an output."""
    found = notebook.page.locator(".jp-CodeCell", has=notebook.page.locator(".jp-OutputArea-child"))
    return found.last


def until(words):
    """Return what waits until the header says so."""
    return lambda notebook: notebook.state(words)


def stacks(notebook):
    """Show where the workers are, once one of them holds up the other."""
    notebook.see(notebook.board.get_by_text("load_batch").first)


def sweep(notebook):
    """Return the view of the sweep: another, of a trial that nobody chose, is hidden in it."""
    region = notebook.page.get_by_role("region", name="Trials")
    return notebook.page.locator("section.mw", has=region).first


def shown(notebook):
    notebook.see(view(notebook))


def swept(notebook):
    title = sweep(notebook).locator("strong", has_text="4 trials: 4 finished")
    notebook.see(title.first, timeout=240_000)


def slow(notebook):
    notebook.see(notebook.board.get_by_text("holds up every step").first, timeout=90_000)
    notebook.board.evaluate("board => { board.lastElementChild.hidden = true; }")  # the log


def trained(notebook):
    """Show only these lines of the log: others name files of this machine."""
    notebook.state("finished")
    notebook.board.get_by_label("Search the log").fill("accuracy")


def failed(notebook):
    notebook.see(notebook.page.get_by_text("ZeroDivisionError").first)


PICTURES = {
    "training": ([cells.declare(), cells.TRAINING], trained, board),
    "failure": ([cells.declare(), FAILING], until("failed"), board),
    "hang": ([cells.declare(2, "--stall-timeout 5"), HANGING], stacks, board),
    "sixteen": ([cells.declare(16), cells.MANY], until("failed"), board),
    "table": ([cells.declare(), RUNS, *CHANGED, "%mw_runs"], shown, view),
    "comparison": ([cells.declare(), RUNS, *CHANGED, "%mw_compare 1 2 3"], shown, view),
    "sweep": ([cells.declare(), RUNS, SWEEP], swept, sweep),
    "live": ([cells.declare(), LIVE], failed, cell),
    "slow": ([cells.declare(), "%%mw_worker\n" + SLOWED], slow, board),
    "hosts": ([HOSTS, cells.MANY], until("failed"), board),
}
"""The cells that show something, what it waits for, and what of the page is the picture."""


def take(notebook, name, wait, part):
    """Take one in both themes."""
    tidy(notebook)
    notebook.start()
    wait(notebook)
    for theme, title in THEMES.items():
        notebook.theme(title)
        notebook.page.wait_for_timeout(700)
        shot = Image.open(io.BytesIO(part(notebook).screenshot())).convert("RGB")
        path = IMAGES / f"{name}-{theme}.png"
        shot.quantize(COLOURS_LIMIT, dither=Image.Dither.NONE).save(path, optimize=True)
        print(
            f"{path.name}: {shot.width} x {shot.height}, {path.stat().st_size // 1000} kB",
            flush=True,
        )


def main():
    wanted = sys.argv[1:] or PICTURES
    with studio(SIZE_PIXELS) as opened:
        for name in wanted:
            written, wait, part = PICTURES[name]
            try:
                notebook = opened(name, *written)
                notebook.load()
                take(notebook, name, wait, part)
            finally:
                notebook.server.end_kernels()


if __name__ == "__main__":
    main()
