"""Hosts with daemons, which the tests of a file share."""

import tempfile

import pytest
from sshd import Lab


@pytest.fixture(scope="module")
def lab():
    """Three hosts that ssh reaches."""
    with tempfile.TemporaryDirectory(prefix="mw-lab-", dir="/tmp") as folder:
        one = Lab(folder)
        try:
            one.up()
            yield one
        finally:
            one.down()
