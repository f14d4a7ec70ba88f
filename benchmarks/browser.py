"""A JupyterLab and a Chromium with an instrumented page, as the browser tests use them."""

from __future__ import annotations

import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "browser"))

import cells  # noqa: F401 - what the browser tests use
from lab import CHROMIUM, QUIET, Notebook, Server
from processes import eventually

WATCH = """
window.seen = new Map();
window.shown = 0;
const stamp = / at (\\d{10}\\.\\d{7})/g;
function look(records) {
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
"""
"""Notes when each line that has its own time is on screen."""


class Bench:
    def __init__(self, server, browser):
        self.server, self.browser, self.count = server, browser, 0

    def open(self, *texts):
        """Open a notebook with these cells in an instrumented page."""
        self.count += 1
        self.context = self.browser.new_context(viewport={"width": 1280, "height": 1400})
        self.context.set_default_timeout(300_000)
        page = self.context.new_page()
        page.add_init_script(WATCH)
        notebook = Notebook(self.server, page, "lab/tree", f"bench-{self.count}")
        notebook.write(*texts).open()
        return notebook

    def close(self):
        self.context.close()
        self.server.end_kernels()


@contextmanager
def bench():
    """Yield what opens notebooks."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory(prefix="mw-") as name, sync_playwright() as playwright:
        server = Server(Path(name))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())
        try:
            eventually(server.reachable, "Jupyter server")
            yield Bench(server, browser)
        finally:
            browser.close()
            server.close()
