import subprocess
import sys
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mwmagic.logs.terminal import shown
from mwmagic.logs.tracebacks import Frame, find

SCRIPT = "/home/ann/project/main.py"
NOTICE = "W0000 00:00:1795231644.451560   18289 op_kernel.cc:1845] something happened"


def found(data, script=SCRIPT):
    return find("\n".join(shown(data, ansi=True)), script)


def run(tmp_path, code, **files):
    """Return the failure of a real Python process that runs `code`."""
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    script = tmp_path / "main.py"
    script.write_text(textwrap.dedent(code))
    command = [sys.executable, "-X", "faulthandler", str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return find(ended.stderr, str(script)), ended.stderr


@pytest.mark.parametrize(
    ("name", "kind", "words", "own"),
    [
        ("chained-1", "RuntimeError", "bad batch:\nsecond line", ("die.py", 10, "<module>")),
        (
            "keras3-callback",
            "RuntimeError",
            "callback broke",
            ("kerr.py", 14, "on_train_batch_end"),
        ),
        (
            "legacy-callback",
            "RuntimeError",
            "callback broke",
            ("kerr.py", 14, "on_train_batch_end"),
        ),
        ("keras3-data", "OSError", "cannot read shard 4", ("kerr.py", 7, "gen")),
        (
            "legacy-shape",
            "ValueError",
            'Input 0 of layer "sequential" is incompatible with the layer: ',
            ("kerr.py", 17, "main"),
        ),
        ("keras3-layer", "KeyError", "missing", ("layer.py", 4, "call")),
        ("legacy-layer", "RuntimeError", "KeyError: 'missing'", ("layer.py", 7, "call")),
        (
            "function-shape",
            "ValueError",
            "Dimensions must be equal, but are 2 and 3 for 'MatMul = MatMul[T=DT_FLOAT, ",
            ("tff.py", 6, "helper"),
        ),
        ("jax-shape", "TypeError", "dot_general requires contracting ", ("jf.py", 3, "step")),
        (
            "keras3-shape",
            "ValueError",
            "Input 0 with name 'None' of layer 'dense' is incompatible with the layer: ",
            ("kerr.py", 17, "main"),
        ),
        (
            "lost-peer-0",
            "tensorflow.python.framework.errors_impl.UnavailableError",
            "Collective ops is aborted by: Error reported from /job:worker/task:1: ",
            ("die.py", 11, "<module>"),
        ),
        (
            "unshardable-0",
            "tensorflow.python.framework.errors_impl.NotFoundError",
            "Found an unshardable source dataset",
            ("filep.py", 5, "<module>"),
        ),
        (
            "unpatched-keras3-1",
            "ValueError",
            "Attempt to convert a value (PerReplica:{...}) with an unsupported type (<class ",
            ("fit.py", 24, "<module>"),
        ),
    ],
)
def test_recorded_failures(sample, name, kind, words, own):
    failure = found(sample(name))
    assert failure.type == kind
    assert failure.title.startswith(f"{kind}: {words}")
    assert (failure.own.file, failure.own.line, failure.own.function) == (
        f"/home/ann/project/{own[0]}",
        *own[1:],
    )
    assert failure.own.source
    assert len(failure.message) < 1000


@pytest.mark.parametrize(
    "name", ["keras3-fit", "legacy-two-workers-0", "loop-0", "jax-0", "alone-0"]
)
def test_logs_without_failure(sample, name):
    assert found(sample(name)) is None


def test_frames_of_autograph_follow_those_of_the_call(sample):
    failure = found(sample("legacy-shape"))
    files = [frame.file.rsplit("/", 1)[-1] for frame in failure.frames]
    assert files[:2] == ["kerr.py", "kerr.py"]
    assert files[-1] == "input_spec.py"
    assert failure.frames[-1].source == "raise ValueError("
    assert "in user code" not in failure.message


def test_a_chain_tells_what_ended_it_and_what_that_came_from(sample):
    failure = found(sample("chained-1"))
    assert failure.message == "bad batch:\nsecond line"
    [origin] = failure.origins
    assert (origin.title, origin.own.function) == ("KeyError: 'missing'", "inner")
    assert not origin.handled


def test_an_exception_from_installed_code_is_reported_with_the_users_line(tmp_path):
    failure, _ = run(tmp_path, "import json\njson.loads('{')\n")
    assert failure.type == "json.decoder.JSONDecodeError"
    code = """
        import concurrent.futures
        def task():
            return {}["x"]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            try:
                pool.submit(task).result()
            except KeyError:
                raise ValueError("second")
    """
    failure, _ = run(tmp_path, code)
    assert (failure.title, failure.own.line) == ("ValueError: second", 9)
    [origin] = failure.origins
    assert (origin.title, origin.own.function, origin.handled) == ("KeyError: 'x'", "task", True)


def test_syntax_errors_in_the_script_and_in_its_modules(tmp_path):
    failure, _ = run(tmp_path, "x = (1,\n")
    assert failure.type == "SyntaxError"
    assert failure.own == Frame(str(tmp_path / "main.py"), 1, "", "x = (1,")
    failure, _ = run(tmp_path, "import helper\n", helper="if True:\nx = 1\n")
    assert failure.type == "IndentationError"
    assert failure.own == Frame(str(tmp_path / "helper.py"), 2, "", "x = 1")
    assert failure.frames[0].function == "<module>"


def test_messages_of_several_lines_and_none(tmp_path):
    failure, _ = run(tmp_path, "raise ValueError('one\\n\\n  two')\n")
    assert failure.message == "one\n\n  two"
    failure, _ = run(tmp_path, "assert False\n")
    assert (failure.type, failure.message, failure.title) == (
        "AssertionError",
        "",
        "AssertionError",
    )
    failure, _ = run(tmp_path, "class Stop(BaseException): pass\nraise Stop('now')\n")
    assert (failure.type, failure.message) == ("Stop", "now")


def test_deep_recursion_is_one_failure(tmp_path):
    failure, _ = run(tmp_path, "def f():\n    f()\nf()\n")
    assert failure.type == "RecursionError"
    assert failure.own == Frame(str(tmp_path / "main.py"), 2, "f", "f()")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups came with Python 3.11")
def test_a_group_yields_one_of_its_members(tmp_path):
    code = """
        import asyncio
        async def fail(x): raise ValueError(f"member {x}")
        async def main():
            async with asyncio.TaskGroup() as group:
                group.create_task(fail(1))
                group.create_task(fail(2))
        asyncio.run(main())
    """
    failure, _ = run(tmp_path, code)
    assert failure.type == "ValueError"
    assert failure.own.function == "fail"
    assert failure.title.startswith("ValueError: member ")


def test_a_crash_of_the_interpreter_shows_where_it_was(tmp_path):
    code = "import os, signal\ndef f():\n    os.kill(os.getpid(), signal.SIGSEGV)\nf()\n"
    failure, _ = run(tmp_path, code)
    assert (failure.type, failure.message) == ("Fatal Python error", "Segmentation fault")
    assert [frame.function for frame in failure.frames] == ["<module>", "f"]
    assert failure.own == Frame(str(tmp_path / "main.py"), 3, "f")


def test_what_python_ignores_at_its_end_is_no_failure(tmp_path):
    code = """
        import atexit
        class Bad:
            def __del__(self): raise RuntimeError("ignored")
        atexit.register(lambda: 1 / 0)
        bad = Bad()
        raise ValueError("real")
    """
    failure, log = run(tmp_path, code)
    assert "ZeroDivisionError" in log
    assert "ignored" in log
    assert (failure.type, failure.message) == ("ValueError", "real")
    failure, _ = run(tmp_path, "class B:\n  def __del__(self): 1 / 0\nb = B()\n")
    assert failure is None


def test_the_last_of_several_tracebacks_counts(tmp_path):
    code = """
        import traceback
        try: 1 / 0
        except ZeroDivisionError: traceback.print_exc()
        print("going on")
        raise ValueError("last")
    """
    assert run(tmp_path, code)[0].type == "ValueError"


def test_notices_in_between_and_in_mid_line_do_no_harm(tmp_path):
    _, log = run(tmp_path, "def f():\n    raise ValueError('one')\nf()\n")
    lines = log.splitlines()
    expected = find(log, str(tmp_path / "main.py"))
    for place in range(1, len(lines)):
        mixed = "\n".join([*lines[:place], NOTICE, "/job:worker/replica:0/task:1", *lines[place:]])
        assert find(mixed + NOTICE, str(tmp_path / "main.py")) == expected
    assert find("3/4 [==>...] - loss: 0.5" + log + NOTICE, str(tmp_path / "main.py")) == expected


@pytest.mark.parametrize("lines", range(2, 6))
def test_a_log_that_is_cut_off_still_tells_the_place(lines):
    log = f"""\
Traceback (most recent call last):
  File "{SCRIPT}", line 3, in <module>
    f()
  File "/usr/lib/python3/x.py", line 4, in f
    raise ValueError("one")
ValueError: one"""
    failure = find("\n".join(log.split("\n")[:lines]), SCRIPT)
    assert failure.own.line == 3
    assert failure.type == ""
    headless = find("\n".join(log.split("\n")[1:]), SCRIPT)
    assert (headless.type, headless.own.line) == ("ValueError", 3)


def test_printed_stacks_are_no_failures(tmp_path):
    code = (
        "import faulthandler, traceback\ntraceback.print_stack()\nfaulthandler.dump_traceback()\n"
    )
    assert run(tmp_path, code)[0] is None


@settings(deadline=None)
@given(
    st.lists(
        st.text()
        | st.sampled_from(
            [
                "Traceback (most recent call last):",
                f'  File "{SCRIPT}", line 3, in f',
                "    x = 1",
                "ValueError: in user code:",
                "",
                NOTICE,
                "KeyError",
                "The above exception was the direct cause of the following exception:",
                "Exception ignored in: <x>",
                "Fatal Python error: Aborted",
                "  | ",
            ]
        )
    )
)
def test_garbage_never_raises(lines):
    failure = find("\n".join(lines), SCRIPT)
    assert failure is None or isinstance(failure.title, str)
