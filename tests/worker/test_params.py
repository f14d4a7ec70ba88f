"""The mapping of parameters that programs may read."""

from __future__ import annotations

import pytest

from mwmagic import runs
from mwmagic.experiments.parameters import settings, values
from mwmagic.experiments.runs import facts_of
from mwmagic.worker import params

PROGRAM = """from mwmagic.worker import params as given
print(given.get("lr", 0.1), given.get("sizes", [1]), given["name"], len(given), flush=True)
"""


def test_what_the_program_reads_is_a_parameter():
    assert values(PROGRAM) == {"lr": 0.1, "sizes": [1]}
    done = settings(PROGRAM, {"lr": 1, "sizes": "2,3", "name": "a b"})
    assert done.env == {
        "MWMAGIC_PARAM_lr": "1.0",
        "MWMAGIC_PARAM_sizes": "[2, 3]",
        "MWMAGIC_PARAM_name": '"a b"',
    }
    assert values(PROGRAM, env=done.env) == {"lr": 1.0, "sizes": [2, 3], "name": "a b"}


def test_without_a_launch_it_is_empty(monkeypatch):
    assert dict(params) == {}
    assert params.get("lr", 0.1) == 0.1
    with pytest.raises(KeyError, match="launch the program with -p lr=VALUE"):
        params["lr"]
    monkeypatch.setenv("MWMAGIC_PARAM_lr", "0.5")
    assert repr(params) == "params({'lr': 0.5})"


@pytest.mark.slow
def test_a_worker_reads_what_was_given(cluster, tmp_path):
    (tmp_path / "main.py").write_text(PROGRAM)
    run = cluster(1).run("main.py", params={"lr": 0.2, "name": "x"}).wait(120)
    assert run.logs(0) == b"0.2 [1] x 2\n"
    assert facts_of(runs()[-1]).parameters == {"lr": 0.2, "sizes": [1], "name": "x"}
