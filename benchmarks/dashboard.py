"""What the dashboard costs in a real JupyterLab and Chromium, beside Jupyter's own widgets."""

from __future__ import annotations

import time
from functools import partial

from .browser import bench, cells, eventually
from .case import Case, Line
from .ratio import alternated, percentile

SECONDS = 10
"""For how long lines are printed at a steady rate."""

LINE = 'f"step {step} of a training with loss=0.4321 at {time.time():.6f}{index}"'
"""The last digit distinguishes two workers that print at the same time."""

LINE_BYTES = len("step 5000 of a training with loss=0.4321 at 1700000000.0000000\n")
AIM_SECONDS = 0.1
"""What the 99th percentile from print to pixels should be."""

PRINTS_AIM = 1.3
NOTICED_MS = 100.0
RIVAL = """
import html, ipywidgets, threading, time
text, place, index = [], ipywidgets.{kind}(), 0
def write():
    start, step = time.time(), 0
    while step < {steps}:
        time.sleep(0.05)
        lines = []
        while step < min({steps}, (time.time() - start) * {rate}):
            lines.append({line})
            step += 1
        text.extend(lines)
        {show}
threading.Thread(target=write).start()
place
"""
SHOW = {
    "HTML": 'place.value = "<pre>" + html.escape("\\n".join(text)) + "</pre>"',
    "Output": 'place.append_stdout("\\n".join(lines) + "\\n")',
}


def steadily(rate):
    return cells.worker(
        f"""
start = time.time()
for step in range({rate} * {SECONDS}):
    time.sleep(max(0, start + step / {rate} - time.time()))
    print({LINE}, flush=True)
"""
    )


def flood(lines):
    return cells.worker(
        "began = time.perf_counter()\n"
        f"for line in range({lines}): print('line', line, 'of a long log')\n"
        "open(f'took.{index}', 'w').write(str(time.perf_counter() - began))\n"
    )


# From print to pixels.


def shown(one, *texts, lines):
    """Return the seconds until each line was on screen, and the bytes for a byte of log."""
    notebook = one.open(*texts)
    before = one.traffic.bytes
    notebook.run()
    deadline = time.monotonic() + 6 * SECONDS
    while notebook.page.evaluate("() => window.shown") < lines and time.monotonic() < deadline:
        notebook.page.wait_for_timeout(500)
    seen = notebook.page.evaluate("() => [...window.seen.values()].filter((took) => took !== null)")
    sent = one.traffic.bytes - before
    one.close()
    late = [6.0 * SECONDS] * (lines - len(seen))
    return [*seen, *late], sent / (LINE_BYTES * lines)


def steady(rate, plan):
    """Compare with what is aimed at."""
    with bench() as one:
        texts = (cells.declare(), steadily(rate))
        found = [shown(one, *texts, lines=2 * rate * SECONDS) for _ in range(plan.rounds(3, 1))]
    for share in (0.5, 0.99):
        ours = [percentile(seen, share) for seen, _ in found]
        what = f"print to pixels, 2 workers x {rate} lines/s, {100 * share:.0f} % of the lines"
        yield Line(what, "s", ours, "what is aimed at", [AIM_SECONDS] * len(ours), 1.0)


def rival(kind, plan):
    """Compare with one of Jupyter's own widgets that the kernel itself updates."""
    rate, lines = 100, 200 * SECONDS
    code = RIVAL.format(kind=kind, show=SHOW[kind], line=LINE, steps=lines, rate=2 * rate)
    with bench() as one:
        ways = {"ours": (cells.declare(), steadily(rate)), "theirs": (code,)}
        calls = {way: partial(shown, one, *texts, lines=lines) for way, texts in ways.items()}
        found = alternated(plan.rounds(3, 1), **calls)
    times = {way: [percentile(seen, 0.99) for seen, _ in found[way]] for way in found}
    sent = {way: [size for _, size in found[way]] for way in found}
    what = f"2 workers x {rate} lines/s"
    yield Line(f"print to pixels, {what}, 99 %", "s", times["ours"], kind, times["theirs"])
    yield Line(f"sent to the page, {what}", "byte/byte", sent["ours"], kind, sent["theirs"])


# A flood.


def took(folder, workers):
    return max(float((folder / f"took.{index}").read_text()) for index in range(workers))


PLAIN = """
from mwmagic import Cluster
from pathlib import Path
Path("plain.py").write_text({code!r})
with Cluster({workers}, warm=False, name="plain", grace=0.2) as plain:
    plain.run("plain.py").wait()
"""
"""The same program on the same number of workers, which no page shows."""


class Flood:
    """A notebook whose workers print as fast as they can, with and without a dashboard."""

    def __init__(self, one, lines, workers):
        self.one, self.lines, self.workers = one, lines, workers
        code = flood(lines)
        plain = PLAIN.format(code=code.partition("\n")[2], workers=workers)
        self.notebook = one.open(cells.declare(workers), plain, code)
        self.run()

    def run(self):
        """Run the selected cell, and select the next one."""
        self.notebook.command("notebook:run-cell-and-select-next")

    def round(self):
        """Return the seconds without and with the page, and what the page and cells suffered."""
        page = self.notebook.page
        self.run()
        plain = took(self.notebook.folder, self.workers)
        shown = self.flood()
        idle = self.beside(lambda: page.wait_for_timeout(2000))
        page.evaluate("() => { window.tasks = []; window.watched = false; }")
        self.notebook.command("notebook:move-cursor-up")
        busy = self.beside(self.flood)
        tasks = page.evaluate("() => window.tasks")
        self.notebook.command("notebook:move-cursor-up")
        self.notebook.command("notebook:move-cursor-up")
        late = (percentile(times, 0.99) for times in (busy, idle))
        return shown, plain, *late, max(tasks, default=0.0)

    def beside(self, act):
        """Run small cells outside the page meanwhile; return how long each took."""
        others = self.one.cells()
        act()
        return others.end()

    def flood(self):
        """Return the seconds of a flood that the page shows; nothing asks the page meanwhile."""
        for one in self.notebook.folder.glob("took.*"):
            one.unlink()
        self.run()
        eventually(lambda: len([*self.notebook.folder.glob("took.*")]) == self.workers, "its end")
        self.notebook.state("finished", 300_000)
        last = self.notebook.page.locator(".mw .mw-line", has_text=f"line {self.lines - 1} of")
        eventually(last.count, "the last line")  # of the worker that ended last, at the least
        return took(self.notebook.folder, self.workers)


def floods(lines, workers, plan):
    with bench() as one:
        flood = Flood(one, lines // 2 if plan.quick else lines, workers)
        found = [flood.round() for _ in range(plan.rounds(5, 1))]
        one.close()
    ours, theirs, busy, idle, tasks = map(list, zip(*found, strict=True))
    what = f"{workers} workers print {lines:,} lines each"
    page = "without a page"
    yield Line(f"{what}: the run", "s", ours, page, theirs, PRINTS_AIM)
    yield Line(f"{what}: a cell meanwhile, 99 %", "s", busy, "the kernel idle", idle)
    noticed = [NOTICED_MS] * len(tasks)
    yield Line(f"{what}: the page's longest task", "ms", tasks, "what one may notice", noticed)


# Many tasks.

PRINTS = cells.worker(
    "for step in range(1, 10**6):\n"
    '    print(f"step {step}/1000000 loss={1 / step:.6f} acc=0.5", flush=True)\n'
    "    time.sleep(0.5)\n"
)


def costs(one, count, seconds=8):
    """Return what a second of a run costs: shares of a core of kernel and page, and kilobytes."""
    notebook = one.open(cells.declare(count), PRINTS)
    notebook.run()
    eventually(lambda: len(notebook.lines()) > count, "lines")
    process, _ = one.kernel()
    notebook.page.wait_for_timeout(2000)
    kernel, page, sent = sum(process.cpu_times()[:2]), one.page(), one.traffic.bytes
    notebook.page.wait_for_timeout(1000 * seconds)
    kernel = 100 * (sum(process.cpu_times()[:2]) - kernel) / seconds
    drawn = 100 * (one.page()["TaskDuration"] - page["TaskDuration"]) / seconds
    sent = (one.traffic.bytes - sent) / seconds / 1000
    one.close()
    return kernel, drawn, sent


def tasks(many, few, plan):
    with bench() as one:
        calls = {"ours": partial(costs, one, many), "theirs": partial(costs, one, few)}
        found = alternated(plan.rounds(3, 1), **calls)
    heads = (("kernel", "% of a core"), ("page", "% of a core"), ("sent to the page", "kB/s"))
    for at, (head, unit) in enumerate(heads):
        ours, theirs = ([values[at] for values in found[side]] for side in ("ours", "theirs"))
        what = f"{many} tasks that print two lines a second: {head}"
        yield Line(what, unit, ours, f"{few} tasks", theirs)


CASES = [
    *(
        Case(
            f"page-{rate}",
            f"print to pixels at 2 x {rate} lines/s",
            partial(steady, rate),
            slow=rate < 1000,
        )
        for rate in (1000, 100)
    ),
    *(
        Case(
            f"page-{kind.lower()}",
            f"print to pixels and bytes sent, against ipywidgets.{kind}",
            partial(rival, kind),
            slow=True,
        )
        for kind in SHOW
    ),
    Case(
        "page-flood",
        "a run that only prints, with a page and without",
        partial(floods, 100_000, 2),
    ),
    Case(
        "page-flood-1",
        "one worker that prints 1,000,000 lines, with a page and without",
        partial(floods, 1_000_000, 1),
        slow=True,
    ),
    *(
        Case(
            f"page-tasks-{many}",
            f"a page with {many} tasks, against 2",
            partial(tasks, many, 2),
            slow=True,
        )
        for many in (16, 64)
    ),
]
