"""The demonstration's parts that train nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from mwmagic.cli import demo
from mwmagic.errors import NotInstalled
from mwmagic.record import Record, RunDirectory


def test_the_quickstart_comes_with_the_package():
    path = demo._notebook()
    assert path.name == "quickstart.ipynb"
    assert json.loads(path.read_text())["nbformat"] == 4


def test_what_is_missing_is_named_with_the_command_that_installs_it(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "find_spec", lambda name: None if name == "sklearn" else name)
    with pytest.raises(
        NotInstalled, match=r"needs sklearn: pip install .mwmagic\[tensorflow,demo\]"
    ):
        demo.demo(tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_the_last_metrics_of_each_worker_are_shown(tmp_path):
    run = RunDirectory.create(tmp_path, "main")
    for epoch, loss in ((1, 0.5), (2, 0.25)):
        for index in (1, 0):
            metrics = {"loss": loss + index, "accuracy": 1.0}
            place = {"attempt": 1, "epoch": epoch, "epochs": 2}
            run.metric(task=f"worker:{index}", **place, metrics=metrics)
    assert demo._metrics(Record(run.path, 1)) == [
        "  worker:0  epoch 2/2  loss 0.25  accuracy 1",
        "  worker:1  epoch 2/2  loss 1.25  accuracy 1",
    ]


def test_the_command_that_opens_the_notebook_is_one_that_exists_here():
    command = demo._jupyter().split()[0]
    assert command == "jupyter" or Path(command).parent.is_dir()


def test_what_the_demonstration_and_the_notebooks_write_is_no_part_of_the_project(tmp_path):
    shutil.copy(Path(__file__).parents[2] / ".gitignore", tmp_path)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    written = ["mwmagic-demo/main.py", "notebooks/main.py", "notebooks/.mwmagic/runs/1/run.json"]
    asked = ["git", "check-ignore", *written, "notebooks/quickstart.ipynb", "mwmagic/cli/demo.py"]
    ignored = subprocess.run(asked, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert ignored.stdout.split() == written
