"""The latest run, written as a script from a real kernel."""

from __future__ import annotations

import os

import pytest


@pytest.mark.slow
def test_the_latest_run_becomes_a_script(kernel, tmp_path):
    kernel.run("%mw_cluster 2 --no-warm")
    assert kernel.run("%mw_export script").error.startswith("NoRun: nothing was launched yet")
    kernel.run("%%mw_worker --file train.py --args 'a b'\nprint('hello')")
    assert kernel.run("%mw_wait").error is None
    assert kernel.run("%mw_export script").text == "wrote train.sh\n"
    assert '"$PYTHON" train.py a b\n' in (tmp_path / "train.sh").read_text()
    assert os.access(tmp_path / "train.sh", os.X_OK)
    exported = kernel.run("path = %mw_export slurm --quiet --file job\npath")
    assert (exported.text, exported.value) == ("", "PosixPath('job')")
    assert "#SBATCH --ntasks=2" in (tmp_path / "job").read_text()
    assert "invalid choice: 'pbs'" in kernel.run("%mw_export pbs").error
