"""A Jupyter server, and one notebook in one page of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request

import nbformat
from nbconvert import HTMLExporter
from nbformat.sign import NotebookNotary
from playwright.sync_api import TimeoutError as TookTooLong
from processes import eventually

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --force-color-profile=srgb"
)
PLACES = {"lab": "lab/tree", "notebook": "notebooks"}
READY = "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.isReady"
SETTLED = "() => document.body.dataset.jpThemeName || document.querySelector('.jp-Dialog')"
OPEN = """path => {
    window.jupyterapp.commands.execute("docmanager:open", { path });
}"""
SHOWN = "path => window.jupyterapp.shell.currentWidget?.context?.path === path"
CLOSE = """() => {
    for (const shown of [...window.jupyterapp.shell.widgets("main")]) {
        if (shown.context) shown.context.model.dirty = false;  // so Jupyter does not ask
        shown.close();
    }
}"""
ASKED_MS = 2_500
"""A little less than a button waits for its second click."""

OPENINGS = 3
"""How often a notebook is opened whose theme a busy server does not deliver in time."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def reachable(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status == 200
    except OSError:
        return False


def watched(context):
    """Open a page that notes what goes wrong in the modules which anywidget loads."""
    page = context.new_page()
    page.problems = []
    # Such a module is a blob: what has none in its stack is Jupyter's own.
    page.on("pageerror", lambda error: "blob:" in error.stack and page.problems.append(error.stack))
    return page


def saved(page, chart, kind):
    """Save a chart as a file of this kind, and return the download."""
    with page.expect_download() as download:
        chart.get_by_role("button", name=f"{kind} file of").click()
    return download.value


def emptied(page):
    """Close what a page of JupyterLab shows, and tell whether that left nothing."""
    page.evaluate(CLOSE)
    return not page.locator(".jp-Dialog").count()


def lines(page, task=None):
    """Return what a page's log pane shows, of all tasks or one, but for notes."""
    chosen = f'[data-task="{task}"]' if task else "[data-task]"
    texts = page.locator(f".mw .mw-blocks .mw-line{chosen}")
    return [line for text in texts.all_text_contents() for line in text.split("\n")]


class Server:
    """A Jupyter server, which writes below one folder, or its notebooks into another."""

    def __init__(self, folder, root=None):
        self.root = root or folder / "root"
        self.root.mkdir(exist_ok=root is not None)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        own = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "HOME": "home"}
        own |= {"JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces"}
        self.env = {**os.environ, **{name: str(folder / path) for name, path in own.items()}}
        # Kernels' sockets are files, whose names must be short: a port may be taken by another.
        self.env["JUPYTER_RUNTIME_DIR"] = tempfile.mkdtemp()
        (folder / "home").mkdir()
        news = folder / "settings" / "@jupyterlab" / "apputils-extension"
        news.mkdir(parents=True)
        (news / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
        page = folder / "config" / "labconfig"
        page.mkdir(parents=True)
        # Otherwise each page asks whether JupyterLab itself must be built again.
        (page / "page_config.json").write_text('{"buildCheck": false}')
        self.log = (folder / "server.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", *self.options()],
            cwd=self.root,
            env=self.env,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def options(self):
        return [
            "--ServerApp.ip=127.0.0.1",
            f"--ServerApp.port={self.port}",
            "--KernelManager.transport=ipc",
            "--IdentityProvider.token=",
            "--ServerApp.disable_check_xsrf=True",
            "--LabApp.expose_app_in_browser=True",
            "--JupyterNotebookApp.expose_app_in_browser=True",
            "--LabApp.news_url=None",
        ]

    def kernels(self):
        with urllib.request.urlopen(f"{self.url}/api/kernels", timeout=120) as answer:
            return json.load(answer)

    def end_kernels(self):
        for kernel in self.kernels():
            url = f"{self.url}/api/kernels/{kernel['id']}"
            urllib.request.urlopen(
                urllib.request.Request(url, method="DELETE"), timeout=120
            ).close()

    def trust(self, notebook):
        """Sign a notebook as `jupyter trust` does, without a process."""
        data = self.env["JUPYTER_DATA_DIR"]
        NotebookNotary(data_dir=data).sign(notebook)

    def reachable(self):
        return reachable(f"{self.url}/api")

    def close(self):
        """End the server, which waits for ever where a page asked for a kernel that just ended."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()
        self.log.close()


class Notebook:
    """One notebook in one page."""

    def __init__(self, server, page, place, name):
        self.server, self.page, self.place, self.name = server, page, place, name
        self.folder = server.root / name  # the kernel's, and the record's
        self.folder.mkdir()
        self.path = self.folder / "notebook.ipynb"

    def write(self, *cells):
        notebook = nbformat.v4.new_notebook()
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
        nbformat.write(notebook, self.path)
        return self

    def open(self):
        """Open it, in JupyterLab where the page has that already."""
        if not self.page.url.startswith(self.server.url):
            return self.load()
        path = f"{self.name}/notebook.ipynb"
        self.page.evaluate(OPEN, path)
        self.page.wait_for_function(SHOWN, arg=path)
        self.page.wait_for_function(READY, timeout=120_000)
        return self

    def load(self, page=None):
        """Load a page that opens it and knows of nothing else."""
        page = page or self.page
        for _ in range(OPENINGS):
            page.goto(f"{self.server.url}/{self.place}/{self.name}/notebook.ipynb?reset")
            page.wait_for_function(READY, timeout=120_000)
            page.wait_for_function(SETTLED, timeout=120_000)
            if not page.locator(".jp-Dialog", has_text="Error Loading Theme").count():
                break
        return self

    def command(self, name, page=None):
        return (page or self.page).evaluate(
            "name => window.jupyterapp.commands.execute(name)", name
        )

    def run(self):
        """Run all cells; returns when they have run."""
        self.command("notebook:run-all-cells")
        return self

    def start(self):
        """Run all cells; returns at once."""
        self.page.evaluate(
            "() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }"
        )
        return self

    def save(self):
        self.command("docmanager:save")
        return nbformat.read(self.path, 4)

    @property
    def board(self):
        return self.page.locator(".mw").last

    def button(self, name):
        return self.board.get_by_role("button", name=name)

    def sure(self, name):
        """Press a button that asks for a second click; Jupyter may render it again meanwhile."""
        again = self.button(f"{name}? Click again")

        def pressed():
            if not again.count():
                self.button(name).click()
            with contextlib.suppress(TookTooLong):
                again.click(timeout=ASKED_MS)
                return True
            return False

        eventually(pressed, f"second click on {name}")

    def lines(self, task=None, page=None):
        return lines(page or self.page, task)

    def reopen(self, *, trusted):
        """Open the saved notebook without its kernel, in a page that knows nothing of it."""
        self.server.end_kernels()
        saved = nbformat.read(self.path, 4)
        saved.metadata["edited"] = trusted  # the signature is of another text now
        nbformat.write(saved, self.path)
        if trusted:
            self.server.trust(saved)
        self.load()

    def converted(self):
        """Return a page that shows the saved notebook as nbconvert writes it, without Jupyter."""
        html, _ = HTMLExporter().from_filename(str(self.path))
        page = self.page.context.new_page()
        page.route("http*://**", lambda route: route.abort())
        page.set_content(html, wait_until="domcontentloaded")
        return page

    def theme(self, name):
        self.page.evaluate(
            "theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", name
        )
        self.page.wait_for_function(
            "theme => document.body.dataset.jpThemeName === theme", arg=name
        )

    def see(self, locator, timeout=120_000):
        locator.wait_for(timeout=timeout)
        return locator

    def state(self, words, timeout=120_000, page=None):
        """Wait until the header says so."""
        found = (page or self.page).locator(".mw .mw-words", has_text=words)
        found.last.wait_for(timeout=timeout)
        return self
