"""The latest run, written as a script from a real kernel."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from kernels import started


@pytest.mark.slow
def test_the_latest_run_becomes_a_script(kernel, tmp_path):
    kernel.run("%mw_cluster 2 --no-warm")
    assert kernel.run("%mw_export script").error.startswith("NoRun: nothing was launched yet")
    kernel.run("%%mw_worker --file train.py --args 'a b'\nprint('hello')")
    assert kernel.run("%mw_wait").error is None
    beside = "wrote train.sh, which runs the code in train-run-1\n"
    assert kernel.run("%mw_export script").text == beside
    assert '"$PYTHON" train-run-1/train.py a b\n' in (tmp_path / "train.sh").read_text()
    assert os.access(tmp_path / "train.sh", os.X_OK)
    exported = kernel.run("path = %mw_export slurm --quiet --file job\npath")
    assert (exported.text, exported.value) == ("", "PosixPath('job')")
    assert "#SBATCH --ntasks=2" in (tmp_path / "job").read_text()
    (tmp_path / "train-run-1" / "train.py").write_text("print('mine')")
    assert "was changed since mwmagic wrote it" in kernel.run("%mw_export script").error
    assert kernel.run("%mw_export script --overwrite").text == beside
    assert kernel.run("%mw_export script 1 --overwrite").text == beside
    assert "a script repeats one run: leave out 2" in kernel.run("%mw_export script 1 2").error
    assert "--uri is for mlflow" in kernel.run("%mw_export script --uri x").error
    assert "run 1 has no metrics to write" in kernel.run("%mw_export csv 1").error
    assert "invalid choice: 'pbs'" in kernel.run("%mw_export pbs").error


@pytest.mark.slow
def test_a_script_runs_what_its_run_ran_with_two_notebooks_in_a_folder(kernel, nursery, tmp_path):
    (tmp_path / "helper.py").write_text("value = 'as launched'\n")
    kernel.run("%mw_cluster 2 --no-warm")
    kernel.run("%%mw_worker\nimport helper\nprint('first notebook,', helper.value)")
    kernel.run("%mw_wait")
    with started(nursery, tmp_path, type(kernel)) as other:
        other.run("%load_ext mwmagic")
        other.run("%mw_cluster 2 --no-warm --name other")
        assert other.run("%%mw_worker\nprint('second notebook')").error is None
        other.run("%mw_wait")
        (tmp_path / "helper.py").write_text("value = 'as edited later'\n")
        assert kernel.run("%mw_export script").error is None
        assert other.run("%mw_export script --file other.sh").error is None
    text = (tmp_path / "main.sh").read_text()
    assert "# Run 1, launched at 20" in text
    assert f"with python {sys.version.split()[0]}" in text
    assert "# Recorded with it: helper.py.\n" in text
    env = {**os.environ, "PYTHON": sys.executable}
    for script, printed in (
        ("main.sh", "first notebook, as launched\n"),
        ("other.sh", "second notebook\n"),
    ):
        subprocess.run(["bash", script], cwd=tmp_path, env=env, check=True, timeout=120)
        assert (tmp_path / "logs" / "worker-1.log").read_text() == printed
