"""What tests of several parts share: clusters, and the proof that they leave nothing behind."""

from __future__ import annotations

import gc
import os
import tempfile
from contextlib import ExitStack

import pytest
from nursery import Nursery
from processes import LABEL, command, eventually, hear_all_signals, kill_all, labelled

from mwmagic import Cluster

LONGEST = (
    "test_notebooks.py",
    "test_sharing.py",
    "test_dashboard.py",
    "test_keras_numbers.py",
    "test_keras_devices.py",
    "test_magics_kernel.py",
)
"""The files that take minutes."""


def pytest_collection_modifyitems(items):
    """Begin with what takes long, so that no process is left with it at the end."""

    def rank(item):
        if item.path.name in LONGEST:
            return LONGEST.index(item.path.name)
        marks = {mark for mark in ("tensorflow", "slow") if mark in slowest[item.path]}
        return len(LONGEST) + 2 - len(marks)

    slowest = {}
    for item in items:
        slowest.setdefault(item.path, set()).update(mark.name for mark in item.iter_markers())
    items.sort(key=rank)


def pytest_collection_finish():
    """Look for no garbage among thousands of collected tests."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _apart(tmp_path_factory):
    """Keep clusters apart from the user's own, and label every process that tests start."""
    tmp_path_factory.getbasetemp()  # pytest's own folder stays where it is
    hear_all_signals()
    # Exported scripts run what it names, and `make PYTHON=...` passes it on.
    os.environ.pop("PYTHON", None)
    with temporary_folder() as folder:
        os.environ.update({"TMPDIR": folder, LABEL: str(os.getpid())})
        tempfile.tempdir = folder
        yield
        kill_all(labelled())


@pytest.fixture(scope="session")
def hidden(_apart):
    """Declare clusters that many tests share: what lists clusters lists those of the test alone."""
    with ExitStack() as stack:

        def hidden(declare):
            folder = stack.enter_context(temporary_folder())
            with pytest.MonkeyPatch.context() as patch:
                put_sockets(folder, patch)
                return declare()

        yield hidden


@pytest.fixture(scope="session")
def warm_pair(hidden, tmp_path_factory):
    """Two workers with TensorFlow imported, for the tests that leave them to the next as they were.

    The import takes seconds, so few clusters should do it. Nothing may run there after a test.
    """
    directory = tmp_path_factory.mktemp("pair")

    def declare():
        env = {"TMPDIR": tempfile.gettempdir()}  # that of each test is another
        return Cluster(2, directory=directory, grace=1.0, env=env)

    with hidden(declare) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def nursery(_apart):
    """What kernels are forked from."""
    nursery = Nursery("ipykernel.ipkernel", "ipykernel.kernelapp", "ipykernel.zmqshell")
    yield nursery
    nursery.close()


@pytest.fixture
def own_sockets(monkeypatch):
    """Give a test a directory of sockets where it finds only its own clusters."""
    with temporary_folder() as folder:
        put_sockets(folder, monkeypatch)
        yield


def temporary_folder():
    """Make a folder, and remove it after a block; its name is short enough for a socket's."""
    return tempfile.TemporaryDirectory(prefix="mw-", dir="/tmp")


def put_sockets(folder, monkeypatch):
    """Have clusters' sockets kept, and looked for, in a folder."""
    monkeypatch.setenv("TMPDIR", folder)
    monkeypatch.setattr(tempfile, "tempdir", folder)


@pytest.fixture
def nothing_survives(own_sockets):
    """Fail a test that leaves a process behind."""
    before = set(labelled())
    yield
    left = set(labelled()) - before
    try:
        eventually(
            lambda: not (set(labelled()) - before),
            f"end of {[(pid, command(pid)) for pid in left]}",
        )
    finally:
        kill_all(set(labelled()) - before)


@pytest.fixture
def cluster(tmp_path, monkeypatch, nothing_survives):
    """Declare clusters of plain Python below a directory of their own, and close them."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        yield lambda workers=2, **options: stack.enter_context(
            Cluster(workers, **{"warm": False, **options})
        )
