"""`mwmagic doctor`: what it finds on a sound machine, and on one where much is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from mwmagic.cli import main

ROOM_FOR_NOTHING = """\
mount -t tmpfs -o size=32m none /dev/shm && mount -t tmpfs -o ro none "$1" && cd "$1" &&
ulimit -n 256 && shift && exec "$@"
"""


def found(text):
    return {one["name"]: one for one in json.loads(text)["checks"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sinfo", "expected"),
    [
        ("exit 0", ("ok", "--engine slurm can be used")),
        (
            "echo 'sinfo: error: no config' >&2; exit 1",
            ("doubtful", "salloc is here, but no cluster answers: sinfo: error: no config"),
        ),
    ],
    ids=["a cluster answers", "none does"],
)
def test_slurm_can_be_used_only_if_its_controller_answers(
    sinfo, expected, tmp_path, monkeypatch, capsys
):
    for name, script in {"salloc": "exit 0", "sinfo": sinfo}.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    main(["doctor", "--json", "--no-run"])
    slurm = found(capsys.readouterr().out)["slurm"]
    assert (slurm["verdict"], slurm["found"]) == expected


@pytest.mark.slow
@pytest.mark.tensorflow
def test_two_real_workers_show_that_this_machine_is_sound(
    tmp_path, monkeypatch, capsys, nothing_survives
):
    monkeypatch.chdir(tmp_path)
    assert main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert "ok       two workers: trained together" in out
    assert "ok       machine: " in out
    assert "ok       processes: pidfd and /proc can be used" in out
    assert "bad" not in out
    assert err == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_run_that_fails_is_explained(tmp_path, monkeypatch, capsys, nothing_survives):
    monkeypatch.chdir(tmp_path)
    broken = tmp_path / "tensorflow.py"
    broken.write_text('raise ImportError("libcudart.so.12: cannot open shared object file")\n')
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert main(["doctor"]) == 1
    out, err = capsys.readouterr()
    assert "bad      two workers: " in out
    assert "libcudart.so.12" in out
    assert "PYTHONPATH is set: workers import from it before what is installed" in out
    assert "trainings fail here until this works: two workers" in err


@pytest.mark.slow
def test_each_thing_that_is_wrong_has_its_remedy(tmp_path):
    unshared = ["unshare", "--user", "--map-root-user", "--mount"]
    tried = subprocess.run([*unshared, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no file system can be mounted here: {tried.stderr}")
    shell = ["sh", "-c", ROOM_FOR_NOTHING, "sh", str(tmp_path)]
    done = subprocess.run(
        [*unshared, *shell, sys.executable, "-m", "mwmagic.cli", "doctor", "--json", "--no-run"],
        env={**os.environ, "TF_CONFIG": "{}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    known = found(done.stdout)
    assert known["folder"]["verdict"] == "bad"
    assert known["folder"]["remedy"].startswith("start in a folder that you may write")
    assert known["shared memory"]["verdict"] == "doubtful"
    assert "--shm-size=2g" in known["shared memory"]["remedy"]
    assert known["open files"]["found"] == "at most 256 for a process"
    assert "ulimit -n" in known["open files"]["remedy"]
    assert "TF_CONFIG is set" in known["variables"]["found"]
    assert "two workers" not in known
