"""Hosts with daemons, which the tests of a file share."""

import tempfile
from importlib.util import find_spec

import pytest
import slurm as on_network
from sshd import Lab

from mwmagic.engines import CODE

# Ray has an environment of its own: `make ray` runs these.
collect_ignore = [] if find_spec("ray") else ["test_ray.py"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Three hosts that ssh reaches; the last does not see the tests' files or the code."""
    hidden = [tmp_path_factory.getbasetemp(), CODE]
    with tempfile.TemporaryDirectory(prefix="mw-lab-", dir="/tmp") as folder:
        one = Lab(folder, hidden)
        try:
            one.up()
            yield one
        finally:
            one.down()


@pytest.fixture(scope="module")
def slurm():
    """Bring up a Slurm with three nodes for the tests of a module."""
    with on_network.slurm() as one, pytest.MonkeyPatch.context() as patch:
        for name, value in one.environment.items():
            patch.setenv(name, value)
        yield one


@pytest.fixture(scope="module")
def rays():
    """Bring up a Ray with three nodes for the tests of a module."""
    import raylets

    with raylets.rays() as one:
        yield one
