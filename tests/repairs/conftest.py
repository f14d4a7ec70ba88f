"""What tests of Keras's repairs share."""

from __future__ import annotations

import pytest
from gangs import QUIET
from nursery import Nursery


@pytest.fixture(scope="session")
def with_keras(_apart):
    """What processes that train are forked from."""
    nursery = Nursery("tensorflow", "keras", **QUIET)
    yield nursery
    nursery.close()
