"""From print to pixels, in a real JupyterLab and Chromium."""

from __future__ import annotations

import time
from functools import partial

from .browser import bench, cells
from .case import Case, Line
from .ratio import percentile

SECONDS = 10
"""For how long lines are printed at a steady rate."""

LINE = 'f"step {step} of a training with loss=0.4321 at {time.time():.6f}{index}"'
"""The last digit distinguishes two workers that print at the same time."""

AIM_SECONDS = 0.1
"""What the 99th percentile from print to pixels should be."""


def steadily(rate):
    return cells.worker(
        f"""
start = time.time()
for step in range({rate} * {SECONDS}):
    time.sleep(max(0, start + step / {rate} - time.time()))
    print({LINE}, flush=True)
"""
    )


def shown(one, *texts, lines):
    """Return the seconds until each line was on screen."""
    notebook = one.open(*texts)
    notebook.run()
    deadline = time.monotonic() + 6 * SECONDS
    while notebook.page.evaluate("() => window.shown") < lines and time.monotonic() < deadline:
        notebook.page.wait_for_timeout(500)
    seen = notebook.page.evaluate("() => [...window.seen.values()].filter((took) => took !== null)")
    one.close()
    late = [6.0 * SECONDS] * (lines - len(seen))
    return [*seen, *late]


def steady(rate, plan):
    """Compare with the aim."""
    with bench() as one:
        texts = (cells.declare(), steadily(rate))
        found = [shown(one, *texts, lines=2 * rate * SECONDS) for _ in range(plan.rounds(3, 1))]
    for share in (0.5, 0.99):
        ours = [percentile(seen, share) for seen in found]
        what = f"print to pixels, 2 workers x {rate} lines/s, {100 * share:.0f} % of the lines"
        yield Line(what, "s", ours, "the aim", [AIM_SECONDS] * len(ours), 1.0)


CASES = [Case("page-1000", "print to pixels at 2 x 1000 lines/s", partial(steady, 1000))]
