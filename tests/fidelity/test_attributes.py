"""What a program has of the process that starts it, it has as that is when it launches."""

from __future__ import annotations

import os
import resource

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow]

SHOW = """
import os, resource
print(oct(os.umask(0o77)), os.nice(0))
names = [one for one in dir(resource) if one.startswith("RLIMIT_") and one != "RLIMIT_RTTIME"]
print([(name, resource.getrlimit(getattr(resource, name))) for name in names])
"""


@pytest.fixture
def changed():
    """Change this process after the clusters were declared, and change it back."""
    files, core = resource.RLIMIT_NOFILE, resource.RLIMIT_CORE
    before = {one: resource.getrlimit(one) for one in (files, core)}
    nice, umask = os.nice(0), os.umask(0o27)
    os.nice(1)
    resource.setrlimit(files, (before[files][0] - 7, before[files][1]))
    resource.setrlimit(core, (0, before[core][1]))
    yield
    os.umask(umask)
    for one, limits in before.items():
        resource.setrlimit(one, limits)
    if os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, 0, nice)


@pytest.mark.usefixtures("changed")
def test_umask_niceness_and_limits_are_those_of_the_launching_process(ways):
    before = ways.compare(SHOW)
    assert before.output[0] == f"0o27 {os.nice(0)}\n"
    assert str(resource.getrlimit(resource.RLIMIT_NOFILE)) in before.output[1]
