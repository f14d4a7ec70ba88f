"""What cannot be as it was when a recorded run is launched again."""

from __future__ import annotations

import pytest

from mwmagic.client.records import Rerun
from mwmagic.record import RunDirectory, runs

READING = """
import os

batch = int(os.environ.get("BATCH_SIZE", 64))
rate = float(os.getenv("RATE", "0.1"))
name = os.environ["EXPERIMENT"]
home = os.environ["HOME"]
"""


@pytest.fixture
def again(tmp_path, monkeypatch):
    for name in ("BATCH_SIZE", "RATE", "EXPERIMENT"):
        monkeypatch.delenv(name, raising=False)

    def recorded(inherited, given=None, params=None):
        run = RunDirectory.create(tmp_path, "main")
        (run.path / "main.py").write_text(READING)
        launch = {"script": "main.py", "source": "main.py", "args": [], "cwd": str(tmp_path)}
        tasks = {"worker:0": {**launch, "given": given or {}}}
        run.write({"state": "finished", "launches": tasks, "env": inherited})
        run.flush()
        return Rerun(runs(tmp_path)[-1], params=params)

    return recorded


def test_inherited_variables_are_named_once_and_without_values(again, monkeypatch):
    monkeypatch.setenv("RATE", "0.7")
    [line] = again(["BATCH_SIZE", "HOME", "RATE"]).unlike()
    assert line == (
        "run 1 read BATCH_SIZE (not set now), RATE from its environment, whose values are not "
        "recorded: it now reads this environment's, unless -p sets others"
    )
    [line] = again(["HOME"]).unlike()
    assert line == "the program reads RATE from this environment; run 2 had no such variable"


def test_variables_that_are_given_are_as_they_were(again, monkeypatch):
    monkeypatch.setenv("RATE", "0.7")
    given = {"RATE": "0.2", "EXPERIMENT": "one"}
    assert again(["BATCH_SIZE", *given], given, {"BATCH_SIZE": 32}).unlike() == []
    assert again(["HOME"]).unlike() != []
