"""Sessions of live cells, written as programs: what the programs do, run by real tasks."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from mwmagic import Cluster
from mwmagic.client.export import transcript
from mwmagic.errors import ClusterError, NoRun, WorkerFailed
from mwmagic.model.live import AnswerRecord, CellRecord
from mwmagic.record import RunDirectory, runs

SOURCES = [
    "from __future__ import annotations\nimport asyncio, os\n\ntotal = 0",
    'if True:\n    text = """a\n  b"""\n    more = f"""{total\n+ 1}\n c"""',
    "async def twice(x):\n    await asyncio.sleep(0)\n    return 2 * x\n\ntotal += await twice(7)",
    "display(total)\n# and a comment",
]
SHOW = "print('state', total, repr(text), repr(more), alone, lr)"


@pytest.fixture
def session(tmp_path):
    """Record a session of two workers; each cell is (source, tasks, answers), all in order."""

    def record(*cells, live=True, attempts=None):
        directory = RunDirectory.create(tmp_path, "live")
        tasks = {"worker:0": {}, "worker:1": {}}
        directory.write({"live": live, "script": "live.py", "state": "stopped", "tasks": tasks})
        directory.flush()
        for number, (source, names, answers) in enumerate(cells, 1):
            directory.begin_cell(number, source)
            attempt = attempts[number - 1] if attempts else 1
            name = f"In [{number}]"
            directory.end_cell(CellRecord(number, name, names, attempt, 0.0, "answered", answers))
        directory.save_cells()
        return runs(tmp_path)[-1]

    return record


BOTH, ONE = ("worker:0", "worker:1"), ("worker:1",)
FINE = dict.fromkeys(BOTH, AnswerRecord())


def code(record):
    """Return the program without its docstring, and check that it compiles."""
    text = transcript(record)
    compile(text, "live.py", "exec", dont_inherit=True)
    return text.partition('"""\n')[2].strip().splitlines()


def test_cells_come_in_order_and_under_the_condition_of_their_tasks(session):
    assert code(session(("x = 1", BOTH, FINE), ("# nothing", ONE, FINE), ("x", BOTH, FINE))) == [
        "from mwmagic.worker import this_task",
        "",
        "",
        "# %% In [1]",
        "x = 1",
        "",
        "",
        "# %% In [2] on worker:1",
        'if str(this_task()) == "worker:1":',
        "    # nothing",
        "    pass",
        "",
        "",
        "# %% In [3]",
        "x",
    ]


def test_what_failed_is_left_out_with_its_reason(session):
    raised = {"worker:0": AnswerRecord(), "worker:1": AnswerRecord(raised="E", message="a\nb")}
    assert code(session(("a\nb", BOTH, raised), ("c", BOTH, {"worker:0": AnswerRecord()}))) == [
        "# %% In [1], left out: worker:1 raised E: a",
        "# a",
        "# b",
        "",
        "",
        "# %% In [2], left out: worker:1 did not finish it",
        "# c",
    ]


def test_what_was_before_a_reset_is_left_out(session):
    record = session(("x = 1", BOTH, FINE), ("y = 2", BOTH, FINE), attempts=[1, 2])
    assert code(record) == ["# %% In [2]", "y = 2"]


def test_a_string_over_several_lines_is_not_indented(session):
    source = 'x = """a\nb""" + f"""{1\n+ 1}\nc"""\ny = 2'
    lines = code(session((source, ONE, FINE)))
    text = "\n".join(lines[lines.index("# %% In [1] on worker:1") + 2 :])
    assert text == '    x = """a\nb""" + f"""{1\n+ 1}\nc"""\n    y = 2\n    pass'


@pytest.mark.parametrize("source", ["1 +", "await f()\nfrom os import *", "\0"])
def test_a_cell_that_is_not_a_program_becomes_a_comment(session, source):
    assert all(line.startswith("#") or not line for line in code(session((source, BOTH, FINE))))


def test_a_run_without_cells_is_refused(session):
    with pytest.raises(NoRun, match="has no cell that is over"):
        transcript(session())
    with pytest.raises(NoRun, match="and is not a live session"):
        transcript(session(live=False))


@pytest.mark.slow
def test_the_program_comes_to_the_same_values(tmp_path, nothing_survives):
    with Cluster(2, directory=tmp_path, warm=False, grace=1.0) as cluster:
        with cluster.live() as live:
            for source in SOURCES:
                live.run(source)
            with pytest.raises(WorkerFailed):
                live.run("1 / 0\ntotal = 99")
            live.run("alone = 0")
            live.run("alone = 1", [1])
            live.push(lr=0.1, array=np.zeros(3))
            assert live.pull("total", task=1) == 14
            live.run(SHOW)
            with pytest.raises(ClusterError, match="`%mw_export live` writes its cells"):
                live.process.export("script")
            said = [live.process.logs(task).decode().splitlines()[-1] for task in (0, 1)]
        text = transcript(live.process.record)
    assert "lr = 0.1\n# the record does not hold the other values" in text
    assert "exchange" not in text
    (tmp_path / "again.py").write_text(text)
    command = [sys.executable, "-m", "mwmagic.cli", "run", "-n", "2", "again.py"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if "state" in line]
    assert sorted(lines) == [f"[worker:{task}] {one}" for task, one in enumerate(said)], done
    assert "14" in said[0]
    assert done.stdout.count("] 14\n") == 2, "what was displayed is printed"
