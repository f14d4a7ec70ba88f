"""Live cells through the Python interface, on real processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import threading
import time

import pytest
from processes import eventually, pid_of

from mwmagic import Cluster
from mwmagic.client.live.session import Live
from mwmagic.errors import BadArguments, ClusterError, NoRun, RunActive, WorkerFailed
from mwmagic.model.live import CellNews

pytestmark = pytest.mark.slow

RANK = "import os; rank = int(os.environ['MWMAGIC_TASK'][-1])"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("live")
    with Cluster(2, directory=folder, warm=False, grace=1.0) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """Wait for a line of the other task, and for names, however late a busy machine has them."""
    monkeypatch.setattr("mwmagic.client.live.cell.HELD_SECONDS", 60.0)
    monkeypatch.setattr("mwmagic.client.live.session.COMPLETION_SECONDS", 60.0)


@pytest.fixture
def live(cluster):
    """A session whose interpreters know their rank."""
    with cluster.live() as live:
        live.run(RANK)
        yield live
    live.process._connection.wait(lambda _: live.process.over, 120)


def texts(answers):
    return {task: answer.value.get("text/plain") for task, answer in answers.items()}


def lines(live, source, **options):
    """Run a cell and return what it prints."""
    cell = live.begin(source, **options)
    found = []
    for _ in live.follow(cell):
        found += cell.lines()
    return [(tuple(sorted(tasks)), text) for tasks, text in found + cell.lines()]


def answers(live, source, seconds=120.0, **options):
    """Run a cell that must end soon, and return its answers."""
    cell, until = live.begin(source, **options), time.monotonic() + seconds
    while not cell.over and time.monotonic() < until:
        cell.news(0.1)
    assert cell.over
    return cell.ranked()


def test_variables_live_from_cell_to_cell(live):
    live.run("x = 40 + rank")
    assert texts(live.run("x + 1")) == {"worker:0": "41", "worker:1": "42"}
    assert texts(live.run("x", tasks=[1])) == {"worker:1": "41"}
    assert texts(live.run("x;")) == {"worker:0": None, "worker:1": None}
    assert texts(live.run("import asyncio\nawait asyncio.sleep(0, rank)", tasks=[1])) == {
        "worker:1": "1"
    }


def test_names_in_the_interpreter_are_the_users_alone(live):
    names = texts(live.run("sorted(n for n in globals() if n[0] != '_')", tasks=[0]))
    assert names == {"worker:0": "['os', 'rank']"}
    assert texts(live.run("__name__", tasks=[0])) == {"worker:0": "'__main__'"}


def test_a_cells_output_is_its_own(live):
    first = "import os; print('hello'); os.write(2, b'from C\\n'); print(rank)"
    assert sorted(lines(live, f"{first}; None")) == [
        (("worker:0",), "0"),
        (("worker:0", "worker:1"), "from C"),
        (("worker:0", "worker:1"), "hello"),
        (("worker:1",), "1"),
    ]
    assert lines(live, "print('end', end='')", tasks=[0]) == [(("worker:0",), "end")]
    assert lines(live, "print('next')", tasks=[0]) == [(("worker:0",), "next")]


def test_an_exception_names_the_task_and_its_line_and_costs_no_variable(live):
    source = "before = 1\nif rank:\n    raise ValueError('bad batch')\nafter = 1"
    with pytest.raises(WorkerFailed, match=r"^worker:1 raised ValueError: bad batch \(In \[7\], "):
        live.run(source, name="In [7]")
    assert texts(live.run("before, 'after' in globals()")) == {
        "worker:0": "(1, True)",
        "worker:1": "(1, False)",
    }


@pytest.mark.parametrize("source", ["1 +", "exit(3)", "raise KeyboardInterrupt", "del rank, rank"])
def test_whatever_a_cell_raises_the_interpreters_live(live, source):
    with pytest.raises(WorkerFailed):
        live.run(source)
    assert texts(live.run("1 + 1")) == {"worker:0": "2", "worker:1": "2"}


def test_an_exception_is_told_while_others_run(live):
    cell = live.begin("import time\nif rank: 1 / 0\nelse: time.sleep(600)")
    while "worker:1" not in cell.answers:
        cell.news(1.0)
    assert cell.answers["worker:1"].raised.type == "ZeroDivisionError"
    assert not cell.over
    live.interrupt(cell)
    for _ in live.follow(cell):
        pass
    assert cell.answers["worker:0"].raised.type == "KeyboardInterrupt"


def test_ctrl_c_interrupts_all_tasks_and_keeps_what_they_have(live):
    def press():
        eventually(lambda: all(b"half" in live.process.logs(task) for task in (0, 1)))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt):
        live.run("import time\nhalf = rank\nprint('half', flush=True)\ntime.sleep(600)")
    assert texts(live.run("half")) == {"worker:0": "0", "worker:1": "1"}


def test_ctrl_c_as_a_cell_begins_interrupts_it(live, monkeypatch):
    begin = Live.begin

    def pressed(self, *args, **options):
        cell = begin(self, *args, **options)
        signal.raise_signal(signal.SIGINT)
        return cell

    with monkeypatch.context() as patch:
        patch.setattr(Live, "begin", pressed)
        with pytest.raises(KeyboardInterrupt):
            live.run("import time; time.sleep(600)")
    assert texts(live.run("1 + 1")) == {"worker:0": "2", "worker:1": "2"}


def test_ctrl_c_at_any_moment_loses_nothing_that_a_later_cell_says(live):
    chance, main = random.Random(3), threading.main_thread().ident
    for number in range(150):
        press = (main, signal.SIGINT)
        timer = threading.Timer(chance.uniform(0, 0.004), signal.pthread_kill, press)
        try:
            timer.start()
            while timer.is_alive():
                live.run("1 + 1")
        except KeyboardInterrupt:
            timer.join()
        assert texts(live.run(f"{number}")) == dict.fromkeys(("worker:0", "worker:1"), str(number))


def test_an_interrupt_reaches_a_cell_that_has_hardly_begun(live):
    for _ in range(20):
        cell = live.begin("import time; time.sleep(600)")
        live.interrupt(cell)
        while not cell.over:
            cell.news(None)
        assert {one.raised.type for one in cell.answers.values()} == {"KeyboardInterrupt"}


def test_a_long_answer_comes_whole(live):
    [answer] = live.run("'x' * 90_000", tasks=[0]).values()
    assert len(answer.value["text/plain"]) == 90_002
    folder = live.process.directory / "attempt-1"
    assert not list(folder.glob("*.said-*")), "it is not kept"


def test_cells_of_several_threads_run_one_after_the_other(live):
    live.run("import time; log = []")
    source = "log.append('in'); time.sleep(0.2); log.append('out'); None"
    threads = [threading.Thread(target=live.run, args=(source,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(texts(live.run("log == ['in', 'out'] * 3")).values()) == {"True"}


def test_input_is_answered(live):
    asked = []

    def ask(task, prompt):
        asked.append((task, prompt))
        return f"said to {task}"

    found = live.run("input('name? ')", ask=ask)
    assert texts(found) == {"worker:0": "'said to worker:0'", "worker:1": "'said to worker:1'"}
    assert sorted(asked) == [("worker:0", "name? "), ("worker:1", "name? ")]


def test_a_task_that_was_answered_asks_no_more(live):
    def asks():
        doing = live.process.status().tasks["worker:1"].live
        return doing is not None and doing.asks

    cell = live.begin("input()\nimport time; time.sleep(600)", [1])
    while not (news := cell.news()) or news[0] is not CellNews.ASK:
        pass
    eventually(asks, "the question in the status")
    live.reply("worker:1", "go on")
    eventually(lambda: not asks(), "its end")
    live.interrupt(cell)


def test_input_that_no_one_answers_ends(live):
    with pytest.raises(WorkerFailed, match="EOFError"):
        live.run("input('name? ')")


def test_a_question_can_be_interrupted(live):
    cell = live.begin("input('name? ')", [1])
    while not (news := cell.news()) or news[0] is not CellNews.ASK:
        pass
    live.interrupt(cell)
    assert cell.answers["worker:1"].raised.type == "KeyboardInterrupt"
    found = live.run("input()", [1], ask=lambda *_: "fresh")
    assert texts(found) == {"worker:1": "'fresh'"}


def test_the_status_says_what_each_task_does(live):
    def doing(cell=None):
        """Return what the tasks do, once a cell that is given has begun there."""
        reached = live.process._connection.wait(
            lambda _: (
                [one.live and one.live.cell for one in live.process.status().tasks.values()]
                == (cell or ["", ""])
            ),
            120,
        )
        assert reached, live.process.status().tasks
        return [one.live for one in live.process.status().tasks.values()]

    assert [one.since for one in doing()] == [None, None]
    assert live.process.words == "live, idle"
    cell = live.begin("import time\nif rank: input()\nelse: time.sleep(600)", name="In [7]")
    assert all(one.since for one in doing(["In [7]"] * 2))
    live.process._connection.wait(lambda _: live.process.status().tasks["worker:1"].live.asks, 120)
    assert live.process.words == "live; worker:0: In [7]; worker:1: In [7], asks for input"
    live.reply("worker:1", "")
    doing(["In [7]", ""])
    assert json.loads((live.process.directory / "run.json").read_text())["tasks"]
    live.interrupt(cell)
    doing()


def test_names_are_looked_up_on_an_idle_task_and_change_nothing(live):
    live.run("class A:\n    def fit(self, x):\n        'Train.'\na = A(); only = 1", [1])
    count = len(live.process.record.cells())
    assert live.complete("a.f") == [], "worker:0 is asked first"
    assert live.complete("a.f", [1]) == ["fit"]
    assert live.describe("a.fit", [1]).startswith("Signature: fit(x)")
    with pytest.raises(BadArguments, match="'a' cannot be looked up on worker:0"):
        live.describe("a")
    cell = live.begin("import time; time.sleep(600)", [0])
    while not cell.number:
        cell.news()
    assert live.complete("a.f") == ["fit"], "worker:0 is busy"
    with pytest.raises(RunActive, match="every task is in a cell"):
        live.describe("a", [0])
    live.interrupt(cell)
    assert len(live.process.record.cells()) == count + 1, "looks are no cells"


def test_a_debugger_is_spoken_to(live):
    lines = iter(["p half", "half = 5", "c"])
    live.run("half = rank\nbreakpoint()", [1], ask=lambda *_: next(lines))
    assert texts(live.run("half", [1])) == {"worker:1": "5"}
    with pytest.raises(WorkerFailed):
        live.run("def f(x):\n    1 / x\nf(0)", [1])
    lines = iter(["x = x + 7; print('inside', x)", "q"])
    live.run("import pdb; pdb.pm()", [1], ask=lambda *_: next(lines))
    assert b"inside 7" in live.process.logs(1)


def test_what_is_displayed_comes_in_order(live):
    cell = live.begin("display(rank, None)\ndisplay('x' * 90_000)", [1])
    shown = [
        said for news in live.follow(cell) if news for what, said in [news] if what is CellNews.SHOW
    ]
    assert [one["task"] for one in shown] == ["worker:1"] * 3
    texts = [one["value"]["text/plain"] for one in shown]
    assert (texts[:2], len(texts[2])) == (["1", "None"], 90_002)


def test_open_figures_are_displayed_and_closed(live):
    draw = "import matplotlib.pyplot as plt; plt.plot([1, 2]);"
    for _ in range(2):
        cell = live.begin(draw, [0])
        news = [one for one in live.follow(cell, None) if one is not None]
        assert cell.answers["worker:0"].raised is None
        [shown] = [said["value"] for what, said in news if what is CellNews.SHOW]
        assert shown["image/png"].startswith("iVBORw")


def test_figures_are_displayed_where_a_cell_shows_them(live):
    source = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\ndisplay('next')"
    cell = live.begin(f"{source}\nprint(plt.get_fignums(), plt.show.__name__)", [0])
    news = [one for one in live.follow(cell, None) if one is not None]
    assert cell.answers["worker:0"].raised is None
    shown = [said["value"] for what, said in news if what is CellNews.SHOW]
    assert ["image/png" in one for one in shown] == [True, False], "once, before what follows"
    log = live.process.logs(0).decode()
    assert "[] show\n" in log
    assert "window" not in log


def test_cells_are_recorded(live):
    with pytest.raises(WorkerFailed):
        live.run("print('out')\nif rank: 1 / 0", name="In [7]")
    paths = live.process.record.paths
    assert paths.cell(2).read_text() == "print('out')\nif rank: 1 / 0"
    first, second = map(json.loads, paths.cells.read_text().splitlines())
    assert (first["cell"], second["cell"], second["name"]) == (1, 2, "In [7]")
    assert (second["tasks"], second["why"]) == (["worker:0", "worker:1"], "answered")
    raised = {task: one["raised"] for task, one in second["answers"].items()}
    assert raised == {"worker:0": None, "worker:1": "ZeroDivisionError"}
    one = second["answers"]["worker:0"]
    assert live.process.logs(0)[one["start"] : one["end"]] == b"out\n"


def test_a_reset_gives_fresh_interpreters(live):
    live.run("x = 1")
    live.reset()
    with pytest.raises(WorkerFailed, match="NameError: name 'x' is not defined"):
        live.run("x")


def test_a_killed_task_ends_the_session_with_its_diagnosis(live):
    with pytest.raises(WorkerFailed, match="worker:1 killed by SIGKILL"):
        live.run("import time\nif rank: os.kill(os.getpid(), 9)\nelse: time.sleep(600)")
    with pytest.raises(NoRun, match="the live session has ended"):
        live.run("1")


def test_what_cannot_run_is_refused(cluster, live):
    with pytest.raises(ClusterError, match="worker:7 does not exist"):
        live.run("1", tasks=[7])
    with pytest.raises(BadArguments, match=r"has 300,0\d\d bytes, and 200,000 are the limit"):
        live.run("'" + "\N{GREEK SMALL LETTER ALPHA}" * 150_000 + "'")
    with pytest.raises(RunActive, match="is a live session; `%mw_stop`"):
        cluster.run("main.py", source="pass", cwd=cluster.options.root)


def test_a_program_is_no_session(cluster):
    run = cluster.run("main.py", source="import time; time.sleep(600)", cwd=cluster.options.root)
    with pytest.raises(RunActive, match="is still going"):
        cluster.live()
    run.stop(grace=0)


def test_a_second_process_finds_the_session(cluster, live):
    live.run("shared = 5")
    assert texts(cluster.live().run("shared", tasks=[0])) == {"worker:0": "5"}


def test_a_reset_ends_the_cells_of_other_threads(live):
    said = []

    def run():
        with pytest.raises(NoRun) as caught:
            live.run("print('in', flush=True); import time; time.sleep(600)")
        said.append(str(caught.value))

    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: b"in" in live.process.logs(0))
    live.reset()
    thread.join()
    assert said == ["the interpreters were reset before the cell was over; run it again"]
    assert texts(live.run("1", tasks=[0])) == {"worker:0": "1"}


JSON = """
class JSON:
    def __init__(self, held):
        self.held = held
    def __repr__(self):
        return 'shown'
    def _repr_json_(self):
        return self.held
"""


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ("{'loss': numpy.float32(1)}", {"loss": 1.0}),
        ("{'loss': [float('nan'), -float('inf')]}", {"loss": ["NaN", "-Infinity"]}),
        ("{7}, {1: b'a'}", [7]),
        ("numpy.arange(3)", [0, 1, 2]),
        ("held", None),
        ("{(1, 2): 3}", None),
        ("object()", None),
    ],
)
def test_a_value_that_json_cannot_hold_is_shown_as_far_as_possible(live, held, expected):
    live.run(f"import numpy\n{JSON}\nheld = []; held.append(held); kept = 1", [0])
    [answer] = answers(live, f"JSON(({held}))", tasks=[0]).values()
    assert answer.value == {
        "text/plain": "shown",
        **({} if expected is None else {"application/json": expected}),
    }
    assert texts(live.run("kept", [0])) == {"worker:0": "1"}


FULL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, -1))"
"""Has no file take a byte more."""


def test_an_answer_comes_in_short_where_the_disk_is_full(live):
    live.run(FULL, [0])
    [answer] = answers(live, "display('y' * 90_000)\n'x' * 90_000", tasks=[0]).values()
    shown = answer.value["text/plain"]
    assert shown.startswith("'xxx")
    assert "(the rest could not be sent: OSError: [Errno 27] File too large)" in shown
    [answer] = answers(live, "raise ValueError('x' * 90_000)", tasks=[0]).values()
    assert (answer.raised.type, answer.raised.message[:3]) == ("ValueError", "xxx")


def test_an_answer_that_cannot_be_read_is_an_error_of_its_cell(live):
    broken = "import os; dumped = os.fdopen\nclass Half:\n    def __init__(self, fd, mode):\n"
    broken += (
        "        self.file = dumped(fd, mode)\n    def __enter__(self):\n        return self\n"
    )
    broken += "    def __exit__(self, *_):\n        self.file.close()\n"
    broken += "    def write(self, data):\n        self.file.write(data[:100])\n"
    live.run(broken, [0])
    [answer] = answers(live, "os.fdopen = Half; kept = 1; 'x' * 90_000", tasks=[0]).values()
    assert "its answer cannot be read" in answer.raised.message
    live.run("os.fdopen = dumped; assert kept == 1", [0])


def test_a_cell_may_change_the_environment(live):
    live.run("os.environ.clear()", [0])
    [answer] = answers(live, "'x' * 90_000", tasks=[0]).values()
    assert len(answer.value["text/plain"]) == 90_002
    live.run("import numpy; x = numpy.arange(3)", [0])
    assert live.pull("x").tolist() == [0, 1, 2]


@pytest.mark.parametrize("error", ["SystemExit", "KeyboardInterrupt", "RecursionError"])
def test_whatever_an_exceptions_text_raises_the_interpreters_live(live, error):
    source = f"class E(Exception):\n    def __str__(self):\n        raise {error}\nraise E"
    assert {one.raised.type for one in answers(live, source).values()} == {"E"}
    assert texts(live.run("1 + 1")) == {"worker:0": "2", "worker:1": "2"}


def test_a_cell_that_closes_the_line_ends_the_session(live):
    with pytest.raises(WorkerFailed, match="worker:0"):
        live.run("os.closerange(3, 1000)", [0])


TRACED = {
    "cProfile": "import cProfile; n = cProfile.Profile().runcall(f)",
    "settrace": "import sys; sys.settrace(tracer); n = f(); sys.settrace(None)",
    "setprofile": "import sys; sys.setprofile(tracer); n = f(); sys.setprofile(None)",
    "trace": "import trace; n = trace.Trace(count=1, trace=0).runfunc(f)",
}
"""What looks at each call, and sets `n`; by what it is."""


@pytest.mark.parametrize("how", TRACED)
def test_a_later_cell_can_be_traced(live, how):
    live.run("def tracer(*_):\n    return tracer\ndef f():\n    return sum(i for i in range(5))")
    assert texts(answers(live, f"{TRACED[how]}\nn")) == dict.fromkeys(
        ("worker:0", "worker:1"), "10"
    )


@pytest.mark.parametrize("enter", ["pdb.runcall(f)", "breakpoint(); f()"])
def test_a_later_cell_can_be_gone_through_line_by_line(live, enter):
    live.run("import pdb\ndef g():\n    return 3\ndef f():\n    x = g()\n    return x", [0])
    cell, until = live.begin(f"{enter}\ndone = 1", [0]), time.monotonic() + 120
    lines = iter(["n", "s", "n", "s", "n", "n", "n", "c"])
    while not cell.over and time.monotonic() < until:
        news = cell.news(0.1)
        if news is not None and news[0] is CellNews.ASK:
            live.reply("worker:0", next(lines, "c"))
    assert cell.over
    assert texts(live.run("done", [0])) == {"worker:0": "1"}


@pytest.mark.parametrize("text", ["x" * 190_000, "\u7b97" * 60_000, "\U0001f600" * 48_000])
def test_a_cell_within_the_limit_runs_whatever_its_characters(live, text):
    answers(live, f"x = '{text}'", tasks=[1])
    assert texts(live.run("len(x)", [1])) == {"worker:1": str(len(text))}


def test_an_answer_that_is_too_long_is_refused_and_can_be_given_again(live):
    cell = live.begin("len(input())", [1])
    while not (news := cell.news()) or news[0] is not CellNews.ASK:
        pass
    with pytest.raises(BadArguments, match=r"the answer has 210,0\d\d bytes, and 200,000 are"):
        live.reply("worker:1", "x" * 210_000)
    live.reply("worker:1", "x" * 190_000)
    while not cell.over:
        cell.news(0.1)
    assert texts(cell.answers) == {"worker:1": "190000"}


def test_a_cell_that_waits_for_another_is_cancelled(live):
    first = live.begin("import time; time.sleep(600)", [0])
    second = live.begin("late = 1", [0])
    live.interrupt(second)
    assert (second.over, second.why) == (True, "withdrawn")
    live.interrupt(first)
    assert texts(live.run("'late' in globals()", [0])) == {"worker:0": "False"}


def test_a_cell_that_a_process_does_not_take_is_answered(live):
    pid = pid_of(live.process, "worker:0")
    os.kill(pid, signal.SIGSTOP)
    look = {"tasks": ["worker:0"], "wanted": "names", "text": "x" * 1_000}
    for _ in range(400):  # they fill what the process has not received
        live._connection.converse("look", **look)
    try:
        [answer] = answers(live, "1", tasks=[0]).values()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "the process did not accept the cell" in answer.raised.message


CHILDREN = """
import multiprocessing
context = multiprocessing.get_context({method!r})
child = context.Process(target=print, args=("in a child",))
child.start()
child.join()
with context.Pool(2) as pool:
    found = pool.map(len, ["a", "bc"])
child.exitcode, found
"""


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_a_cell_starts_children_in_each_way(live, method):
    cell = live.begin(CHILDREN.format(method=method), [0])
    while not cell.over:
        cell.news(0.1)
    assert cell.lines() == [(("worker:0",), "in a child")]
    assert texts(cell.answers) == {"worker:0": "(0, [1, 2])"}


@pytest.mark.parametrize(
    ("end", "expected"),
    [("os._exit(3)", "exited with code 3"), ("os.kill(os.getpid(), 9)", "killed by SIGKILL")],
)
def test_a_task_that_ends_says_in_which_cell_and_shows_what_that_printed(live, end, expected):
    for _ in range(2):
        live.run("print('of long ago'); print('half', end='')")
    with pytest.raises(WorkerFailed) as failed:
        live.run(f"if rank:\n    print('just now', flush=True)\n    {end}", name="In [7]")
    text = str(failed.value)
    assert expected in text
    assert "That was in In [7]. The live session is over" in text
    assert "  The last lines that worker:1 printed:\n    just now\n" in text
    assert "long ago" not in text


def test_a_task_that_ends_without_a_word_shows_no_other_cells_lines(live):
    live.run("print('of long ago')")
    with pytest.raises(WorkerFailed) as failed:
        live.run("if rank: os._exit(3)")
    assert "worker:1 exited with code 3" in str(failed.value)
    assert "long ago" not in str(failed.value)


def test_a_task_that_is_stopped_is_reported_within_seconds(live):
    pid = pid_of(live.process, "worker:1")
    cell = live.begin("import time\nwhile 'go' not in globals(): time.sleep(0.05)")
    while not cell.number:
        cell.news()
    os.kill(pid, signal.SIGSTOP)
    until, told = time.monotonic() + 120, []
    try:
        while not told and time.monotonic() < until:
            news = cell.news(0.1)
            told += [news[1]] if news is not None and news[0] is CellNews.STOPPED else []
    finally:
        os.kill(pid, signal.SIGCONT)
    assert told == [{"task": "worker:1", "pid": pid, "away": None}]
    live.interrupt(cell)
    assert cell.over


OPEN = """
import atexit, pathlib, signal, time
file = open(f"text-{rank}", "w")
_ = file.write("written")
class Saves:
    def __del__(self, path=pathlib.Path(f"deleted-{rank}")):
        path.touch()
saves = Saves()
_ = atexit.register(pathlib.Path(f"handled-{rank}").touch)
"""


@pytest.fixture
def ended(tmp_path):
    """Return what begins a session, waits for its end and returns what its files hold."""

    def files(source, end):
        with Cluster(2, directory=tmp_path, warm=False, grace=60.0) as cluster:
            live = cluster.live()
            live.run(f"import os; os.chdir({str(tmp_path)!r})\n{RANK}\n{source}")
            end(live)
        return {one.name: one.read_text() for one in tmp_path.glob("*-[01]")}

    return files


WHOLE = {
    f"{kind}-{rank}": text
    for kind, text in (("text", "written"), ("deleted", ""), ("handled", ""))
    for rank in range(2)
}


def test_the_end_of_a_session_is_that_of_its_interpreters(ended):
    assert ended(OPEN, Live.close) == WHOLE


def test_sigterm_that_does_not_wake_the_main_thread_ends_a_session_whole(ended):
    """It arrives on another thread here; otherwise, just before the main thread begins to wait."""
    elsewhere = "_ = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})"
    assert ended(f"{OPEN}\n{elsewhere}", Live.close) == WHOLE


def test_an_interpreter_that_is_terminated_from_outside_ends_whole(ended):
    def terminated(live):
        os.kill(pid_of(live.process, "worker:1"), signal.SIGTERM)
        with pytest.raises(WorkerFailed, match="worker:1 killed by SIGTERM"):
            live.process.wait(60)

    files = ended(OPEN, terminated)
    assert {name: files[name] for name in WHOLE if name.endswith("1")} == {
        name: text for name, text in WHOLE.items() if name.endswith("1")
    }


def test_a_cell_meets_sigterm_as_a_program_does(ended):
    def killed(live):
        cell = live.begin("print('up', flush=True)\nwhile True: time.sleep(600)", [0])
        eventually(lambda: cell.news(0.1) or cell.lines())
        live.close()

    files = ended(OPEN, killed)
    assert (files["text-0"], files["text-1"]) == ("", "written")


FORKED = """
import os, threading, time
def fork():
    time.sleep(0.2)
    global child
    if not (child := os.fork()):
        time.sleep(600)
forking = threading.Thread(target=fork)
forking.start()
"""


def test_a_child_that_a_thread_forks_between_cells_meets_sigterm(live):
    live.run(FORKED, [0])
    ended = "forking.join(); os.kill(child, 15); os.WTERMSIG(os.waitpid(child, 0)[1])"
    assert texts(live.run(ended, [0])) == {"worker:0": "15"}


def test_a_handler_of_the_users_keeps_its_signal(ended):
    handler = "\nsignal.signal(signal.SIGTERM, lambda *_: file.write(' by a handler') and exit(0))"
    files = ended(OPEN + handler, Live.close)
    assert files["text-0"] == "written by a handler"
