"""The demonstration's parts that train nothing."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from mwmagic.cli import demo, main
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


@pytest.fixture
def short(monkeypatch, tmp_path):
    """A demonstration whose workers train nothing."""
    sources = ["%load_ext mwmagic", "%mw_cluster 2 --no-warm", "%%mw_worker\nprint()", "%mw_wait"]
    cells = [nbformat.v4.new_code_cell(source) for source in [*sources, "%mw_stop --cluster"]]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "short.ipynb")
    monkeypatch.setattr(demo, "_notebook", lambda: tmp_path / "short.ipynb")
    return tmp_path / "there"


@pytest.mark.slow
def test_a_notebook_that_the_user_changed_is_replaced_only_when_asked(
    short, capsys, nothing_survives
):
    assert main(["demo", "--directory", str(short)]) == 0
    assert main(["demo", "--directory", str(short)]) == 0, "again, unchanged"
    path = short / "quickstart.ipynb"
    executed = path.read_text()
    path.write_text(executed.replace("print()", "print('mine')"))
    capsys.readouterr()
    assert main(["demo", "--directory", str(short)]) == 2
    assert capsys.readouterr().err == (
        f"mwmagic: {path} was changed since mwmagic wrote it, and is left as it is; "
        "`--overwrite` replaces it, `--directory` names another place\n"
    )
    assert "print('mine')" in path.read_text()
    assert main(["demo", "--directory", str(short), "--overwrite"]) == 0
    assert "print('mine')" not in path.read_text()
    assert sorted(one.name for one in short.iterdir()) == [
        ".mwmagic",
        "main.py",
        "quickstart.ipynb",
    ]


@pytest.mark.parametrize("folder", ["bin", "with a space"])
def test_the_command_that_opens_the_notebook_is_one_that_a_shell_finds(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "executable", str(tmp_path / folder / "python"))
    assert shlex.split(demo._jupyter()) == [str(tmp_path / folder / "jupyter")]
    monkeypatch.chdir(tmp_path)
    assert shlex.split(demo._jupyter()) == [f"{folder}/jupyter"]


def test_what_the_demonstration_and_the_notebooks_write_is_no_part_of_the_project(tmp_path):
    shutil.copy(Path(__file__).parents[2] / ".gitignore", tmp_path)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    written = ["mwmagic-demo/main.py", "notebooks/main.py", "notebooks/.mwmagic/runs/1/run.json"]
    asked = ["git", "check-ignore", *written, "notebooks/quickstart.ipynb", "mwmagic/cli/demo.py"]
    ignored = subprocess.run(asked, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert ignored.stdout.split() == written
