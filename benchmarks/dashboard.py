"""What the dashboard costs in a real JupyterLab and Chromium, compared with Jupyter's own widgets.

``python benchmarks/dashboard.py`` reports, in one run: how long a printed line takes to reach the
screen and how many bytes it takes on the websocket, compared with ``ipywidgets.HTML`` and
``Output``; how two workers that print 100,000 lines each affect the page, other cells and their
own run; what 2, 16 and 64 tasks cost; and whether the kernel stays responsive with 1,000,000 lines.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import quantiles

import psutil
from jupyter_client import BlockingKernelClient

TESTS = Path(__file__).parent.parent / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "browser")]

import cells  # noqa: E402 - what the browser tests use
from lab import CHROMIUM, QUIET, Notebook, Server  # noqa: E402
from processes import eventually  # noqa: E402

RATE, SECONDS = 100, 10
"""Lines per second and writer, and the duration, for the comparison with other widgets."""

PARTS = ["latency", "floods", "tasks"]
LINE = 'f"step {step} of a training with loss=0.4321 at {time.time():.6f}{index}"'
"""The last digit distinguishes two workers that print at the same time."""
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
    return cells.worker(f"for line in range({lines}): print('line', line, 'of a long log')\n")


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


def ms(values):
    cut = quantiles(values, n=100)
    return f"p50 {1000 * cut[49]:5.0f} ms  p99 {1000 * cut[98]:6.0f} ms"


def execute(notebook, count=1):
    """Run `count` cells, starting with the selected one."""
    for _ in range(count):
        notebook.command("notebook:run-cell-and-select-next")


def steady(bench, name, *texts, lines):
    """Print how long lines take from print to pixels, and how many bytes are sent."""
    notebook = bench.open(*texts)
    before = bench.traffic.bytes
    notebook.run()
    deadline = time.monotonic() + 6 * SECONDS
    while notebook.page.evaluate("() => window.shown") < lines and time.monotonic() < deadline:
        notebook.page.wait_for_timeout(500)
    known = "() => [...window.seen.values()].filter((took) => took !== null)"
    seen = notebook.page.evaluate(known)
    weight = LINE_BYTES * lines
    sent = bench.traffic.bytes - before
    shown = "" if len(seen) >= lines else f"  (of {lines} lines {len(seen)} within {6 * SECONDS} s)"
    print(f"  {name:<10} {ms(seen)}  {sent / weight:6.2f} bytes per byte of log{shown}", flush=True)
    bench.close()
    return quantiles(seen, n=100)[98], sent / weight


LINE_BYTES = len("step 5000 of a training with loss=0.4321 at 1700000000.0000000\n")


def floods(bench, lines, workers=2):
    """Print how a flood of output affects the page, cells and the run itself."""
    plain = (
        "import time\nfrom mwmagic import Cluster\nfrom pathlib import Path\n"
        f"Path('plain.py').write_text({flood(lines).partition(chr(10))[2]!r})\n"
        f"with Cluster({workers}, warm=False, name='plain') as cluster:\n"
        "    run = cluster.run('plain.py').wait()\n"
        "    status = run.status()\n"
        "Path('plain').write_text(str(status.ended - status.started))"
    )
    notebook = bench.open(plain, cells.declare(workers), flood(lines))
    page, (process, _) = notebook.page, bench.kernel()
    execute(notebook, 2)
    assert (notebook.folder / "plain").exists(), notebook.save().cells[0].outputs
    beside = bench.cells()
    page.wait_for_timeout(3000)
    idle = beside.end()
    memory, before = process.memory_info().rss, bench.traffic.bytes
    page.evaluate("() => { window.tasks = []; window.watched = false; }")
    beside = bench.cells()
    execute(notebook)
    notebook.state("finished", 300_000)
    last = notebook.page.locator(".mw .mw-line", has_text=f"line {lines - 1} of")
    eventually(last.count, "the last line")  # of the worker that ended last, at the least
    busy, tasks = beside.end(), page.evaluate("() => window.tasks")
    bench.devtools.send("HeapProfiler.collectGarbage")
    status = json.loads(next(notebook.folder.rglob("0002-main/run.json")).read_text())
    ratio = (status["ended"] - status["started"]) / float((notebook.folder / "plain").read_text())
    print(f"  {workers} workers x {lines:,} lines")
    print(f"    the run takes {ratio:.2f} times as long as without a dashboard")
    print(f"    a cell meanwhile {ms(busy)}   idle {ms(idle)}   longest {max(busy):.2f} s")
    print(f"    page heap {bench.page()['JSHeapUsedSize'] / 2**20:.0f} MB", end="   ")
    print(f"longest task {max(tasks, default=0):.0f} ms ({len(tasks)} above 50 ms)", end="   ")
    print(f"{len(notebook.lines()):,} lines kept")
    sent = (bench.traffic.bytes - before) / 1e6
    grown = (process.memory_info().rss - memory) / 2**20
    print(f"    {sent:.1f} MB on the websocket   kernel grew by {grown:.0f} MB", flush=True)
    bench.close()


def tasks(bench, counts, seconds=8):
    """Print what a second of a run costs, by the number of tasks."""
    code = cells.worker(
        "for step in range(1, 10**6):\n"
        '    print(f"step {step}/1000000 loss={1 / step:.6f} acc=0.5", flush=True)\n'
        "    time.sleep(0.5)\n"
    )
    for count in counts:
        notebook = bench.open(cells.declare(count), code)
        notebook.run()
        eventually(lambda n=notebook, c=count: len(n.lines()) > c, "lines")
        process, _ = bench.kernel()
        notebook.page.wait_for_timeout(2000)
        kernel, page, sent = process.cpu_times(), bench.page(), bench.traffic.bytes
        notebook.page.wait_for_timeout(1000 * seconds)
        used = sum(process.cpu_times()[:2]) - sum(kernel[:2])
        after = bench.page()
        drawn = after["TaskDuration"] - page["TaskDuration"]
        sent = (bench.traffic.bytes - sent) / seconds / 1000
        kernel, page = (f"{100 * part / seconds:5.1f} %" for part in (used, drawn))
        print(
            f"  {count:3} tasks  kernel {kernel} of a CPU  page {page}  {sent:6.1f} kB/s",
            flush=True,
        )
        bench.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=100_000, help="of each worker in the flood")
    parser.add_argument("--most", type=int, default=1_000_000, help="of one worker")
    parser.add_argument("--tasks", type=int, nargs="*", default=[2, 16, 64])
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory(prefix="mw-") as name, sync_playwright() as playwright:
        server = Server(Path(name))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())
        try:
            eventually(server.reachable, "Jupyter server")
            measure(Bench(server, browser, Path(name)), given)
        finally:
            browser.close()
            server.close()


def measure(bench, given):
    if "latency" in given.parts:
        latency(bench)
    if "floods" in given.parts:
        print("floods")
        floods(bench, given.lines)
        floods(bench, given.most, workers=1)
    if "tasks" in given.parts:
        print("tasks that print two lines a second")
        tasks(bench, given.tasks)


def latency(bench):
    for rate in (1000, RATE):
        print(f"print to pixels, 2 x {rate} lines/s for {SECONDS} s")
        lines = 2 * rate * SECONDS
        ours = steady(bench, "dashboard", cells.declare(), steadily(rate), lines=lines)
    for kind, show in SHOW.items():
        code = RIVAL.format(kind=kind, show=show, line=LINE, steps=lines, rate=2 * RATE)
        theirs = steady(bench, kind, code, lines=lines)
        ratios = [f"{their / our:.1f}" for their, our in zip(theirs, ours, strict=True)]
        print(f"  {kind} / dashboard: p99 {ratios[0]}, bytes {ratios[1]}", flush=True)


if __name__ == "__main__":
    main()
