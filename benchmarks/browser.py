"""A JupyterLab and a Chromium with an instrumented page, as the browser tests use them."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
from jupyter_client import BlockingKernelClient

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "browser")]

import cells  # noqa: E402, F401 - what the browser tests use
from lab import CHROMIUM, QUIET, Notebook, Server  # noqa: E402
from processes import eventually  # noqa: E402

WATCH = """
window.seen = new Map();
window.shown = 0;
window.tasks = [];
const stamp = / at (\\d{10}\\.\\d{7})/g;
window.watched = true;
function look(records) {
  if (!window.watched) return;
  const found = new Set();
  for (const { addedNodes, target } of records) {
    for (const node of addedNodes.length ? addedNodes : [target]) {
      const text = node.textContent.slice(-200000);
      for (const [, at] of text.matchAll(stamp)) if (!window.seen.has(at)) found.add(at);
    }
  }
  if (!found.size) return;
  for (const at of found) window.seen.set(at, null);
  requestAnimationFrame(() => setTimeout(() => {
    for (const at of found) window.seen.set(at, Date.now() / 1000 - at);
    window.shown += found.size;
  }));
}
const all = { subtree: true, childList: true, characterData: true };
new MutationObserver(look).observe(document, all);
const note = (list) => window.tasks.push(...list.getEntries().map((one) => one.duration));
new PerformanceObserver(note).observe({ type: "longtask" });
"""
"""Notes when each line that tells its own time is on screen, and the page's long tasks."""


class Traffic:
    """The bytes that a page receives over its websockets."""

    def __init__(self, page):
        self.bytes = 0
        page.on("websocket", lambda socket: socket.on("framereceived", self._count))

    def _count(self, payload):
        self.bytes += len(payload)


class Cells(threading.Thread):
    """Executes a small cell repeatedly, outside the page, and notes how long each takes."""

    def __init__(self, connection):
        super().__init__(daemon=True)
        self.client = BlockingKernelClient(connection_file=str(connection))
        self.client.load_connection_file()
        self.client.start_channels()
        self.times, self.over = [], False
        self.start()

    def run(self):
        while not self.over:
            start = time.perf_counter()
            self.client.execute_interactive("1", silent=True, timeout=60)
            self.times.append(time.perf_counter() - start)
            time.sleep(0.05)

    def end(self):
        self.over = True
        self.join()
        self.client.stop_channels()
        return self.times


class Bench:
    def __init__(self, server, browser, folder):
        self.server, self.browser, self.folder, self.count = server, browser, folder, 0

    def open(self, *texts):
        """Open a notebook with these cells in an instrumented page."""
        self.count += 1
        self.context = self.browser.new_context(viewport={"width": 1280, "height": 1400})
        self.context.set_default_timeout(300_000)
        page = self.context.new_page()
        page.add_init_script(WATCH)
        self.traffic = Traffic(page)
        notebook = Notebook(self.server, page, "lab/tree", f"bench-{self.count}")
        notebook.write(*texts).open()
        self.devtools = self.context.new_cdp_session(page)
        self.devtools.send("Performance.enable")
        return notebook

    def close(self):
        self.context.close()
        self.server.end_kernels()

    def page(self):
        metrics = self.devtools.send("Performance.getMetrics")["metrics"]
        return {one["name"]: one["value"] for one in metrics}

    def kernel(self):
        """Return the kernel's process and its connection file."""
        [kernel] = self.server.kernels()
        found = next(self.folder.rglob(f"kernel-{kernel['id']}.json"))
        [process] = [
            p for p in psutil.process_iter(["cmdline"]) if str(found) in (p.info["cmdline"] or ())
        ]
        return process, found

    def cells(self):
        return Cells(self.kernel()[1])


@contextmanager
def bench():
    """Yield what opens notebooks."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory(prefix="mw-") as name, sync_playwright() as playwright:
        server = Server(Path(name))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())
        try:
            eventually(server.reachable, "Jupyter server")
            yield Bench(server, browser, Path(name))
        finally:
            browser.close()
            server.close()
