"""Where pictures of the documentation are taken: a JupyterLab, and a Chromium that shows it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))

from lab import CHROMIUM, PLACES, QUIET, Notebook, Server, watched
from playwright.sync_api import sync_playwright
from processes import eventually

IMAGES = Path(__file__).parents[2] / "docs" / "images"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
COMMANDS = ("application:toggle-left-area", "statusbar:toggle")
SHOWN = "() => !document.querySelector('#jp-left-stack')?.checkVisibility()"


@contextmanager
def work():
    """Yield a folder whose path, which tracebacks show, reads as a user's; it must not exist."""
    root = Path.home() / "work"
    root.mkdir()
    try:
        yield root
    finally:
        shutil.rmtree(root)


@contextmanager
def studio(size, sharpness=1.0):
    """Yield what opens a notebook of a name in a page of this size.

    One page has so many pixels for each of its own.
    """
    with (
        tempfile.TemporaryDirectory(prefix="mw-", dir="/tmp") as folder,
        work() as root,
        sync_playwright() as run,
    ):
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        server = Server(Path(folder), root)
        # Keras writes its settings there when it is first imported; a cluster remarks on that.
        subprocess.run([sys.executable, "-c", "import keras"], env=server.env, check=True)
        context = run.chromium.launch_persistent_context(
            Path(folder) / "profile",
            executable_path=CHROMIUM,
            args=QUIET.split(),
            viewport=size,
            device_scale_factor=sharpness,
        )
        context.set_default_timeout(60_000)
        page = watched(context)

        def opened(name, *cells):
            notebook = Notebook(server, page, PLACES["lab"], name)
            notebook.write(*cells)
            return notebook

        try:
            eventually(server.reachable, "Jupyter server")
            yield opened
        finally:
            server.end_kernels()
            context.close()
            server.close()


def tidy(notebook):
    """Hide what is beside the notebook."""
    if not notebook.page.evaluate(SHOWN):
        for command in COMMANDS:
            notebook.command(command)
