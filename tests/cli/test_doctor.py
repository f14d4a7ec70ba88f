"""`mwmagic doctor`: what it finds on a sound machine, and on one where much is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from mwmagic.cli import doctor, main

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


@pytest.mark.parametrize(
    ("cpuinfo", "architecture", "expected"),
    [
        ("flags\t\t: fpu sse4_2 avx avx2 fma\n", "x86_64", ("ok", "avx, avx2, fma")),
        ("flags\t\t: fpu sse4_2\n", "x86_64", ("bad", "this CPU has no avx")),
        ("Features\t: fp asimd\n", "aarch64", ("ok", "TensorFlow needs none beyond those of")),
        ("", "x86_64", ("absent", "/proc/cpuinfo does not list")),
    ],
)
def test_a_cpu_that_tensorflow_was_not_built_for_is_found(cpuinfo, architecture, expected):
    check = doctor._instructions(cpuinfo, architecture)
    assert check.verdict.value == expected[0]
    assert check.found.startswith(expected[1])


def test_a_kernel_without_a_file_is_looked_at_all_the_same(tmp_path):
    assert doctor._text(str(tmp_path / "cgroup")) == ""


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/a/b\n", {"a/cpu.max": "50000 100000", "a/b/cpu.max": "max 100000"}, 0.5),
        ("0::/a\n", {"cpu.max": "25000 100000"}, 0.25),
        (
            "3:cpu,cpuacct:/a\n0::/\n",
            {"cpu/a/cpu.cfs_quota_us": "20000", "cpu/a/cpu.cfs_period_us": "100000"},
            0.2,
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("2:memory:/a\n", {"memory/a/cpu.max": "1000 100000"}, None),
        ("0::/a\n", {}, None),
        ("", {}, None),
    ],
    ids=[
        *("a group above", "in a container", "version 1", "no limit", "another controller"),
        *("no file", "no groups"),
    ],
)
def test_a_limit_of_cpu_time_that_programs_do_not_see_is_found(groups, files, limit, tmp_path):
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    check = doctor._cpu_time(groups, tmp_path)
    if limit is None:
        assert check.found.startswith("not limited below ")
    else:
        assert check.verdict.value == "doubtful"
        assert check.found.startswith(f"limited to {limit} of ")
        assert check.remedy.endswith("all workers together at most 1")


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
    assert "ok       instructions: " in out
    assert "CPU time: " in out
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
