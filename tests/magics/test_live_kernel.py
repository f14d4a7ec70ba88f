"""Live cells in a real kernel."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

DECLARE = "%mw_cluster 2 --no-warm"
PATIENT = "from mwmagic.client import chorus; chorus.HELD_SECONDS = 60.0"
"""Has a line wait for that of the other task however late a busy machine has it."""

RANK = "%%mw_live\nimport os; rank = int(os.environ['MWMAGIC_TASK'][-1])"


def shown(result):
    """Return the texts that a cell displayed."""
    return [data["text/plain"] for data in result.shown.values()]


def test_cells_live_on_every_task(kernel):
    kernel.run(PATIENT)
    kernel.run(DECLARE)
    first = kernel.run(RANK)
    assert (first.error, first.text) == (None, "run 1: live interpreters on 2 tasks\n")
    assert kernel.run("%%mw_live\nprint('hello')\nprint(rank, end='')").text.splitlines() == [
        "[0-1] hello",
        "[0] 0",
        "[1] 1",
    ]
    assert kernel.run("%%mw_live --out found\nrank").text == "[0]\n[1]\n"
    assert kernel.run("found['worker:1'].value['text/plain']").value == "'1'"
    assert kernel.run("%%mw_live --index 1\nprint(rank)").text == "[1] 1\n"
    assert kernel.run("%%mw_live --tasks 0,1\nprint(rank // 9)").text == "[0-1] 0\n"
    assert kernel.run("%mw_status").error is None
    assert "stopped" in kernel.run("%mw_stop").text


def test_a_failure_is_told_with_the_line_of_the_cell(kernel):
    kernel.run(DECLARE)
    kernel.run(RANK)
    failed = kernel.run("%%mw_live\nif rank:\n    raise ValueError('bad batch')")
    assert failed.error == (
        "WorkerFailed: worker:1 raised ValueError: bad batch (In [4], line 2). "
        "All variables are kept"
    )
    assert failed.text.splitlines() == [
        "[1] Traceback (most recent call last):",
        '  File "In [4]", line 2, in <module>',
        "    raise ValueError('bad batch')",
        "ValueError: bad batch",
    ]
    slow = kernel.run("%%mw_live\nif rank: 1 / 0\nelse: import time; time.sleep(1)")
    assert slow.text.startswith(
        "─ worker:1 raised ZeroDivisionError: division by zero (In [5], line 1)\n[1] Traceback"
    )
    typo = kernel.run("%%mw_live\n1 +").error
    assert typo.startswith("WorkerFailed: worker:")
    assert typo.endswith(
        " raised SyntaxError: invalid syntax (In [6], line 1), and 1 other task raised too. "
        "All variables are kept"
    )
    assert kernel.run("%%mw_live\nprint(rank)").error is None


def test_ctrl_c_reaches_the_tasks(kernel):
    kernel.run(DECLARE)
    kernel.run(RANK)
    begun = "%%mw_live\nhalf = rank\nif rank: print('in')\nimport time; time.sleep(600)"
    request = kernel.send(begun)
    while kernel.client.get_iopub_msg(timeout=30)["content"].get("text") != "[1] in\n":
        pass
    kernel.manager.interrupt_kernel()
    assert kernel.collect(request).error == (
        "WaitInterrupted: interrupted on all tasks; all variables are kept"
    )
    assert kernel.run("%%mw_live\nassert half == rank").error is None


def test_a_reset_and_what_is_refused(kernel):
    kernel.run(DECLARE)
    assert kernel.run("%mw_reset").error.startswith("NoRun: nothing was launched")
    kernel.run(RANK)
    assert kernel.run("%mw_reset").text == "fresh interpreters on 2 tasks\n"
    assert "NameError" in kernel.run("%%mw_live\nrank").error
    assert kernel.run("%%mw_live --index 5\n1").error.startswith(
        "ClusterError: worker:5 does not exist; "
    )
    assert kernel.run("%%mw_live --tasks 0 --index 1\n1").error.startswith(
        "BadArguments: --tasks names the tasks"
    )
    assert "line 2 of the cell, `!ls`, is IPython's" in kernel.run("%%mw_live\n!ls").error
    assert kernel.run("%%mw_worker\npass").error == (
        "RunActive: run 1 is a live session; stop it first"
    )
    shown = kernel.run("%mw_show").shown
    assert [data["text/plain"] for data in shown.values()][-1] == "run 1: running"
    assert kernel.run("%mw_wait").error.startswith("ClusterError: run 1 is a live session, which")


def test_values_go_to_the_tasks_and_come_back(kernel):
    kernel.run(DECLARE)
    assert kernel.run("%mw_push x").error.startswith("NoRun: nothing was launched")
    kernel.run(RANK)
    kernel.run("x = [1.5, 'a']")
    assert kernel.run("%mw_push x lr=0.1*2 --index 1").error is None
    kernel.run("%%mw_live --index 1\nx = [lr, rank]")
    assert kernel.run("%mw_pull x --index 1").value == "[0.2, 1]"
    assert kernel.run("x").value == "[0.2, 1]"
    assert kernel.run("y = %mw_pull x[0]+1 --index 1").error is None
    assert kernel.run("y").value == "1.2"
    assert kernel.run("%mw_push nothing").error.startswith("BadArguments: nothing: NameError: name")
    assert kernel.run("%mw_push 2x=1").error.startswith("BadArguments: '2x' is not a variable's")


def test_the_end_of_a_process_is_explained_and_the_next_cell_begins_anew(kernel):
    kernel.run(DECLARE)
    kernel.run(RANK)
    lost = kernel.run("%%mw_live\nif rank: os._exit(3)").error
    assert lost.startswith("WorkerFailed: run 1 failed: worker:1 exited with code 3")
    assert "all its variables are lost" in lost
    assert kernel.run("%%mw_live\n1").text == "run 2: live interpreters on 2 tasks\n"


def answered(kernel, request, *texts):
    """Type lines when a cell asks for them; return the prompts, and the cell's result."""
    prompts = []
    for text in texts:
        prompts.append(kernel.client.get_stdin_msg(timeout=60)["content"]["prompt"])
        kernel.client.input(text)
    return prompts, kernel.collect(request)


def test_a_task_asks_in_the_notebook(kernel):
    kernel.run(DECLARE)
    kernel.run(RANK)
    prompts, result = answered(kernel, kernel.send("%%mw_live --index 1\ninput('name? ')"), "Ada")
    assert (prompts, shown(result)[-1]) == (["[1] name? "], "'Ada'")
    alone = kernel.client.execute("%%mw_live\ninput()", allow_stdin=False, stop_on_error=False)
    assert kernel.collect(alone).error.startswith("BadArguments: the cell asks for input, by ")
    assert kernel.run("%%mw_live\nassert rank in (0, 1)").error is None


def test_the_debugger_goes_to_the_line_that_raised(kernel):
    kernel.run(DECLARE)
    kernel.run(RANK)
    kernel.run("%%mw_live\ndef share(x):\n    return x / (1 - rank)\nshare(7)")
    request = kernel.send("%mw_debug 1")
    prompts, result = answered(kernel, request, "p x, rank", "q")
    assert prompts == ["[1] (Pdb) "] * 2
    assert result.error is None
    assert "[1] -> return x / (1 - rank)" in result.text
    assert "[1] (7, 1)" in result.text


def test_a_session_becomes_a_program_also_in_the_next_kernel(kernel, tmp_path):
    kernel.run(DECLARE)
    kernel.run(RANK)
    kernel.run("%%mw_live\nx = 1 / rank")
    assert kernel.run("%mw_status").value.splitlines()[0] == "run 1: live, idle"
    assert kernel.run("%mw_export live").text == "wrote live.py\n"
    text = (tmp_path / "live.py").read_text()
    assert "# %% In [4], left out: worker:0 raised ZeroDivisionError: division by zero" in text
    assert kernel.run("%mw_export script").error.startswith("ClusterError: run 1 is a live session")
    kernel.restart(now=True)
    assert "2 tasks, 1 attempt, 2 cells" in kernel.run("%mw_runs").value
    assert kernel.run("%mw_export live --file again.py --run 1").error is None
    assert (tmp_path / "again.py").read_text() == text
