"""Parameters that are set when a program is launched: by Python, in a cell and in a shell."""

from __future__ import annotations

import pytest

from mwmagic import runs
from mwmagic.cli import main
from mwmagic.errors import BadArguments

pytestmark = pytest.mark.slow

PROGRAM = """import os
units = 64
config = {"lr": 0.1}
batch = int(os.environ.get("BATCH_SIZE", 64))
print(units, config["lr"], batch, open(__file__).readlines()[1].strip())
if units > 100: raise ValueError(units)
"""


def test_the_file_stays_and_the_record_has_what_ran(cluster, tmp_path):
    (tmp_path / "main.py").write_text(PROGRAM)
    run = cluster(2).run("main.py", params={"units": 32, "lr": "1", "BATCH_SIZE": 8}).wait(120)
    assert {run.logs(task) for task in (0, 1)} == {b"32 1.0 8 units = 64\n"}
    assert (tmp_path / "main.py").read_text() == PROGRAM
    copy = (runs()[-1].path / "main.py").read_text()
    assert copy == PROGRAM.replace("64\nc", "32\nc").replace("0.1", "1.0")


def test_a_parameter_that_is_not_there_launches_nothing(cluster, tmp_path):
    one = cluster(1)
    with pytest.raises(BadArguments, match="did you mean units"):
        one.run("main.py", source=PROGRAM, params={"unit": 32})
    assert one.latest is None
    assert not runs()


def test_a_restart_runs_with_the_same_parameters(cluster, tmp_path):
    source = f"{PROGRAM}import pathlib; p = pathlib.Path('again'); there = p.exists(); p.touch()\n"
    source += "assert there\n"
    (tmp_path / "main.py").write_text(source)
    run = cluster(1).run("main.py", params={"units": 7}, restarts=1).wait(120)
    assert (run.logs(0), run.status().attempt) == (b"7 0.1 64 units = 64\n", 2)


def test_options_of_the_program_stay_its_own(tmp_path, monkeypatch, capfd, nothing_survives):
    monkeypatch.chdir(tmp_path)
    own = 'import sys\nunits = 64\nassert sys.argv[1] in ("-p", "--params")\nprint(sys.argv)\n'
    (tmp_path / "main.py").write_text(own)
    assert main(["run", "-n", "1", "main.py", "-p", "units=3"]) == 0
    assert "[worker:0] ['main.py', '-p', 'units=3']" in capfd.readouterr().out
    assert main(["run", "-n", "1", "main.py", "--params"]) == 0
    assert "[worker:0] ['main.py', '--params']" in capfd.readouterr().out


def test_a_shell_sets_and_lists_them(tmp_path, monkeypatch, capsys, nothing_survives):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BATCH_SIZE", raising=False)
    (tmp_path / "main.py").write_text(PROGRAM + "steps = 1\nsteps = 2\n")
    assert main(["run", "-n", "1", "-p", "units=128", "-p", "lr=2", "main.py"]) == 1
    told = capsys.readouterr()
    assert "[worker:0] 128 2.0 64 units = 64\n" in told.out
    assert "ValueError: 128\n  at " in told.err, "the line is the file's"
    assert "main.py, line 6, in <module>" in told.err
    assert main(["run", "--params", "main.py"]) == 0
    assert capsys.readouterr().out == (
        "units       64  (line 2)\n"
        "config.lr   0.1  (line 3)\n"
        "BATCH_SIZE  64  (line 4, the variable BATCH_SIZE)\n"
        "steps       1  (line 7, cannot be set: it is assigned again in line 8)\n"
    )
    for listing in (["main.py", "--params"], ["-n", "2", "main.py", "--params"]):
        assert main(["run", *listing]) == 0
        assert capsys.readouterr().out.startswith("units       64  (line 2)\n")
    assert main(["run", "main.py", "-p", "units=3", "-p", "lr=1"]) == 2
    told = capsys.readouterr().err
    assert "mwmagic run -p units=3 -p lr=1 main.py" in told, "what follows it would be its own"
    assert main(["run", "-p", "steps=3", "main.py"]) == 2
    assert (
        "steps in line 7 cannot be set: it is assigned again in line 8" in capsys.readouterr().err
    )
