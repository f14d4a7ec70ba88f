"""A page that does what anywidget asks of any, and has the colours of VS Code or Colab."""

from __future__ import annotations

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
