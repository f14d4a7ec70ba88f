"""The files that magics write, in a real kernel: no work is lost, every refusal is clear."""

from __future__ import annotations

import re
import shutil
import stat

import pytest
from processes import eventually

pytestmark = pytest.mark.slow

DECLARE = "%mw_cluster 1 --no-warm --grace 0.2"
CELL = "%%mw_worker --no-run{}\n{}"


def write(kernel, body="print(1)", options=""):
    return kernel.run(CELL.format(options and f" {options}", body))


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_refused_cell_leaves_the_file_of_the_run_that_is_going(kernel, tmp_path):
    kernel.run(DECLARE)
    going = "import time; time.sleep(600)"
    kernel.run(f"%%mw_worker\n{going}")
    assert kernel.run("%%mw_worker\nprint('refused')").error.startswith("RunActive: ")
    assert (tmp_path / "main.py").read_text() == f"{going}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mwmagic", "main.py"]
    kernel.run("%mw_stop")
    assert kernel.run("%%mw_worker\nprint('accepted')").error is None
    assert (tmp_path / "main.py").read_text() == "print('accepted')\n"


def test_the_file_is_there_when_the_code_runs(kernel):
    kernel.run(DECLARE)
    for number in range(3):
        body = f"assert open(__file__).read().endswith('n {number}' + chr(10))  # n {number}"
        kernel.run(f"%%mw_worker --wait\n{body}")
        assert kernel.run("%mw_status").value.startswith(f"run {number + 1}: finished")


def test_a_file_of_the_users_is_replaced_only_with_overwrite(kernel, tmp_path):
    kernel.run(DECLARE)
    file = tmp_path / "main.py"
    file.write_text("a day's work")
    error = kernel.run("%%mw_worker\nprint(1)").error
    assert error.startswith("FileTrouble: main.py is not known to be mwmagic's")
    assert "`--overwrite`" in error
    assert write(kernel).error.startswith("FileTrouble: ")
    assert file.read_text() == "a day's work"
    assert kernel.run("%mw_runs").value == "no runs are recorded here"
    assert kernel.run("%%mw_worker --overwrite --wait\nprint(1)").error is None
    assert file.read_text() == "print(1)\n"
    assert write(kernel, "print(2)").error is None, "from now on it is mwmagic's"


def test_a_file_that_was_edited_since_is_the_users(kernel, tmp_path):
    write(kernel)
    assert write(kernel, "print(2)").text == "wrote main.py\n"
    (tmp_path / "main.py").write_text("print(2)  # tuned by hand")
    assert "main.py was changed since mwmagic wrote it" in write(kernel, "print(3)").error
    (tmp_path / "main.py").write_text("print(3)\n")
    assert write(kernel, "print(3)").error is None, "it holds the same already"
    assert write(kernel, "print(4)").error is None


def test_the_next_kernel_knows_what_this_one_wrote(kernel):
    write(kernel)
    kernel.restart(now=True)
    assert write(kernel, "print(2)").error is None


@pytest.mark.parametrize("options", ["", " --overwrite"])
@pytest.mark.parametrize("name", ["nb.ipynb", "NB.IPYNB", "link.py"])
def test_a_notebook_is_never_replaced(kernel, tmp_path, name, options):
    (tmp_path / "link.py").symlink_to("linked.ipynb")
    for notebook in ("nb.ipynb", "NB.IPYNB", "linked.ipynb"):
        (tmp_path / notebook).write_text("{}")
    assert "is a notebook's name" in write(kernel, options=f"--file {name}{options}").error
    assert (tmp_path / name).read_text() == "{}"


def test_half_a_character_leaves_the_file_as_it_was(kernel, tmp_path):
    write(kernel)
    call = "get_ipython().run_cell_magic('mw_worker', '{}', 'x = 1\\ny = \\ud83d')"
    error = kernel.run(call.format("--no-run")).error
    assert error.startswith("FileTrouble: line 2 of the text has a lone surrogate ('\\ud83d')")
    kernel.run(DECLARE)
    assert kernel.run(call.format("")).error == error
    assert (tmp_path / "main.py").read_text() == "print(1)\n"


def test_a_link_stays_and_so_does_the_files_mode(kernel, tmp_path):
    (tmp_path / "link.py").symlink_to("linked.py")
    assert write(kernel, options="--file link.py").error is None
    (tmp_path / "linked.py").chmod(0o640)
    assert write(kernel, "print(2)", "--file link.py").error is None
    assert (tmp_path / "link.py").is_symlink()
    assert (tmp_path / "linked.py").read_text() == "print(2)\n"
    assert mode(tmp_path / "linked.py") == 0o640


def test_the_home_directory_is_meant_by_its_sign(kernel, tmp_path):
    kernel.run(f"import os; os.environ['HOME'] = {str(tmp_path / 'home')!r}; os.mkdir('home')")
    kernel.run(DECLARE)
    body = "import sys; print(sys.argv[0])"
    assert kernel.run(f"%%mw_worker --file ~/train.py --wait\n{body}").error is None
    assert (tmp_path / "home" / "train.py").read_text() == f"{body}\n"
    assert kernel.run("%mw_logs 0").text == f"{tmp_path / 'home' / 'train.py'}\n"
    assert kernel.run("%mw_export script --file ~/job.sh").error is None
    assert (tmp_path / "home" / "job.sh").exists()
    assert write(kernel, options="--file ~nobody-of-this-name/x.py").error.startswith(
        "FileTrouble: "
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing/main.py", "missing/main.py is not there: No such file or directory; make its"),
        ("plain/main.py", "plain/main.py is below something that is not a directory"),
        ("/sys/main.py", "/sys/main.py cannot be written or read: "),
        ("folder", "folder is not a file; name one with --file"),
        ("/dev/full", "/dev/full is not a file; name one with --file"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_file_that_cannot_be_written_is_one_sentence(kernel, tmp_path, name, message):
    (tmp_path / "plain").touch()
    (tmp_path / "folder").mkdir()
    kernel.run(DECLARE)
    for cell in (
        CELL.format(f" --file {name}", "print(1)"),
        f"%%mw_worker --file {name}\nprint(1)",
    ):
        error = kernel.run(cell).error
        assert error.startswith("FileTrouble: ")
        assert message in error
        assert "\n" not in error
    assert kernel.run("%mw_runs").value == "no runs are recorded here"


def test_a_full_disk_leaves_the_file_as_it_was(kernel, tmp_path):
    write(kernel)
    kernel.run("import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)")
    kernel.run("resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8))")
    error = write(kernel, "print(1)\n" * 1000).error
    assert error.startswith("FileTrouble: there is no space left for main.py")
    assert (tmp_path / "main.py").read_text() == "print(1)\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mwmagic", "main.py"]


def test_an_exported_script_with_values_is_private(kernel, tmp_path):
    kernel.run("%mw_cluster 1 --no-warm")
    kernel.run("%%mw_worker --wait\nprint(1)")
    beside = "wrote main.sh, which runs the code in main-run-"
    assert kernel.run("%mw_export script").text == f"{beside}1\n"
    assert mode(tmp_path / "main.sh") == 0o755
    kernel.run("%%mw_worker --wait --env TOKEN=secret\nprint(1)")
    told = kernel.run("%mw_export script").text
    assert told == f"{beside}2; only you can read it, as it holds the values of --env\n"
    assert mode(tmp_path / "main.sh") == 0o700
    kernel.run("%mw_cluster 1 --no-warm --env TOKEN=secret")
    kernel.run("%%mw_worker --wait\nprint(1)")
    assert "only you" in kernel.run("%mw_export slurm").text
    assert mode(tmp_path / "main.sbatch") == 0o700


def test_an_export_replaces_nothing_of_the_users(kernel, tmp_path):
    kernel.run(DECLARE)
    kernel.run("%%mw_worker --wait\nprint(1)")
    (tmp_path / "mine.sh").write_text("mine")
    assert kernel.run("%mw_export script --file mine.sh").error.startswith("FileTrouble: mine.sh")
    assert "notebook" in kernel.run("%mw_export script --file nb.ipynb").error
    assert (tmp_path / "mine.sh").read_text() == "mine"
    assert kernel.run("%mw_export script --file mine.sh --overwrite").error is None


def finished(kernel, directory):
    """Have a run finished, and return the file with its state, which nothing changes any more."""
    kernel.run(DECLARE)
    assert kernel.run("%%mw_worker --wait\nprint('hi')").error is None
    [state] = directory.glob(".mwmagic/runs/*/run.json")
    eventually(lambda: '"git"' in state.read_text(), "where the run came from")
    return state


@pytest.mark.parametrize("odd", ['"text"', "[]", '{"tasks": "x"}', "{", ""])
def test_a_damaged_record_shows_what_can_be_read(kernel, tmp_path, odd):
    state = finished(kernel, tmp_path)
    state.write_text(odd)
    head, row, *trouble = kernel.run("%mw_runs").value.splitlines()
    assert head.split()[:2] == ["run", "program"]
    assert row.split() == ["1", "main", "lost", "1"]
    damaged = [] if "tasks" in odd else [f"the record of run 1 in {state.parent} is damaged"]
    assert [line.removesuffix(" or incomplete") for line in trouble] == damaged
    assert kernel.run("%mw_logs 0").text == "hi\n"
    assert kernel.run("%mw_logs").text == "--- worker:0 ---\nhi\n"


def test_a_record_that_is_gone_is_reported_with_the_next_step(kernel, tmp_path):
    finished(kernel, tmp_path)
    shutil.rmtree(tmp_path / ".mwmagic")
    assert kernel.run("%mw_runs").value == "no runs are recorded here"
    gone = re.compile(r"NoRun: the record of run 1 in \S+ is gone")
    for line in ("%mw_logs", "%mw_logs 0", "%mw_export script"):
        assert gone.match(kernel.run(line).error), line
    assert kernel.run("%mw_restart").error.startswith("NoRun: the code of run 1 is gone from ")
    assert kernel.run("%%mw_worker --wait\nprint('hi')").error is None
    assert kernel.run("%mw_logs 0").text == "hi\n"


def test_a_record_that_cannot_be_kept_is_reported_with_the_next_step(kernel, tmp_path):
    kernel.run(DECLARE)
    (tmp_path / ".mwmagic").write_text("")
    error = kernel.run("%%mw_worker\nprint(1)").error
    assert error.startswith("FileTrouble: the run cannot be recorded: ")
    assert str(tmp_path / ".mwmagic") in error
    assert not (tmp_path / "main.py").exists()
    assert kernel.run("%mw_restart").error.startswith("NoRun: nothing ran on this cluster yet")


def test_a_directory_that_is_gone_is_one_sentence(kernel, tmp_path):
    shutil.rmtree(tmp_path)
    for cell in ("%mw_cluster 1 --no-warm", "%%mw_worker --no-run\nprint(1)"):
        error = kernel.run(cell).error
        assert error.startswith("FileTrouble: the current directory is not there: ")
        assert "\n" not in error
