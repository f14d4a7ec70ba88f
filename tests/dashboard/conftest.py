"""A real kernel, spoken to as a page does."""

from __future__ import annotations

import pytest
from comms import Kernel
from kernels import started


@pytest.fixture
def kernel(nursery, tmp_path, own_sockets):
    """A kernel in an empty directory, with the extension loaded."""
    with started(nursery, tmp_path, Kernel) as kernel:
        kernel.run("%load_ext mwmagic")
        yield kernel
