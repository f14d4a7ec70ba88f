"""What the record of a real run holds."""

from __future__ import annotations

import json
import stat
import subprocess

import pytest
from processes import eventually

from mwmagic import __version__
from mwmagic.record import FORMAT_VERSION

CODE = """
for epoch, loss in enumerate((0.5, 0.25, 0.75), start=1):
    print(f"epoch {epoch} loss: {loss}")
"""


@pytest.mark.slow
def test_the_record_says_what_a_run_came_from(cluster, tmp_path, monkeypatch):
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    monkeypatch.setenv("INHERITED", "not to be kept")
    one = cluster(1, env={"DECLARED": "1"})
    run = one.run("main.py", source=CODE, args=["--lr", "0.1"], env={"GIVEN": "2"}).wait()
    record = run.record
    eventually(lambda: "git" in record.info)
    info = record.info
    assert info["format"] == FORMAT_VERSION
    assert info["state"] == record.state == "finished"
    [launch] = info["launches"].values()
    assert launch["args"] == ["--lr", "0.1"]
    assert launch["given"] == {"DECLARED": "1", "GIVEN": "2"}
    assert {"INHERITED", "DECLARED", "GIVEN", "PATH"} <= {*info["env"]}
    assert "not to be kept" not in json.dumps(info)
    assert {"python", "mwmagic", "tensorflow", "keras"} == {*info["versions"]}
    assert info["versions"]["mwmagic"] == __version__
    assert info["git"] == {"commit": None, "dirty": False}
    assert info["durations"]["states"]["running"] > 0
    assert info["durations"]["total"] >= info["durations"]["states"]["running"]
    loss = info["metrics"]["worker:0"]["loss"]
    assert (loss["last"]["value"], loss["best"]["value"], loss["best"]["epoch"]) == (0.75, 0.25, 2)
    for path in [tmp_path / ".mwmagic", *(tmp_path / ".mwmagic").rglob("*")]:
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


@pytest.mark.slow
def test_the_last_state_is_written_before_a_run_is_said_to_be_over(cluster):
    one = cluster(1)
    for _ in range(5):
        run = one.run("main.py", source="")
        while not run.over:
            run.ended_within(1.0)
        assert run.record.info["state"] == "finished"
