"""The moving picture of the README: ``make film`` records it from a real JupyterLab.

Two workers train, one is killed, the cause is named, and the run is restarted and finishes. All
of it happens as it is shown; it is played faster, and waits are cut short.
"""

from __future__ import annotations

import io
import sys
import time

from PIL import Image, ImageChops
from studio import IMAGES, THEMES, studio, tidy

SIZE_PIXELS = {"width": 940, "height": 700}
SHARPNESS_RATIO = 1.0
STILL_SECONDS = 0.5
"""How long a picture stays at most, unless it is held."""
LIMIT_SECONDS = 15.0
LIMIT_BYTES = 2_000_000
PATIENCE_SECONDS = 60.0
WARM_MS = 12_000
"""How long a cluster takes to import TensorFlow, before which its workers start cold."""

PROGRAM = """
import warnings

import numpy as np
import tensorflow as tf

warnings.simplefilter("ignore")  # a warning of Keras names a file of this machine
points = np.random.default_rng(1).uniform(-1, 1, (12_800, 2)).astype("float32")
inside = (points**2).sum(axis=1) < 0.6
dataset = tf.data.Dataset.from_tensor_slices((points, inside)).batch(128).cache().prefetch(4)


def build_model():
    tf.keras.utils.set_random_seed(1)
    layers = [tf.keras.Input((2,)), tf.keras.layers.Dense(32, "relu")]
    model = tf.keras.Sequential([*layers, tf.keras.layers.Dense(1, "sigmoid")])
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return model
"""
DECLARE = "%load_ext mwmagic\n%mw_cluster 2 --quiet"
TRAIN = """%%mw_worker
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()

from circle import build_model, dataset

with strategy.scope():
    model = build_model()
backup = tf.keras.callbacks.BackupAndRestore("backup")
model.fit(dataset, epochs=6, callbacks=[backup])"""

PAGE = """
#jp-top-panel, #jp-menu-panel, #jp-top-bar, .jp-SideBar { display: none !important; }
.jp-Notebook-footer { visibility: hidden; }
.mw .mw-lines { height: 60px !important; }
"""
SHOW = """([selector, block]) => {
    const found = document.querySelectorAll(selector);
    found[found.length - 1].scrollIntoView({ block, behavior: "smooth" });
}"""


class Film:
    """Pictures of a page, each with the seconds for which it stays."""

    def __init__(self, page):
        self.page = page
        self.part = page.locator(".jp-NotebookPanel").bounding_box()
        self.pictures = []
        self.at = time.monotonic()

    def take(self, pace):
        """Add what the page shows now, which is played so much faster than it came."""
        shot = Image.open(io.BytesIO(self.page.screenshot(clip=self.part))).convert("RGB")
        now = time.monotonic()
        if self.pictures:
            last = self.pictures[-1]
            last[1] = min(last[1] + (now - self.at) / pace, max(last[1], STILL_SECONDS))
        self.at = now
        if not self.pictures or ImageChops.difference(shot, self.pictures[-1][0]).getbbox():
            self.pictures.append([shot, 0.0])

    def until(self, condition, pace):
        """Record until something is so."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(condition)
            self.take(pace)

    def hold(self, seconds):
        """Keep what the page shows now for so long."""
        self.take(1.0)
        self.pictures[-1][1] = max(self.pictures[-1][1], seconds)

    def show(self, selector, block):
        """Scroll to the last of these elements."""
        self.page.evaluate(SHOW, [selector, block])
        end = time.monotonic() + 0.8
        self.until(lambda: time.monotonic() > end, 2.0)

    @property
    def seconds(self):
        """How long it plays."""
        return sum(seconds for _, seconds in self.pictures)

    def encoded(self):
        """Return it as an animated WebP."""
        images, buffer = [image for image, _ in self.pictures], io.BytesIO()
        images[0].save(
            buffer,
            "WEBP",
            save_all=True,
            append_images=images[1:],
            duration=[max(20, round(1000 * seconds)) for _, seconds in self.pictures],
            loop=0,
            quality=70,
            method=4,
            minimize_size=True,
            kmax=200,
        )
        return buffer.getvalue()


def prepared(opened, theme):
    """Return a notebook whose cluster is ready, in a page without what is beside it."""
    notebook = opened(theme, DECLARE, TRAIN, "")
    (notebook.folder / "circle.py").write_text(PROGRAM)
    notebook.load()
    tidy(notebook)
    notebook.theme(THEMES[theme])
    notebook.page.add_style_tag(content=PAGE)
    notebook.page.evaluate("() => window.dispatchEvent(new Event('resize'))")
    notebook.page.wait_for_timeout(500)
    notebook.page.locator(".jp-CodeCell").first.locator(".cm-content").click()
    notebook.command("notebook:run-cell-and-select-next")
    return notebook


def training(notebook, epoch):
    return notebook.board.get_by_text(f"epoch {epoch}/6").count() > 0


def record(notebook):
    """Play the scenes."""
    page, film = notebook.page, Film(notebook.page)
    page.wait_for_timeout(WARM_MS)
    film.hold(1.0)
    notebook.command("notebook:run-cell-and-select-next")
    film.until(notebook.board.count, 2.0)
    film.until(lambda: training(notebook, 2), 3.0)
    film.show(".mw", "start")
    film.until(lambda: training(notebook, 3), 3.0)
    page.locator(".jp-CodeCell").last.locator(".cm-content").click()
    film.show(".mw", "start")
    pid = pid_of(notebook, "worker:1")
    for letter in f"!kill -9 {pid}":
        page.keyboard.type(letter)
        film.take(1.2)
    film.hold(0.8)
    notebook.command("notebook:run-cell")
    film.until(lambda: headed(notebook, "failed"), 1.0)
    film.show(".mw", "start")
    film.hold(2.4)
    notebook.button("Restart").click()
    film.until(lambda: headed(notebook, "finished"), 3.0)
    film.hold(2.0)
    return film


def headed(notebook, words):
    """Return whether the header says so."""
    return notebook.board.locator(".mw-words", has_text=words).count() > 0


def pid_of(notebook, task):
    """Return the process id that the dashboard shows for a task."""
    row = notebook.board.locator(".mw-card", has=notebook.page.get_by_role("button", name=task))
    return row.text_content().split("pid ")[1].split()[0]


def main():
    with studio(SIZE_PIXELS, SHARPNESS_RATIO) as opened:
        for theme in sys.argv[1:] or THEMES:
            film = record(prepared(opened, theme))
            data = film.encoded()
            fits = film.seconds <= LIMIT_SECONDS and len(data) <= LIMIT_BYTES
            if fits:
                (IMAGES / f"demo-{theme}.webp").write_bytes(data)
            length = f"{film.seconds:.1f} s, {len(data) / 1e6:.2f} MB"
            limits = f"more than {LIMIT_SECONDS:g} s or {LIMIT_BYTES / 1e6:g} MB, so it is not kept"
            print(f"{theme}: {length}" + ("" if fits else f", {limits}: a busy machine?"))


if __name__ == "__main__":
    main()
