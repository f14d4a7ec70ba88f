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
from plain import COLOURS, DARK, LIGHT, LOOK, Host

pytestmark = [pytest.mark.slow, pytest.mark.browser]


@pytest.mark.usefixtures("own_sockets")
@pytest.mark.parametrize("kind", [*COLOURS, "plain"])
def test_a_page_that_only_shows_widgets_shows_a_run(context, nursery, tmp_path, shot, kind):
    names = COLOURS.get(kind, ())
    with started(nursery, tmp_path, Kernel) as kernel:
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
