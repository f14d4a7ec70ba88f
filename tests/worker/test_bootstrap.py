"""The bootstrap means what ``python main.py`` means, and tells what went wrong."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent

import pytest
from processes import eventually, running
from programs import HELPER, PROGRAMS

from mwmagic.model import variables
from mwmagic.worker import bootstrap

BOOTSTRAP = bootstrap.__file__
FOLDER = str(Path(BOOTSTRAP).parent)
FILES = ("out.txt", "helper.txt")
FROM_THE_FILE = "itself as a module"
"""A program to which it matters what the file is by now: the import system knows only that."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory with a script's neighbours in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")  # as the supervisor has it
    monkeypatch.setenv("MWMAGIC_FAILURE_REPORT", str(tmp_path / "report.json"))
    (tmp_path / "data.txt").write_text("data")
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "broken.py").write_text("def f(:\n    pass\n")
    return tmp_path


def write(path, code):
    path.write_bytes(code if isinstance(code, bytes) else dedent(code).encode())
    return path


def run(*argv, **options):
    """Run a command to its end."""
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False, **options
    )


def boot(*argv, **options):
    return run(sys.executable, BOOTSTRAP, *argv, **options)


def outcome(done, folder):
    """Return all that a script did, but for addresses in memory, and an archive's time."""
    texts = [re.sub(r"0x[0-9a-f]+", "0x", text.decode()) for text in (done.stdout, done.stderr)]
    made = [(folder / name) for name in FILES]
    contents = [path.exists() and (timeless(path.read_bytes()), path.unlink()) for path in made]
    return done.returncode, *texts, contents


def timeless(data):
    """Return a file's bytes, but for the four in which an archive has the time."""
    return data[:4] + data[8:] if data.startswith(b"\x1f\x8b") else data


@pytest.mark.parametrize("imported", ["", "import json, traceback"])
def test_the_users_modules_do_not_replace_pythons_when_a_failure_is_reported(folder, imported):
    for name in ("json", "linecache", "threading", "tokenize", "traceback"):
        write(folder / f"{name}.py", "own = True")
    main = write(folder / "main.py", f"{imported}\n1 / 0")
    done = boot("main.py")
    assert done.returncode == 1
    assert b"line 2, in <module>" in done.stderr
    assert b"    1 / 0\n" in done.stderr
    report = json.loads((folder / "report.json").read_text())
    assert report["type"] == "ZeroDivisionError"
    assert report["where"] == {
        "file": str(main),
        "line": 2,
        "function": "<module>",
        "source": "1 / 0",
    }


def test_the_users_module_may_be_named_as_one_of_pythons(folder):
    write(folder / "linecache.py", "own = True")
    write(folder / "main.py", "import linecache\nprint(vars(linecache)['own'])")
    assert boot("main.py").stdout == b"True\n"


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != FROM_THE_FILE])
def test_a_copy_means_the_same_whatever_the_file_is_by_now(folder, name, monkeypatch):
    (folder / "record").mkdir()
    monkeypatch.setenv("MWMAGIC_SOURCE", str(write(folder / "record/main.py", PROGRAMS[name])))
    write(folder / "main.py", PROGRAMS[name])
    plain = outcome(run(sys.executable, "main.py", "a", "--b"), folder)
    write(folder / "main.py", "raise SystemExit('the code of another launch')\n" * 9)
    assert outcome(boot("main.py", "a", "--b"), folder) == plain


@pytest.mark.parametrize(
    "place", ["./main.py", "sub/main.py", "sub/../main.py", "link.py", "absolute"]
)
def test_a_script_elsewhere_means_the_same(folder, place):
    (folder / "sub").mkdir()
    write(folder / "main.py", "import sys; print(sys.argv, sys.path[0], __file__); x")
    write(folder / "sub/main.py", "import sys; print(sys.argv, sys.path[0], __file__); x")
    (folder / "link.py").symlink_to("sub/main.py")
    place = str(folder / "main.py") if place == "absolute" else place
    plain = outcome(run(sys.executable, place), folder)
    assert outcome(boot(place), folder) == plain


def test_nothing_heavy_is_imported(folder):
    write(folder / "main.py", "import sys; print(*sys.modules)")
    modules = set(boot("main.py").stdout.decode().split())
    heavy = {"tensorflow", "keras", "numpy", "IPython", "psutil", "asyncio", "ctypes"}
    heavy |= {"socket", "subprocess", "multiprocessing", "logging", "argparse", "traitlets"}
    assert not modules & heavy
    assert "mwmagic.worker" in modules
    assert not modules & {"mwmagic.client", "mwmagic.supervisor"}


# The report.


def report(folder, code):
    write(folder / "main.py", code)
    done = boot("main.py")
    path = folder / "report.json"
    return (json.loads(path.read_text()) if path.exists() else None), done


def test_an_exception_is_reported_with_the_line_of_the_users_code(folder):
    told, done = report(folder, "import json\ndef f():\n    json.loads('{')\nf()")
    assert done.returncode == 1
    assert told["type"] == "JSONDecodeError"
    assert told["message"].startswith("Expecting property name")
    assert told["where"] == {
        "file": str(folder / "main.py"),
        "line": 3,
        "function": "f",
        "source": "json.loads('{')",
    }
    assert told["time"] > 0


def test_a_module_beside_the_script_is_the_users_too(folder):
    told, _ = report(folder, "import helper\nhelper.fail()")
    assert told["where"]["file"] == str(folder / "helper.py")
    assert told["where"]["function"] == "fail"


def test_the_files_that_an_exception_came_through_are_reported(folder):
    code = "import json\ntry:\n    json.loads('{')\nexcept ValueError:\n    open('missing')"
    told, _ = report(folder, code)
    assert told["files"][-1] == str(folder / "main.py")
    [origin] = told["origins"]
    assert [name.rpartition("/json/")[2] for name in origin["files"][-2:]] == [
        "__init__.py",
        "decoder.py",
    ]


def test_what_is_installed_beside_the_script_is_not_the_users(folder):
    package = folder / "venv/site-packages"
    package.mkdir(parents=True)
    write(package / "lib.py", "def fail():\n    raise KeyError(1)\n")
    code = "import sys\nsys.path.append('venv/site-packages')\nimport lib\nlib.fail()"
    told, _ = report(folder, code)
    assert told["where"]["line"] == 4


def test_what_ended_it_is_reported_with_what_it_came_from(folder):
    code = """
        def load():
            try:
                int("x")
            except ValueError as error:
                raise RuntimeError("later") from error
        try:
            load()
        except RuntimeError:
            {}["last"]
    """
    told, _ = report(folder, code)
    assert (told["type"], told["where"]["source"]) == ("KeyError", '{}["last"]')
    near, far = told["origins"]
    assert (near["type"], near["message"], near["handled"]) == ("RuntimeError", "later", True)
    assert near["where"]["function"] == "load"
    assert (far["type"], far["where"]["source"], far["handled"]) == (
        "ValueError",
        'int("x")',
        False,
    )


def test_what_was_never_raised_has_no_place(folder):
    told, _ = report(folder, "raise RuntimeError('later') from OSError('never raised')")
    assert (told["type"], told["where"]["line"]) == ("RuntimeError", 1)
    [origin] = told["origins"]
    assert (origin["type"], origin["where"]) == ("OSError", None)


def test_what_is_not_shown_is_not_reported(folder):
    code = """
        try:
            int("x")
        except ValueError:
            raise RuntimeError("later") from None
    """
    assert report(folder, code)[0]["origins"] == []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups came with Python 3.11")
def test_a_group_came_from_its_members(folder):
    told, _ = report(folder, "raise ExceptionGroup('both', [OSError('a'), OSError('b')])")
    assert [origin["message"] for origin in told["origins"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("code", "kind", "line"),
    [
        ("x = 1\nif x\n    pass\n", "SyntaxError", 2),
        ("import broken\n", "SyntaxError", 1),
        ("x = 1\neval('1 +')\n", "SyntaxError", 2),
        ("import not_there_at_all\n", "ModuleNotFoundError", 1),
        (b"print('\xe9')\n", "SyntaxError", 1),
        (b"# coding: nonsense\n", "SyntaxError", 0),
    ],
)
def test_code_that_cannot_run_is_reported(folder, code, kind, line):
    told, done = report(folder, code)
    assert (told["type"], told["where"]["line"], done.returncode) == (kind, line, 1)
    assert kind in done.stderr.decode()


def test_odd_exceptions_are_reported(folder):
    code = """
        class Odd(Exception):
            def __str__(self):
                raise TypeError("no text")
        raise Odd
    """
    told, _ = report(folder, code)
    assert (told["type"], told["message"]) == ("Odd", "<its text is not available>")
    told, _ = report(folder, "error = ValueError('x')\nraise error from error")
    assert (told["type"], told["origins"]) == ("ValueError", [])
    smile = "'\\U0001f600' * 10**6"
    code = f"raise ValueError({smile} + '\\udc80') from error  # {smile * 10**5}"
    for _ in range(4):
        code = f"try:\n{indent(code, ' ')}\nexcept ValueError as e:\n error = e\n{code}"
    told, _ = report(folder, f"error = None\n{code}")
    assert len(told["origins"]) == 3
    assert len((folder / "report.json").read_bytes()) < 64 << 10  # what the agent reads of it
    assert told["message"].endswith("\U0001f600\udc80")


@pytest.mark.parametrize(
    "code", ["", "raise SystemExit", "import os; os._exit(1)", "raise SystemExit(42)"]
)
def test_an_exit_is_no_exception(folder, code):
    assert report(folder, code)[0] is None


def test_an_exit_on_purpose_is_reported_with_its_text(folder):
    told, _ = report(folder, "import sys\nsys.exit('no data')")
    assert (told["type"], told["message"], told["where"]["line"]) == ("SystemExit", "no data", 2)


def test_a_fork_of_a_worker_does_not_report_for_it(folder):
    code = """
        import os
        if os.fork() == 0:
            raise RuntimeError("of the child")
        os.wait()
    """
    told, done = report(folder, code)
    assert (told, done.returncode) == (None, 0)
    assert b"RuntimeError: of the child" in done.stderr


def test_a_fork_of_a_worker_does_not_take_leave_for_it(folder):
    code = """
        import os, sys, types

        class Context:
            job = types.SimpleNamespace(name="worker", num_tasks=2)
            coordination_service = types.SimpleNamespace(
                coordinated_job_list=[job], service_leader="/job:worker/replica:0/task:0"
            )

            def host_address_space(self):
                return "/job:worker/replica:0/task:1"

            def set_config_key_value(self, key, value):
                print(os.getpid(), key)

        module = types.SimpleNamespace(context_safe=Context)
        sys.modules["tensorflow"] = sys.modules["tensorflow.python.eager.context"] = module
        if os.fork():
            os.wait()
            print(os.getpid())
    """
    _, done = report(folder, code)
    worker, *left = done.stdout.decode().splitlines()
    assert left == [f"{worker} mwmagic/farewell/job:worker/replica:0/task:1"]


def test_a_report_that_cannot_be_written_hides_nothing(folder, monkeypatch):
    monkeypatch.setenv("MWMAGIC_FAILURE_REPORT", str(folder / "gone/report.json"))
    told, done = report(folder, "raise ValueError('seen')")
    assert told is None
    assert done.stderr.decode().endswith("ValueError: seen\n")


def test_interrupts_are_reported(folder):
    told, done = report(folder, "raise KeyboardInterrupt")
    assert told["type"] == "KeyboardInterrupt"
    assert done.returncode == -signal.SIGINT


# The copy in the record.


def test_the_copy_runs_and_its_lines_are_shown(folder, monkeypatch):
    copy = write(
        folder / "copy.py",
        """
        import inspect, linecache, os, traceback
        def f():
            raise ValueError("as launched")
        os.replace("changed.py", "main.py")
        linecache.updatecache(__file__)  # as TensorFlow's AutoGraph does
        print(inspect.getsource(f))
        try:
            f()
        except ValueError:
            traceback.print_exc()
        f()
        """,
    )
    monkeypatch.setenv("MWMAGIC_SOURCE", str(copy))
    write(folder / "main.py", "print('the file as it was')")
    write(folder / "changed.py", "print('the file as it is now')\n" * 20)
    told, done = report_of(boot("main.py"), folder)
    assert b"the file" not in done.stdout + done.stderr
    assert done.stdout.decode() == 'def f():\n    raise ValueError("as launched")\n\n'
    assert done.stderr.decode().count('    raise ValueError("as launched")') == 2
    assert told["where"]["source"] == 'raise ValueError("as launched")'
    assert told["where"]["file"] == str(folder / "main.py")


@pytest.mark.parametrize(
    "program",
    [
        "import sys\nsys.unraisablehook = lambda args: print('mine', args.exc_value)\n{}",
        "import threading\nthreading.excepthook = lambda args: print('mine', args.exc_value)\n{}",
        "import sys\nsys.stderr = None\n{}",
    ],
)
def test_a_hook_of_the_users_takes_the_place_of_ours(folder, monkeypatch, program):
    code = """
import threading
class A:
    def __del__(self): {}[1]
    def __repr__(self): 1 / 0
def f(): raise SystemExit(3)
def g():
    try: f.no
    except AttributeError: 1 / 0
for target in (f, g):
    t = threading.Thread(target=target, name="T")
    t.start()
    t.join()
a = A()
del a
"""
    code = program.replace("{}", code)
    monkeypatch.setenv("MWMAGIC_SOURCE", str(write(folder / "copy.py", code)))
    write(folder / "main.py", code)
    plain = outcome(run(sys.executable, "main.py"), folder)
    assert outcome(boot("main.py"), folder) == plain


def report_of(done, folder):
    return json.loads((folder / "report.json").read_text()), done


def test_the_script_need_not_exist(folder, monkeypatch):
    monkeypatch.setenv("MWMAGIC_SOURCE", str(write(folder / "copy.py", "print(__file__)\n1/0")))
    done = boot("main.py")
    assert done.stdout.decode() == f"{folder / 'main.py'}\n"
    assert "    1/0\n" in done.stderr.decode()


def test_a_copy_that_is_gone_is_an_error_like_another(folder, monkeypatch):
    monkeypatch.setenv("MWMAGIC_SOURCE", str(folder / "gone.py"))
    done = boot("main.py")
    assert done.returncode == 1
    assert b"FileNotFoundError" in done.stderr


# Stacks.


def test_sigusr1_writes_every_stack(folder, monkeypatch):
    stacks = folder / "stacks"
    monkeypatch.setenv("MWMAGIC_STACKS", str(stacks))
    code = """
        import threading, time
        def waits():
            time.sleep(600)
        threading.Thread(target=waits, daemon=True).start()
        def blocked():
            print("up", flush=True)
            threading.Event().wait()
        blocked()
    """
    write(folder / "main.py", code)
    command = [sys.executable, BOOTSTRAP, "main.py"]
    with running(command, stdout=subprocess.PIPE) as worker:
        worker.stdout.readline()
        for times in (1, 2):
            worker.send_signal(variables.STACKS_SIGNAL)
            eventually(lambda n=times: stacks.read_text().count("in blocked") == n, "a dump")
    text = stacks.read_text()
    assert f'File "{folder / "main.py"}", line 4 in waits' in text
    assert "most recent call first" in text


# Never half dead.


HANGS = {
    "an exit handler": (
        "import atexit, time\ndef save(): time.sleep(600)\natexit.register(save)\n",
        "the exit handler save (main.py, line 2)",
    ),
    "an exit handler of C's": (
        "import atexit, time\natexit.register(time.sleep, 600)\n",
        "an exit handler",
    ),
    "a thread": (
        (
            "import threading, time\ndef load(): time.sleep(600)\n"
            "threading.Thread(target=load, name='loader').start()\n"
        ),
        "the thread loader, in load (main.py, line 2),",
    ),
    "a pool of threads": (
        (
            "from concurrent.futures import ThreadPoolExecutor\n"
            "import time\ndef f(): time.sleep(600)\n"
            "ThreadPoolExecutor(1, 'mine').submit(f)\n"
        ),
        "the thread mine_0, in f (main.py, line 3),",
    ),
}
"""What an end waits for for ever, and how it is named."""

DRIVER = f"""
import sys; sys.path[0] = {FOLDER!r}
import bootstrap
bootstrap._find_package()
import mwmagic.worker.exit as end
end.WAIT_NOTICE_SECONDS, end.LAST_FLUSH_SECONDS, end.variables.FINISH_SECONDS = 0.03, 0.02, 0.05
bootstrap.main(['main.py'])
"""
"""Runs a worker in whose end nobody has much patience."""


@pytest.mark.parametrize("hang", HANGS)
@pytest.mark.parametrize(
    ("end", "code"),
    [("1 / 0", 1), ("import sys; sys.exit(3)", 3), ("raise KeyboardInterrupt", 130)],
)
def test_a_failed_worker_does_not_hang(folder, hang, end, code):
    program, named = HANGS[hang]
    write(folder / "main.py", program + "file = open('out.txt', 'w')\nfile.write('x')\n" + end)
    done = run(sys.executable, "-c", DRIVER)
    assert done.returncode == code
    *_, waits, cut = done.stderr.decode().splitlines()
    assert waits.startswith(f"mwmagic: the program is over, and its process waits for {named}")
    assert cut.startswith(f"mwmagic: {named} was still running 0.05 s after the program failed")
    assert (folder / "out.txt").read_text() == "x"


@pytest.mark.slow
def test_a_worker_that_succeeds_waits_for_its_threads(folder):
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=[0.2]).start()\n"
    write(folder / "main.py", code + "import atexit; atexit.register(print, 'after')")
    done = run(sys.executable, "-c", DRIVER)
    assert (done.returncode, done.stdout) == (0, b"after\n")
    assert done.stderr.startswith(b"mwmagic: the program is over, and its process waits for the ")
