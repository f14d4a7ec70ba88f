"""Live cells in a real kernel."""

from __future__ import annotations

import pytest
from processes import eventually

pytestmark = pytest.mark.slow

DECLARE = "%mw_cluster 2 --no-warm"
PATIENT = """
from mwmagic.client.live import cell, session
cell.HELD_SECONDS = session.COMPLETION_SECONDS = 60.0
"""
"""Waits for a line of the other task, and for names, however late a busy machine has them."""

PRESSED = """
import signal
from mwmagic.client.live.session import Live
begin = Live.begin
def pressed(self, *args, **options):
    cell = begin(self, *args, **options)
    signal.raise_signal(signal.SIGINT)
    return cell
Live.begin = pressed
"""
"""Has Ctrl-C come the moment a cell has begun."""

RANK = "%%mw_live\nimport os; rank = int(os.environ['MWMAGIC_TASK'][-1])"


def shown(result):
    """Return the texts that a cell displayed."""
    return [data["text/plain"] for data in result.shown.values()]


def until_printed(kernel, words):
    """Wait until a cell that goes on has printed something; return all that it has printed."""
    text = ""
    while words not in text:
        message = kernel.client.get_iopub_msg(timeout=120)
        text += message["content"]["text"] if message["msg_type"] == "stream" else ""
    return text


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


def test_a_failure_is_reported_with_the_line_of_the_cell(kernel, tmp_path):
    (tmp_path / "helper.py").touch()
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
    wait = "import time\nwhile not rank and not os.path.exists('go'): time.sleep(0.02)"
    request = kernel.send(f"%%mw_live\nif rank: 1 / 0\n{wait}")
    told = "─ worker:1 raised ZeroDivisionError: division by zero (In [5], line 1)\n"
    text = until_printed(kernel, told)
    (tmp_path / "go").touch()
    assert (text + kernel.collect(request).text).startswith(f"{told}[1] Traceback")
    typo = kernel.run("%%mw_live\n1 +").error
    assert typo.startswith("WorkerFailed: worker:")
    assert typo.endswith(
        " raised SyntaxError: invalid syntax (In [6], line 1), and 1 other task raised too. "
        "All variables are kept"
    )
    missing = kernel.run("%%mw_live\nimport helpr").error
    assert "raised ModuleNotFoundError: No module named 'helpr'. Did you mean: 'helper'?" in missing
    assert kernel.run("%%mw_live\nprint(rank)").error is None


def test_a_first_cell_that_is_not_python_starts_no_interpreters(kernel):
    kernel.run(DECLARE)
    assert kernel.run("%%mw_live\nx = 1\nprint(").error == (
        "BadArguments: line 3 of the cell, `print(`: SyntaxError: '(' was never closed; the "
        "interpreters of live cells were not started"
    )
    assert "nothing was launched" in kernel.run("%mw_status").error
    kernel.run("%%mw_live\nimport asyncio\nawait asyncio.sleep(0)\nx = 1")
    assert kernel.run("%%mw_live\nprint(").error.startswith("WorkerFailed: ")
    assert kernel.run("%%mw_live\nx").error is None


def test_ctrl_c_as_a_cell_begins_interrupts_it(kernel):
    kernel.run(DECLARE)
    kernel.run(RANK)
    kernel.run(PRESSED)
    error = kernel.run("%%mw_live\nimport time; time.sleep(600)").error
    assert error == "WaitInterrupted: interrupted on all tasks; all variables are kept"
    kernel.run("Live.begin = begin")
    assert kernel.run("%%mw_live --index 1\nprint(rank)").text == "[1] 1\n"


def test_ctrl_c_reaches_the_tasks(kernel):
    kernel.run(PATIENT)
    kernel.run(DECLARE)
    kernel.run(RANK)
    begun = "%%mw_live\nhalf = rank\nprint('i' + 'n')\nimport time; time.sleep(600)"
    request = kernel.send(begun)
    until_printed(kernel, "[0-1] in\n")
    kernel.manager.interrupt_kernel()
    assert kernel.collect(request).error == (
        "WaitInterrupted: interrupted on all tasks; all variables are kept"
    )
    assert kernel.run("%%mw_live\nassert half == rank").error is None


def test_ctrl_c_withdraws_a_cell_that_waits(kernel, tmp_path):
    kernel.run(f"{DECLARE} --out cluster")
    kernel.run(RANK)
    kernel.run(
        "import threading\n"
        "busy = 'import time\\nwhile not os.path.exists(\"go\"): time.sleep(0.02)'\n"
        "threading.Thread(target=cluster.live().run, args=(busy,)).start()"
    )
    run = tmp_path / ".mwmagic" / "runs" / "0001-live" / "run.json"
    eventually(lambda: '"cell": "<cell>"' in run.read_text(), "the cell of the other thread")
    kernel.run(PRESSED)
    error = kernel.run("%%mw_live\nlate = 1").error
    assert error == "WaitInterrupted: the cell was cancelled before it began"
    kernel.run("Live.begin = begin")
    (tmp_path / "go").touch()
    assert kernel.run("%%mw_live --index 1\nprint('late' in globals())").text == "[1] False\n"


STOPPED = """
import signal
from mwmagic.client.run import Run
stop = Run.stop
Run.stop = lambda *_: signal.raise_signal(signal.SIGINT)
"""
"""Has Ctrl-C come while a run is being stopped."""


def test_ctrl_c_in_a_magic_prints_one_message(kernel):
    kernel.run(DECLARE)
    kernel.run(RANK)
    assert "starting" not in kernel.run("%mw_status").value, "a cell has run"
    kernel.run(STOPPED)
    error = kernel.run("%mw_stop").error
    assert error.startswith("WaitInterrupted: %mw_stop was interrupted")
    assert "\n" not in error, "no traceback"
    kernel.run("Run.stop = stop")
    assert kernel.run("%mw_stop").text == "stopped run 1\n"


def test_a_reset_and_what_is_refused(kernel):
    kernel.run(DECLARE)
    for magic in ("%mw_reset", "%mw_push x", "%mw_pull x", "%mw_debug"):
        error = kernel.run(magic).error
        assert error.startswith("NoRun: ")
        assert "`%%mw_live`" in error, "which begins a session"
        assert "%%mw_worker" not in error
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
    for options in ("", " --replace"):
        assert kernel.run(f"%%mw_worker{options}\npass").error == (
            "RunActive: run 1 is a live session; `%mw_stop` (in Python `run.stop()`) ends it with "
            "its variables, which --replace does not"
        )
    shown = kernel.run("%mw_show").shown
    assert [data["text/plain"] for data in shown.values()][-1] == "run 1: running"
    assert kernel.run("%mw_wait").error.startswith("ClusterError: run 1 is a live session, which")


def test_values_go_to_the_tasks_and_come_back(kernel):
    kernel.run(DECLARE)
    kernel.run(RANK)
    kernel.run("x = [1.5, 'a']")
    assert kernel.run("%mw_push x lr=0.1*2 --index 1").error is None
    kernel.run("%%mw_live --index 1\nx = [lr, rank]")
    assert kernel.run("%mw_pull x --index 1").value == "[0.2, 1]"
    assert kernel.run("x").value == "[0.2, 1]"
    assert kernel.run("y = %mw_pull x[0]+1 --index 1").error is None
    assert kernel.run("y").value == "1.2"
    assert kernel.run("z = %mw_pull rank --tasks 0,1\nz").value == "{'worker:0': 0, 'worker:1': 1}"
    assert kernel.run("%mw_pull rank --type worker").value == "{'worker:0': 0, 'worker:1': 1}"
    assert kernel.run("%mw_push nothing").error.startswith("BadArguments: nothing: NameError: name")
    assert kernel.run("%mw_push 2x=1").error.startswith("BadArguments: '2x' is not a variable's")


def test_the_end_of_a_process_is_explained_and_the_next_cell_starts_new_ones(kernel):
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
        prompts.append(kernel.client.get_stdin_msg(timeout=120)["content"]["prompt"])
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


def says(kernel, words):
    """Wait until the status begins with these words; news are told some times a second."""
    eventually(lambda: kernel.run("%mw_status").value.splitlines()[0] == words, words)


def test_a_session_becomes_a_program_also_in_the_next_kernel(kernel, tmp_path):
    kernel.run(DECLARE)
    kernel.run(RANK)
    kernel.run("%%mw_live\nx = 1 / rank")
    says(kernel, "run 1: live, idle")
    exported = kernel.run("%mw_export live")
    assert (exported.error, exported.text) == (None, "wrote live.py\n")
    text = (tmp_path / "live.py").read_text()
    assert "# %% In [4], left out: worker:0 raised ZeroDivisionError: division by zero" in text
    assert kernel.run("%mw_export script").error.startswith("ClusterError: run 1 is a live session")
    kernel.restart(now=True)
    assert "(2 cells)  2" in kernel.run("%mw_runs").value
    assert kernel.run("%mw_export live --file again.py 1").error is None
    assert (tmp_path / "again.py").read_text() == text


def test_many_lines_and_widgets_are_shown_as_far_as_a_notebook_can(kernel):
    kernel.run(DECLARE)
    kernel.run(RANK)
    result = kernel.run("%%mw_live --index 1\nfor n in range(300_000): print('line', n)", 120)
    lines = result.text.splitlines()
    assert (result.error, lines[0], lines[-1]) == (None, "[1] line 0", "[1] line 299999")
    assert len(result.text) < 500_000
    assert [line for line in lines if "lines left out here; `%mw_logs` shows them" in line]
    widget = "class W:\n    def __repr__(self):\n        return 'W()'\n"
    widget += "    def _repr_mimebundle_(self, **_):\n"
    widget += "        return {'application/vnd.jupyter.widget-view+json': {'model_id': 'x'}}\nW()"
    [*_, data] = kernel.run(f"%%mw_live --index 1\n{widget}").shown.values()
    assert list(data) == ["text/plain"]
    assert data["text/plain"].startswith("W()\n… a widget, which the notebook cannot show")


TYPED = {
    "%mw_push s='a b'  # a text": {"s": "a b"},
    '%mw_push lr="adam" x=[1, 2, 3] --index 1 t=(1, "b c")': {
        "lr": "adam",
        "x": [1, 2, 3],
        "t": (1, "b c"),
    },
    "%mw_push d={'a': [1, 2], '$HOME': \"it's\"} n = 1 + 2": {
        "d": {"a": [1, 2], "$HOME": "it's"},
        "n": 3,
    },
    "%mw_push k e=0 if k else 1 f=max(k, 2)": {"k": 5, "e": 0, "f": 5},
}
"""Variables that are pushed as Python writes them, and what they are then."""


def test_expressions_are_taken_as_they_are_typed(kernel):
    kernel.run(DECLARE)
    kernel.run(RANK)
    kernel.run("k = 5")
    for line, expected in TYPED.items():
        assert kernel.run(line).error is None, line
        for name, value in expected.items():
            assert kernel.run(f"%mw_pull {name} --index 1").value == repr(value), line
    assert kernel.run("%mw_pull d['a'][-1] + k --index 1").value == "7"
    assert kernel.run("%mw_pull --index 1 {'a b': k}['a b'] # the same").value == "5"
    assert kernel.run("%mw_pull \"'s' in globals()\" --index 1").value == "True"
    assert kernel.run("%mw_pull k +").error == ("BadArguments: `k +` is not a Python expression")
    assert kernel.run("%mw_pull k --idex 1").error.startswith("BadArguments: %mw_pull: unrecog")
    assert kernel.run("%mw_push x=[1").error.startswith("BadArguments: x=[1: SyntaxError")
    kernel.run("loop = []; loop.append(loop)")
    assert kernel.run("%mw_push loop").error == (
        "BadArguments: loop holds itself, or is nested too deeply"
    )


def test_names_in_live_cells_are_those_of_the_tasks(kernel):
    kernel.run(PATIENT)
    kernel.run("model = 'the notebook has another one'")
    kernel.run(DECLARE)
    assert "tasked" not in kernel.complete("%%mw_live\nmodel.tas"), "no session is begun"
    assert kernel.run("%mw_status").error.startswith("NoRun")
    kernel.run(
        "%%mw_live\nclass Model:\n    def tasked(self, x=1):\n        'Do it.'\nmodel = Model()"
    )
    assert "model.tasked" in qualified(kernel, "%%mw_live\nx = 1\nprint(model.tas")
    assert "model.tasked" in qualified(kernel, "%%mw_live --index 1\nmodel.tas")
    assert "model.tasked" not in qualified(kernel, "%%mw_live\nf().model.tas")
    assert "tasked" not in kernel.complete("model.tas"), "a cell of the notebook"
    told = kernel.run("%%mw_live\nmodel.y = 1\nmodel.tasked?")
    assert (told.error, told.text.splitlines()[0]) == (None, "Signature: tasked(x=1)")
    assert "line 2 of the cell" in kernel.run("%%mw_live\nmodel.tasked?\nprint(1)").error
    missing = "BadArguments: 'model.no' cannot be looked up on worker:0: "
    assert kernel.run("%%mw_live\nmodel.no?").error.startswith(missing)


def qualified(kernel, code):
    """Return what completes a cell; IPython 9 replaces all names, IPython 7 what it tells."""
    reply = kernel.client.complete(code, len(code), reply=True, timeout=120)["content"]
    begun = code[: reply["cursor_start"]].rpartition("\n")[2].rpartition("(")[2].rpartition(" ")[2]
    return [begun + one for one in reply["matches"]]


@pytest.mark.parametrize("now", [False, True])
def test_the_next_kernel_goes_on_with_a_detached_session(kernel, tmp_path, now):
    kernel.run(DECLARE + " --detach")
    kernel.run(RANK)
    half = "half = rank + 0.5\nopen(f'half-{rank}', 'w').close()"
    wait = "import time\nwhile not os.path.exists('go'): time.sleep(0.02)"
    kernel.send(f"%%mw_live\n{half}\n{wait}\nlate = 1")
    run = tmp_path / ".mwmagic" / "runs" / "0001-live" / "run.json"
    eventually(lambda: run.read_text().count('"cell": "In [4]"') == 2, "the cell")
    eventually(lambda: len(list(tmp_path.glob("half-*"))) == 2, "its first half")
    kernel.restart(now=now)
    kernel.run(PATIENT)
    assert kernel.run(DECLARE).text.startswith("reusing the cluster 'cluster'")
    # Jupyter interrupts what runs before it asks a kernel to end.
    says(kernel, "run 1: live, In [4]" if now else "run 1: live, idle")
    assert kernel.run("%mw_show").error is None
    (tmp_path / "go").touch()
    found = kernel.run("%%mw_live\nhalf, 'late' in globals()")
    assert (found.text, shown(found)[-1]) == ("[0]\n[1]\n", f"(1.5, {now})")
    assert "half" in kernel.complete("%%mw_live\nhal")
    assert "ended the cluster" in kernel.run("%mw_stop --cluster").text


def test_the_debugger_says_which_task_raised_what(kernel):
    kernel.run(DECLARE)
    kernel.run(RANK)
    assert kernel.run("%mw_debug").error == "NoRun: no task has raised anything"
    kernel.run("%%mw_live --index 1\n1 / 0")
    prompts, result = answered(kernel, kernel.send("%mw_debug"), "q")
    assert (prompts, result.error) == (["[1] (Pdb) "], None), "the only one that raised"
    assert kernel.run("%mw_debug 0").error.splitlines()[0] == (
        "BadArguments: worker:0 has raised nothing"
    )
    kernel.run("%%mw_live\nraise ValueError(f'on {rank}')")
    assert kernel.run("%mw_debug").text.splitlines() == [
        "worker:0  ValueError: on 0 (In [8], line 1)",
        "worker:1  ValueError: on 1 (In [8], line 1)",
        "`%mw_debug worker:0` goes to the line that raised on worker:0",
    ]
    alone = kernel.client.execute("%mw_debug 1", allow_stdin=False, stop_on_error=False)
    assert kernel.collect(alone).error.startswith("BadArguments: the cell asks for input, by ")
    assert kernel.run("%%mw_live\nassert rank in (0, 1)").error is None


def test_one_task_at_a_time_is_in_the_debugger(kernel):
    kernel.run(DECLARE)
    kernel.run(RANK)
    request = kernel.send("%%mw_live\nbreakpoint()\nseen = rank")
    first = kernel.client.get_stdin_msg(timeout=120)["content"]["prompt"]
    one, printed = first[1], []
    waits = f"─ worker:{1 - int(one)} waits for worker:{one}, which is in the debugger"

    def told_that_the_other_waits():
        kernel.client.input("p 'a command'")
        assert kernel.client.get_stdin_msg(timeout=120)["content"]["prompt"] == first
        printed.append(kernel.printed())
        return waits in "".join(printed)

    eventually(told_that_the_other_waits)
    kernel.client.input("c")
    other = kernel.client.get_stdin_msg(timeout=120)["content"]["prompt"]
    assert {first, other} == {"[0] (Pdb) ", "[1] (Pdb) "}
    kernel.client.input("q")
    result = kernel.collect(request)
    assert result.error == (
        f"WorkerFailed: worker:{1 - int(one)} left the debugger, which ended the cell. "
        "All variables are kept"
    )
    assert "BdbQuit" not in "".join(printed) + result.text
    kernel.run(f"%%mw_live --index {one}\nassert seen == rank")


def test_ctrl_c_at_the_debuggers_prompt_ends_the_cell(kernel):
    kernel.run(DECLARE)
    kernel.run(RANK)
    request = kernel.send("%%mw_live --index 1\nhalf = 1\nbreakpoint()")
    kernel.client.get_stdin_msg(timeout=120)
    kernel.manager.interrupt_kernel()
    assert kernel.collect(request).error == (
        "WaitInterrupted: interrupted on all tasks; all variables are kept"
    )
    assert kernel.run("%%mw_live --index 1\nassert half == 1").error is None
    request = kernel.send(
        "%%mw_live --index 1\nbreakpoint()\nprint('in'); import time; time.sleep(600)"
    )
    kernel.client.get_stdin_msg(timeout=120)
    kernel.client.input("c")
    until_printed(kernel, "in\n")
    kernel.manager.interrupt_kernel()
    assert kernel.collect(request).error.startswith("WaitInterrupted: interrupted on all tasks")


KEPT = """%%mw_worker --keep --wait
import os
rank = int(os.environ['MWMAGIC_TASK'][-1])
def share(x):
    return x / (1 - rank)
share(7)"""


def test_a_program_that_failed_can_be_looked_into(kernel):
    kernel.run(DECLARE)
    failed = kernel.run(KEPT).error
    assert failed.startswith(
        "WorkerFailed: run 1 failed: worker:1 exited with code 1: ZeroDivision"
    )
    assert "`%mw_debug worker:1` goes to the line that raised" in failed
    prompts, result = answered(kernel, kernel.send("%mw_debug 1"), "p x, rank", "q")
    assert (prompts, result.error) == (["[1] (Pdb) "] * 2, None)
    assert "[1] (7, 1)" in result.text
    assert kernel.run("%%mw_live\nassert rank in (0, 1)").error is None
    assert kernel.run("%%mw_worker\n1").error.startswith("RunActive: run 1 is kept: its processes")
    assert "let go of the processes of run 1" in kernel.run(KEPT).text
    assert kernel.run("%mw_reset").error.startswith("RunActive: the processes of run 2 are kept")
    assert kernel.run("%mw_stop").text == (
        "let go of the processes of run 2, and of their variables\n"
    )
    begun = kernel.run("%%mw_live\n1").text
    assert "the variables of run 2 ended with it; `%%mw_worker --keep` keeps them" in begun


def test_a_program_asks_while_it_is_waited_for(kernel):
    kernel.run(DECLARE)
    kernel.run(
        "%%mw_worker\nimport os\nif os.environ['MWMAGIC_TASK'][-1] == '1':\n"
        "    name = input('name? ')\n    breakpoint()\n    print('hello', name)"
    )
    prompts, result = answered(kernel, kernel.send("%mw_wait"), "Ada", "c")
    assert (prompts, result.error) == (["[1] name? ", "[1] (Pdb) "], None)
    assert "hello Ada" in kernel.run("%mw_logs 1").text
    kernel.run("%%mw_worker\ninput('name? ')")
    alone = kernel.client.execute("%mw_wait", allow_stdin=False, stop_on_error=False)
    assert "EOFError: EOF when reading a line" in kernel.collect(alone).error
    alone = kernel.client.execute(
        "%%mw_worker --wait\nbreakpoint()\n1", allow_stdin=False, stop_on_error=False
    )
    assert "nobody could type a command" in kernel.collect(alone).error
