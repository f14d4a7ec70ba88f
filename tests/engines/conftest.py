"""Hosts with daemons, which the tests of a file share."""

import tempfile

import pytest
from sshd import Lab

from mwmagic.engines.delivery import CODE


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
