"""The dashboard in a page that knows nothing of Jupyter's, as VS Code's and Colab's are.

Neither can be had here. This page does what anywidget asks of any, has their colours, and is
connected to a real kernel.
"""

from __future__ import annotations

import cells
import pytest
from comms import Kernel
from contrast import LEGIBLE, contrast, parts
from kernels import started
from lab import lines, watched

pytestmark = [pytest.mark.slow, pytest.mark.browser]

HOST = """
async ({ state, colours }) => {
  for (const name in colours) document.documentElement.style.setProperty(name, colours[name]);
  const style = document.createElement("style");
  style.textContent = state._css;
  document.head.append(style);
  window.heard = {};
  const model = {
    get: (name) => state[name],
    on: (event, act) => (window.heard[event] = act),
    send: (content) => void window.said(content),
  };
  const url = URL.createObjectURL(new Blob([state._esm], { type: "text/javascript" }));
  const widget = await (await import(url)).default();
  await widget.initialize({ model });
  await widget.render({ model, el: document.body });
}
"""
COLOURS = {
    "vscode": ("--vscode-editor-background", "--vscode-editor-foreground"),
    "colab": ("--colab-primary-surface-color", "--colab-primary-text-color"),
}
DARK, LIGHT = ("rgb(31, 31, 31)", "rgb(204, 204, 204)"), ("rgb(255, 255, 255)", "rgb(31, 35, 40)")
LOOK = "node => [getComputedStyle(node).backgroundColor, getComputedStyle(node).color]"


class Host:
    """A page that shows a kernel's widget."""

    def __init__(self, kernel, page, colours):
        self.page = page
        page.expose_function("said", kernel.message)
        state = {**kernel.opened, "state": kernel.states[-1]}
        page.evaluate(HOST, {"state": state, "colours": colours})
        kernel.pages.append(self)

    def take(self, frame):
        self.page.evaluate("frame => window.heard['msg:custom'](frame, [])", frame)

    @property
    def board(self):
        return self.page.locator(".mw")

    def says(self, words):
        return self.page.locator(".mw-words", has_text=words).count()


@pytest.mark.parametrize("kind", [*COLOURS, "plain"])
def test_a_page_that_only_shows_widgets_shows_a_run(context, tmp_path, own_sockets, shot, kind):
    names = COLOURS.get(kind, ())
    with started(tmp_path, Kernel) as kernel:
        kernel.run(cells.declare())
        kernel.run(cells.SLEEPING)
        host = Host(kernel, watched(context), dict(zip(names, DARK, strict=False)))
        kernel.until(lambda: lines(host.page) == [cells.UP] * 2, "both workers")
        assert host.says("running")
        colours = DARK if names else LIGHT
        assert tuple(host.board.evaluate(LOOK)) == colours
        for part in (".mw-name", ".mw-state", ".mw-usage", ".mw-words", ".mw-tools .mw-dim"):
            _, colour = host.board.locator(part).first.evaluate(LOOK)
            assert contrast(parts(colours[0]), parts(colour)) > LEGIBLE, (part, colour)
        for name in ("Restart", "Restart? Click again"):
            host.page.get_by_role("button", name=name).click()
        kernel.until(lambda: lines(host.page) == [cells.UP] * 4, "the second attempt")
        shot(host, f"page-{kind}")
        for name in ("Stop", "Stop? Click again"):
            host.page.get_by_role("button", name=name).click()
        kernel.until(lambda: host.says("stopped"), "the end")
        host.page.evaluate("() => window.heard.comm_live_update()")
        assert host.page.get_by_role("button", name="Restart").is_disabled()
        assert not host.page.problems
        host.page.close()
