"""What a worker reports, as it comes out of the other end of its line."""

from __future__ import annotations

import json
import os
import socket
import time

import pytest
from reports import packets, run, worker

from mwmagic.dashboard.static import text
from mwmagic.model.values import METRICS_LIMIT, NAME_CHARACTERS
from mwmagic.words.run import fraction
from mwmagic.worker import report
from mwmagic.worker.line import Line
from mwmagic.worker.reports import GAP_SECONDS, Outbox

REPORT = "from mwmagic.worker import report\n"


@pytest.fixture
def ends():
    """Return both ends of a line, as an outbox and a socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        ours.settimeout(5)
        yield Outbox(Line(theirs.detach())), ours


def take(ours):
    return json.loads(ours.recv(1 << 16))


def test_without_a_cluster_nothing_happens():
    report(step=1, loss=0.5)


def test_a_report_goes_out_at_once(ends):
    outbox, ours = ends
    outbox.put("loss", {"kind": "report", "step": 3}, {"loss": 0.5})
    assert take(ours) == {"kind": "report", "step": 3, "metrics": {"loss": 0.5}}


@pytest.fixture
def default_timeout():
    socket.setdefaulttimeout(0.01)
    yield
    socket.setdefaulttimeout(None)


def test_a_full_line_neither_waits_nor_closes_if_sockets_have_a_default_timeout(default_timeout):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line = Line(theirs.detach())
    with ours:
        sent = 0
        while line.send(b"x" * 4096):
            sent += 1
            assert sent < 100_000, "packets are dropped, as if the line were closed"
        assert line.open
    line.close()


def test_the_newest_of_fast_reports_is_sent_soon(ends):
    outbox, ours = ends
    began = time.monotonic()
    for step in range(1000):
        outbox.put("loss", {"step": step}, {"loss": step})
    outbox.put("rate", {"step": 1000}, {"rate": 1})
    found = [take(ours)]
    while found[-1]["metrics"] != {"rate": 1.0}:
        found.append(take(ours))
    assert found[0]["step"] == 0
    assert found[-2]["step"] == 999
    assert len(found) <= 3 + (time.monotonic() - began) / GAP_SECONDS


def test_tensors_are_read_when_they_are_sent(ends):
    class Tensor:
        read = 0

        def __float__(self):
            Tensor.read += 1
            return 2.0

    outbox, ours = ends
    for step in range(100):
        outbox.put("loss", {"step": step}, {"loss": Tensor()})
    while (last := take(ours))["step"] != 99:
        pass
    assert last["metrics"] == {"loss": 2.0}
    assert Tensor.read < 10


def test_a_full_line_blocks_no_task_and_keeps_the_newest(ends):
    outbox, ours = ends
    sent = 0
    while outbox._line.send(b"{}"):
        sent += 1
    began = time.monotonic()
    for step in range(1000):
        outbox.put("loss", {"step": step}, {"loss": 1.0})
        outbox.flush()
    assert time.monotonic() - began < 1
    for _ in range(sent):
        assert take(ours) == {}
    assert take(ours)["step"] == 999


def test_when_nobody_listens_any_more_nothing_happens(ends):
    outbox, ours = ends
    ours.close()
    outbox.put("loss", {}, {"loss": 1.0})
    assert not outbox.open
    outbox.put("loss", {}, {"loss": 1.0})
    outbox.flush(1)


def test_a_fork_says_nothing(ends):
    outbox, ours = ends
    child = os.fork()
    if not child:
        outbox.put("loss", {}, {"loss": 1.0})
        os._exit(0 if not outbox.open else 1)
    assert os.waitpid(child, 0)[1] == 0
    outbox.put("loss", {}, {"loss": 2.0})
    assert take(ours)["metrics"] == {"loss": 2.0}


@pytest.mark.slow
def test_the_last_report_comes_however_a_worker_ends(tmp_path):
    loop = REPORT + "for step in range(100): report(step=step, loss=step / 2)\n"
    for end in ("", "import sys; sys.exit(3)", "1 / 0", "raise KeyboardInterrupt"):
        found, _, _ = run(tmp_path, loop + end)
        assert found[0] == {"kind": "report", "step": 0, "metrics": {"loss": 0.0}}
        assert found[-1] == {"kind": "report", "step": 99, "metrics": {"loss": 49.5}}


@pytest.mark.slow
def test_the_last_report_comes_before_something_long(tmp_path):
    code = REPORT + "for step in range(100): report(step=step)\nimport time; time.sleep(600)"
    with worker(tmp_path, code) as (_, ours):
        ours.settimeout(120)
        while take(ours).get("step") != 99:
            pass


@pytest.mark.slow
def test_a_full_line_delays_no_worker_for_long(tmp_path):
    code = REPORT + "for step in range(20):\n  report(step=step, **{f'm{step}' * 20: 1.0})\n"
    with worker(tmp_path, code + "print('done')", room=1) as (process, ours):
        assert process.wait(120) == 0
        found = packets(ours)
    assert found
    assert all(one["kind"] == "report" for one in found)


@pytest.mark.slow
def test_a_bad_entry_is_dropped_alone(tmp_path):
    code = f"""
class Bad:
    def __float__(self): raise RuntimeError("no")
for step in range(2):
    report(step=step, epoch="x", loss=Bad(), text="abc", big=10**400, nan=float("nan"),
           inf=float("-inf"), whole=3, string="2.5", none=None,
           **{{"n" * {NAME_CHARACTERS + 1}: 1}})
report(**{{f"m{{i}}": i for i in range({METRICS_LIMIT + 20})}})
"""
    found, out, err = run(tmp_path, REPORT + code)
    metrics = {"nan": "NaN", "inf": "-Infinity", "whole": 3.0, "string": 2.5}
    assert {"kind": "report", "step": 1, "epoch": None, "metrics": metrics} in found
    assert len(found[-1]["metrics"]) == METRICS_LIMIT
    assert out == ""
    lines = [line for line in err.splitlines() if line.startswith("mwmagic: ")]
    assert len(lines) == len(set(lines))
    for name in ("epoch", "loss", "text", "big", "none", "nnn", "m100"):
        assert sum(line.startswith(f"mwmagic: {name}") for line in lines) == 1, (name, err)


@pytest.mark.slow
def test_a_report_that_is_too_long_is_refused_once_and_named(tmp_path):
    code = """
for step in range(3):
    report(step=step, **{f"{i:03}" + "\u00e4" * 97: i for i in range(100)})
    report(step=step, loss=1.0)
"""
    found, _, err = run(tmp_path, REPORT + code)
    assert [one["metrics"] for one in found][-1] == {"loss": 1.0}
    [said] = [line for line in err.splitlines() if line.startswith("mwmagic: ")]
    assert said.startswith("mwmagic: a set of 100 metrics is not reported: they take ")
    assert said.endswith("holds 32768; shorten their names, or report fewer at once")


@pytest.mark.slow
def test_children_do_not_have_the_line(tmp_path):
    code = """
import os, subprocess, sys
report(loss=1.0)
print("MWMAGIC_LINE" in os.environ, flush=True)
subprocess.run([sys.executable, "-c", "import os; print(len(os.listdir('/proc/self/fd')))"],
               close_fds=False)
if os.fork() == 0:
    report(loss=2.0)
    os._exit(0)
os.wait()
"""
    found, out, _ = run(tmp_path, REPORT + code)
    assert [one["metrics"] for one in found] == [{"loss": 1.0}]
    with_line = out.split()
    assert with_line[0] == "False"
    assert int(with_line[1]) <= 5  # the three streams, what lists them, and the file of stacks


@pytest.mark.slow
def test_values_of_numpy_are_read_before_they_change(tmp_path):
    code = """
import numpy as np
total = np.zeros(())
for step in range(3):
    report(step=step, total=total, single=np.float32(step))
    total += 1
"""
    found, _, _ = run(tmp_path, REPORT + code)
    assert found[-1] == {"kind": "report", "step": 2, "metrics": {"total": 2.0, "single": 2.0}}


@pytest.mark.slow
def test_a_loss_that_diverged_is_pointed_out_although_the_run_finished(cluster):
    code = f"{REPORT}report(epoch=3, epochs=9, step=85, steps=100, loss=float('nan'))"
    one = cluster(1).run("main.py", source=code).wait(120)
    assert one.state == "finished"
    assert "loss is nan: training diverged" in text(one.status())
    assert fraction(one.status().tasks["worker:0"]) == pytest.approx(2.85 / 9)
