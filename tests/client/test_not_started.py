"""What a user reads when the system starts no worker."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from processes import agents_of

from mwmagic.errors import WorkerFailed

pytestmark = pytest.mark.slow


def failure(run):
    with pytest.raises(WorkerFailed) as failed:
        run.wait(120)
    return str(failed.value)


def test_a_variable_that_is_too_long_is_named_with_its_size(cluster):
    run = cluster(1, env={"LONG": "x" * 200_000}).run("main.py", source="")
    said = failure(run)
    assert said.startswith("run 1 failed: worker:0 could not be started: cannot run /")
    assert said.endswith(
        ": Argument list too long (variable LONG has 200006 bytes; 131072 are the most)"
    )


def test_too_few_descriptors_are_named_with_what_limits_them(cluster):
    one = cluster(1)
    [agent] = agents_of(one._process.pid)
    _, hard = resource.prlimit(agent, resource.RLIMIT_NOFILE)
    used = len(list(Path(f"/proc/{agent}/fd").iterdir()))
    resource.prlimit(agent, resource.RLIMIT_NOFILE, (used + 10, hard))
    assert failure(one.run("main.py", source="")).startswith(
        "run 1 failed: worker:0 could not be started: too many open files: the agent has "
    )
    resource.prlimit(agent, resource.RLIMIT_NOFILE, (hard, hard))
    one.run("main.py", source="").wait(120)
