"""The command line, in this process and in one of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import psutil
import pytest
from processes import alive, eventually, running

from mwmagic import Cluster, Task, __version__, runs
from mwmagic.cli import main, parser
from mwmagic.client.reading import TAIL_CHARACTERS
from mwmagic.errors import ClusterError
from mwmagic.model.messages import VERSION
from mwmagic.record import RunDirectory

pytestmark = pytest.mark.usefixtures("nothing_survives")

COMMAND = [sys.executable, "-m", "mwmagic.cli"]
SLEEP = """
import os, time
print("up", os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def script(here):
    def write(code):
        (here / "main.py").write_text(dedent(code))

    return write


@contextmanager
def started(*args, **options):
    """Start the command line in a process of its own."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    with running([*COMMAND, *args], **options) as process:
        yield process


# run


@pytest.mark.slow
def test_a_run_takes_what_its_engine_needs_before_the_script(script):
    script("import sys; print('up', *sys.argv[1:])")
    there = ("--engine", "command", "--hosts", "a=127.0.0.1,b=127.0.0.1", "--lease", "5")
    assert main(["run", "-n", "2", *there, "--", "{python}", "-", "--", "main.py", "--x"]) == 0
    [record] = runs()
    assert [host.name for host in record.status.hosts] == ["a", "b"]
    assert [record.log(task, 1) for task in record.known_tasks()] == [b"up --x\n"] * 2


@pytest.mark.slow
def test_surprises_are_reported_at_the_end(script, capsys):
    script("print('Enabled NCCL communication but no GPUs detected/specified')")
    assert main(["run", "-n", "2", "main.py"]) == 0
    assert re.search(r"mwmagic: worker:0, worker:1: NCCL .* Try: .*RING", capsys.readouterr().err)


@pytest.mark.slow
def test_every_line_carries_its_task_and_success_is_0(script, capsys):
    script("import os; print('one'); print('two ' + os.environ['MWMAGIC_TASK'], end='')")
    assert main(["run", "-n", "2", "--chief", "main.py"]) == 0
    out, err = capsys.readouterr()
    assert sorted(out.splitlines()) == [
        "[chief:0]  one",
        "[chief:0]  two chief:0",
        "[worker:0] one",
        "[worker:0] two worker:0",
        "[worker:1] one",
        "[worker:1] two worker:1",
    ]
    assert err == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "number", "said"),
    [
        ("import sys; sys.exit(3)", 3, "worker:0 exited with code 3"),
        ("raise ValueError('bad')", 1, "worker:0 exited with code 1: ValueError: bad"),
        ("import os; os.abort()", 128 + signal.SIGABRT, "worker:0 killed by SIGABRT"),
        ("import sys; sys.exit('no data')", 1, "no data"),
        ("import os; os._exit(255)", 255, "worker:0 exited with code 255"),
    ],
)
def test_the_exit_code_is_the_first_failures(script, capsys, code, number, said):
    script(code)
    assert main(["run", "main.py"]) == number
    assert said in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (["main.py"], []),
        (["main.py", "--lr", "0.1", "-n", "5", "--raw"], ["--lr", "0.1", "-n", "5", "--raw"]),
        (["main.py", "-h"], ["-h"]),
        (["main.py", "--", "x"], ["--", "x"]),
        (["--", "main.py", "a", "--"], ["a", "--"]),
    ],
)
def test_what_follows_the_script_is_the_scripts(script, capsys, given, seen):
    script("import sys; print(sys.argv)")
    assert main(["run", "-n", "1", *given]) == 0
    assert capsys.readouterr().out == f"[worker:0] {['main.py', *seen]}\n"


@pytest.mark.slow
def test_variables_are_given_to_the_workers(script, capsys):
    script("import os; print(os.environ['A'], os.environ['B'])")
    assert main(["run", "--env", "A=1=2", "--env", "B=", "main.py"]) == 0
    assert capsys.readouterr().out == "[worker:0] 1=2 \n"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["run"], "there is no script to run"),
        (["run", "--raw"], "there is no script to run"),
        (["run", "-n", "0", "main.py"], "worker"),
        (["run", "--keras", "legacy", "--framework", "jax", "nothing.py"], "nothing.py"),
        (["logs"], "no runs are recorded in"),
        (["stop", "nobody"], "no cluster 'nobody' is running; `mwmagic ps` lists"),
    ],
)
def test_what_cannot_be_done_is_2_and_one_line(args, said, capsys):
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(rf"mwmagic: .*{re.escape(said)}.*\n", err)


@pytest.mark.parametrize(
    "args", [[], ["dance"], ["run", "--bogus", "x"], ["run", "--env", "A", "x"]]
)
def test_arguments_that_make_no_sense_are_one_error_and_the_next_step(args, capsys):
    with pytest.raises(SystemExit) as ended:
        main(args)
    assert ended.value.code == 2
    said, step = capsys.readouterr().err.splitlines()
    command = " ".join(["mwmagic", *args[:1]]) if args[:1] == ["run"] else "mwmagic"
    assert said.startswith(f"{command}: ")
    assert step == f"`{command} --help` lists what it takes"


def test_a_misspelled_option_is_named_with_the_one_that_was_meant(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--gpsu", "2", "main.py"])
    assert "unrecognized arguments: --gpsu; did you mean --gpus?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "args",
    [
        ["export", "csv", "1", "2", "--file", "x", "--overwrite"],
        ["export", "csv", "--file", "x", "1", "--overwrite", "2"],
        ["export", "--file=x", "--over", "csv", "1", "2"],
    ],
)
def test_options_may_stand_between_the_other_arguments(args):
    given = parser().parse_args(args)
    found = given.kind, given.runs, given.file, given.overwrite
    assert found == ("csv", [1, 2], "x", True)
    given = parser().parse_args(["sweep", "main.py", "-n2", "a=1", "--seed", "3", "b=2"])
    assert (given.words, given.workers, given.seed) == (["main.py", "a=1", "b=2"], 2, 3)


def test_the_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"mwmagic {__version__}\n"


@pytest.mark.slow
def test_labels_have_colours_on_a_terminal(script, capsys, monkeypatch):
    script("print('x')")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    main(["run", "-n", "2", "main.py"])
    assert set(capsys.readouterr().out.splitlines()) == {
        "\x1b[36m[worker:0]\x1b[0m x",
        "\x1b[33m[worker:1]\x1b[0m x",
    }
    monkeypatch.setenv("NO_COLOR", "1")
    main(["run", "main.py"])
    assert capsys.readouterr().out == "[worker:0] x\n"


def workers(process):
    """Return the ids that two workers print."""
    return [int(process.stdout.readline().split()[-1]) for _ in range(2)]


SAVE = """
    import os, pathlib, signal, sys, time
    def save(*_):
        for number in range(100):
            print("saving", number, flush=True)
            time.sleep(0.002)
        pathlib.Path("saved-" + os.environ["MWMAGIC_TASK"]).touch()
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    print("up", os.getpid(), flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, -signal.SIGTERM),
        (signal.SIGHUP, -signal.SIGHUP),
    ],
)
def test_what_asks_the_command_to_end_lets_the_workers_save(script, here, number, code):
    script(SAVE)
    command = ["run", "-n", "2", "--grace", "60", "main.py"]
    with started(*command, start_new_session=True) as process:
        pids = workers(process)
        os.killpg(process.pid, number)  # as a terminal does
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (code, "mwmagic: run 1 stopped\n")
    saving = [f"[worker:{rank}] saving {number}" for rank in (0, 1) for number in range(100)]
    assert sorted(out.splitlines()) == sorted(saving)
    assert not [pid for pid in pids if alive(pid)]
    assert sorted(path.name for path in here.glob("saved-*")) == [
        "saved-worker:0",
        "saved-worker:1",
    ]
    assert runs()[-1].state == "stopped"


@pytest.mark.slow
@pytest.mark.parametrize("names", [["HUP"], ["INT", "QUIT"], ["TERM"]])
def test_what_the_command_was_told_to_ignore_its_processes_ignore(script, here, names):
    """As under nohup, and in the background of a script."""
    script("""
        import os, time
        print("up", os.getpid(), flush=True)
        while not os.path.exists("go"):
            time.sleep(0.01)
    """)
    told = f"trap '' {' '.join(names)}; exec \"$@\""
    command = ["/bin/sh", "-c", told, "sh", *COMMAND, "run", "-n", "2", "main.py"]
    with running(command, stdout=subprocess.PIPE, text=True) as process:
        pids = workers(process)
        started = [one.pid for one in psutil.Process(process.pid).children(recursive=True)]
        assert {*pids} < {*started}
        for pid in (process.pid, *started):
            for name in names:
                os.kill(pid, getattr(signal, f"SIG{name}"))
        (here / "go").touch()
        process.communicate(timeout=120)
    assert process.returncode == 0
    assert runs()[-1].state == "finished"


@pytest.mark.slow
def test_stopping_clusters_lets_the_workers_save(script, here):
    script(SAVE)
    with started("run", "-n", "2", "--grace", "60", "main.py") as process:
        pids = workers(process)
        assert main(["stop"]) == 0
        process.communicate(timeout=120)
    assert not [pid for pid in pids if alive(pid)]
    assert len(list(here.glob("saved-*"))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_twice_the_command_does_not_wait(script, number):
    script("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP)
    with started("run", "-n", "2", "--grace", "600", "main.py") as process:
        pids = workers(process)
        process.send_signal(number)
        eventually(lambda: runs()[-1].info["state"] == "ending")
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (130 if number == signal.SIGINT else -number, "")
    assert not [pid for pid in pids if alive(pid)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_workers_end_with_the_command(script, number):
    script(SLEEP)
    with started("run", "-n", "2", "main.py") as process:
        pids = workers(process)
        process.send_signal(number)
        process.communicate(timeout=120)
    assert process.returncode == -number
    eventually(lambda: not [pid for pid in pids if alive(pid)], "end of the workers")


@pytest.mark.slow
def test_a_reader_that_closes_the_pipe_ends_the_run(script):
    script("""
        import os, time
        print("first", os.getpid(), flush=True)
        while True:
            print("more", flush=True)
            time.sleep(0.01)
    """)
    with started("run", "main.py") as process:
        pid = int(process.stdout.readline().split()[-1])
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(120) == 1
    assert not alive(pid)


@pytest.mark.slow
def test_a_terminal_that_lacks_a_character_ends_nothing(script):
    script("print('━ ü \\udcff')")
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    with started(
        "run", "--env", "PYTHONIOENCODING=utf-8:surrogateescape", "main.py", env=env
    ) as run:
        out, err = run.communicate(timeout=120)
    assert (run.returncode, out, err) == (0, "[worker:0] ? ? ?\n", "")


# where the output goes


@contextmanager
def closed(*numbers):
    """Start commands without some of the standard streams, as a shell's ``>&-`` does."""
    yield {"preexec_fn": lambda: [os.close(number) for number in numbers]}


def test_ctrl_c_before_a_command_has_begun_prints_no_traceback(monkeypatch):
    monkeypatch.setattr(
        sys.modules["mwmagic.cli"], "parser", lambda: os.kill(os.getpid(), signal.SIGINT)
    )
    assert main(["ps"]) == 130


INTERRUPTED = """
import builtins, os, signal
real = builtins.__import__
def importing(name, *args):
    if name == "argparse":
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, *args)
builtins.__import__ = importing
import mwmagic.cli
"""


def test_ctrl_c_while_modules_are_imported_prints_no_traceback():
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(1,), (2,), (0, 1, 2)])
def test_closed_streams_harm_nothing(script, numbers):
    script("open('done', 'w').write('well')")
    options = {"stdin": None, "stdout": None, "stderr": subprocess.PIPE}
    with closed(*numbers) as how, started("run", "main.py", **options, **how) as process:
        assert process.stderr.read() == ""
        assert process.wait(120) == 0
    assert Path("done").read_text() == "well"


@pytest.mark.slow
@pytest.mark.parametrize("args", [["run", "main.py"], ["ps"]])
def test_output_that_finds_no_space_is_one_line(script, args):
    script(SLEEP)
    with Path("/dev/full").open("w") as full, started(*args, stdout=full) as process:
        told = process.stderr.read()
        assert process.wait(120) == 2
    assert told.startswith("mwmagic: there is no space left for the output: ")
    assert told.count("\n") == 1


TALKS = """
import os, sys
attempt = os.environ["MWMAGIC_ATTEMPT"]
for number in range(9000):
    print(attempt, "line", number)
sys.exit(attempt == "1")
"""
TINY = """
mount -t tmpfs -o size=240k none "$0" && cd "$0" || exit 9
echo "$1" > main.py; shift
"$@"; code=$?
cat .mwmagic/runs/*/run.json > ../run.json
exit $code
"""


@pytest.mark.slow
def test_a_full_disk_costs_the_record_not_the_output_nor_the_end(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    unshared = ["unshare", "--mount", "sh", "-c", TINY, disk, TALKS]
    command = [*COMMAND, "run", "-n", "2", "--restarts", "1", "main.py"]
    done = subprocess.run([*unshared, *command], capture_output=True, text=True, check=False)
    assert done.returncode == os.EX_IOERR, done.stderr
    printed = sorted(done.stdout.splitlines())
    wanted = [f"[worker:{i}] 2 line {n}" for i in (0, 1) for n in range(9000)]
    assert [line for line in printed if "] 2 line " in line] == sorted(wanted)
    assert re.search(
        r"mwmagic: the record of run 1 is incomplete: .*No space left on device; it lacks what "
        r"worker:0 printed after its first [\d,]+ bytes, what worker:1 printed after",
        done.stderr,
    )
    assert json.loads((tmp_path / "run.json").read_text())["state"] == "finished"


RESUMES = """
import pathlib, time
from mwmagic.worker import report
done = pathlib.Path("done")
for epoch in (3, 4) if done.exists() else (1, 2):
    report(epoch=epoch, epochs=4)
if not done.exists():
    done.touch()
    raise ValueError("broke\\nin two lines")
"""


@pytest.mark.slow
@pytest.mark.parametrize("shown", [[], ["--dashboard"]])
def test_a_failure_that_a_run_survives_is_reported_with_what_follows(script, shown):
    script(RESUMES)
    command = [*COMMAND, "run", "-n", "1", "--restarts", "2", *shown, "main.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = [one for one in (done.stdout + done.stderr).splitlines() if one.startswith("mwmagic: ")]
    assert [re.sub(r"epoch [34]", "epoch N", line) for line in said] == [
        (
            "mwmagic: attempt 1 failed: worker:0 exited with code 1: ValueError: broke; "
            "attempt 2 follows, restart 1 of 2"
        ),
        "mwmagic: attempt 2 is training, at epoch N/4",
    ]


@pytest.mark.slow
def test_nothing_that_acts_on_a_terminal_is_printed(script):
    script("raise ValueError('\\x1b]0;owned\\x07\\x1b[2J\\x9b31m red')")
    with started("run", "main.py") as process:
        told = process.stderr.read()
        assert process.wait(120) == 1
    assert "ValueError: 31m red\n" in told
    assert not [character for character in told if ord(character) < 32 and character != "\n"]
    assert "\x9b" not in told


# ps and stop


@pytest.mark.slow
def test_clusters_are_listed_and_ended(capsys, here):
    assert main(["ps"]) == 0
    assert main(["stop"]) == 0
    assert capsys.readouterr().out == "no cluster is running\n" * 2
    mine = Cluster(2, warm=False, name="mine")
    other = Cluster(1, warm=False, name="other", detach=True)
    mine.run("main.py", source=SLEEP)
    eventually(lambda: mine.latest.words == "running")
    assert main(["ps"]) == 0
    assert capsys.readouterr().out == (
        f"mine  2 tasks  owned  run 1: running\n  {here}\n"
        f"other  1 task  detached  no run yet\n  {here}\n"
    )
    assert main(["stop", "other"]) == 0
    assert capsys.readouterr().out == f"ended other of {here}\n"
    eventually(lambda: other.closed)
    assert not mine.closed
    assert main(["stop"]) == 0
    assert capsys.readouterr().out == f"ended mine of {here}\n"
    eventually(lambda: mine.closed)
    assert mine.latest.state == "stopped"
    mine.close()
    other.close()
    assert main(["ps"]) == 0


@pytest.mark.slow
def test_a_folder_whose_path_is_not_utf8_is_refused_in_a_sentence(here):
    folder = here / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "main.py").write_text("print('well')")
    with started("run", "main.py", cwd=folder) as process:
        told = process.stderr.read()
        assert process.wait(120) == 2
    assert told.startswith("mwmagic: the path of the directory ")
    assert told.endswith("can be kept in it; rename the directory, or use another\n")
    assert told.count("\n") == 1


@pytest.mark.slow
def test_a_detached_cluster_on_which_nothing_runs_ends_after_its_time(capsys):
    with pytest.raises(ClusterError, match="idle must be a number of seconds"):
        Cluster(1, idle=-1)
    waits = Cluster(1, warm=False, name="waits", detach=True, idle=3600)
    ends = Cluster(1, warm=False, name="ends", detach=True, idle=1)
    pid = ends._process.pid
    ends.run("main.py", source="print('done')").wait()
    assert waits.idle is None, "its owner is here"
    waits._connection.close()
    ends._connection.close()
    eventually(lambda: not alive(pid), "the end of a cluster that nobody came back to")
    main(["ps"])
    shown = capsys.readouterr().out
    assert re.match(r"waits  1 task  detached, idle since \d\d:\d\d, 59 min left  no run", shown)
    main(["stop"])


@pytest.fixture
def asleep(here):
    """A cluster whose supervisor was stopped."""
    with Cluster(1, warm=False, name="mine") as mine:
        mine.run("main.py", source=SLEEP)
        supervisor = psutil.Process(mine._process.pid)
        supervisor.suspend()
        eventually(lambda: supervisor.status() == psutil.STATUS_STOPPED)
        yield supervisor


@pytest.mark.slow
def test_a_supervisor_that_was_stopped_is_listed_as_it_is(asleep, capsys, monkeypatch):
    monkeypatch.setattr("mwmagic.client.connection.QUERY_SECONDS", 0.5)
    assert main(["ps"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "mwmagic: a cluster is running that cannot be reached: the cluster's supervisor, process "
        f"{asleep.pid}, is stopped; `kill -CONT {asleep.pid}` resumes it\n"
    )
    assert asleep.status() == psutil.STATUS_STOPPED, "to look changes nothing"


@pytest.mark.slow
@pytest.mark.parametrize("name", [[], ["mine"]])
def test_a_cluster_ends_though_its_supervisor_was_stopped(asleep, capsys, here, name):
    assert main(["stop", *name]) == 0
    assert capsys.readouterr().out == f"ended mine of {here}\n"
    eventually(lambda: not alive(asleep.pid))


@pytest.mark.slow
def test_the_end_of_one_cluster_wakes_no_other(asleep, capsys):
    assert main(["stop", "other"]) == 2
    assert "no cluster 'other' is running" in capsys.readouterr().err
    assert asleep.status() == psutil.STATUS_STOPPED


@pytest.mark.slow
@pytest.mark.parametrize("args", [["ps"], ["stop"], ["stop", "mine"]])
def test_a_cluster_of_another_version_is_reported_with_its_process(capsys, monkeypatch, args):
    with Cluster(1, warm=False, name="mine") as mine:
        monkeypatch.setattr("mwmagic.client.connection.VERSION", VERSION + 1)
        assert main(args) == 2
        out, err = capsys.readouterr()
        assert out == ""
        said = (
            f"a cluster is running that cannot be reached: this supervisor speaks version {VERSION}"
        )
        assert err.startswith(f"mwmagic: {said}, not {VERSION + 1}; ")
        assert err.endswith(f"end the cluster with `kill {mine._process.pid}`\n")
        assert not mine.closed


# logs


@pytest.fixture
def recorded(here):
    """Two runs, of which the second had two attempts."""
    first = RunDirectory.create(here, "main")
    first.write({"state": "finished", "tasks": {"worker:0": {}}})
    second = RunDirectory.create(here, "main")
    second.write({"state": "failed", "tasks": {"worker:0": {}, "worker:1": {}}})
    for run in (first, second):
        run.flush()
    return first, second


def write_log(run, task, attempt, data):
    run.task(Task.parse(task), attempt).log.write_bytes(data)


@pytest.mark.slow
def test_a_reader_that_has_enough_ends_the_logs_without_a_word(recorded):
    write_log(recorded[1], "worker:0", 1, b"more than a pipe holds\n" * 100_000)
    with started("logs", "0") as process:
        assert process.stdout.readline() == "more than a pipe holds\n"
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(120) == 1


def test_logs_are_shown_task_by_task(recorded, capsys):
    first, second = recorded
    write_log(first, "worker:0", 1, b"old\n")
    write_log(second, "worker:0", 1, b"earlier attempt\n")
    write_log(second, "worker:0", 2, b"a\rb\nc \xff\nlast")
    assert main(["logs"]) == 0
    assert capsys.readouterr().out == (
        "--- worker:0 ---\nb\nc \ufffd\nlast\n"
        "--- worker:1 ---\nworker:1 has no log: it was not started\n"
    )
    assert main(["logs", "--run", "1"]) == 0
    assert capsys.readouterr().out == "--- worker:0 ---\nold\n"
    assert main(["logs", "0", "--raw"]) == 0
    assert capsys.readouterr().out == "a\rb\nc \ufffd\nlast\n"
    assert main(["logs", "worker:0", "--tail", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "last"
    assert main(["logs", "0", "--grep", "^c"]) == 0
    assert capsys.readouterr().out == "c \ufffd\n"
    assert main(["logs", "0", "--attempt", "1"]) == 0
    assert capsys.readouterr().out == "earlier attempt\n"


@pytest.mark.slow
def test_last_lines_are_bounded_for_all_tasks_together(recorded, capsys):
    for task in ("worker:0", "worker:1"):
        write_log(recorded[1], task, 1, (b"x" * 2000 + b"\n") * 1000)
    for args, tasks in ([], 2), (["1"], 1):
        assert main(["logs", "--tail", "900", *args]) == 0
        out = capsys.readouterr().out
        assert 0.9 * TAIL_CHARACTERS < len(out) < 1.01 * TAIL_CHARACTERS
        assert out.count("earlier lines not shown") == tasks


@pytest.mark.slow
@pytest.mark.parametrize(("args", "shown"), [([], "100%"), (["--raw"], "1%\r100%")])
def test_raw_is_every_byte_while_a_run_goes_on(script, capsys, args, shown):
    script("print('1%\\r100%')")
    assert main(["run", *args, "main.py"]) == 0
    assert capsys.readouterr().out == f"[worker:0] {shown}\n"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["1"], "worker:1 has no log: it was not started"),
        (["5"], "worker:0"),
        (["chief"], "worker:0"),
        (["--run", "9"], "there is no run 9; the recorded runs are 1, 2"),
        (["0", "--attempt", "7"], "worker:0 has no log in attempt 7 of 1: it was not started"),
        (["0", "--grep", "("], "is not a valid regular expression"),
    ],
)
def test_logs_that_are_not_there(recorded, capsys, args, said):
    write_log(recorded[1], "worker:0", 1, b"x\n")
    assert main(["logs", *args]) == 2
    assert said in capsys.readouterr().err
