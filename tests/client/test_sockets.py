"""Where supervisors listen."""

from __future__ import annotations

import os
import socket
import stat
import tempfile

import pytest

from mwmagic import Cluster, clusters
from mwmagic.client import starting
from mwmagic.errors import NoCluster, SupervisorError


@pytest.fixture
def place(own_sockets, tmp_path):
    return tmp_path


def test_the_directory_is_private(place):
    path = starting.socket_directory()
    assert path.parent == type(path)(tempfile.gettempdir())
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert starting.socket_directory() == path


def test_a_directory_that_others_may_enter_is_refused(place):
    starting.socket_directory().chmod(0o755)
    with pytest.raises(
        SupervisorError, match=r"must be a directory of yours with mode 0700.*TMPDIR"
    ):
        starting.socket_directory()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(place):
    os.chown(starting.socket_directory(), 12345, -1)
    with pytest.raises(SupervisorError, match="must be a directory of yours"):
        starting.socket_directory()


def test_a_link_or_a_file_in_its_place_is_refused(place, tmp_path):
    path = starting.socket_directory()
    path.rmdir()
    path.symlink_to(tmp_path)
    with pytest.raises(SupervisorError, match="must be a directory of yours"):
        starting.socket_directory()
    path.unlink()
    path.touch(mode=0o700)
    with pytest.raises(SupervisorError, match="must be a directory of yours"):
        starting.socket_directory()


def test_a_long_temporary_directory_is_passed_over(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 150)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert starting.socket_directory().parent == type(long)("/tmp")


@pytest.mark.parametrize("name", ["cluster", "ü" * 50, "a/b c", "", "x" * 300])
def test_every_name_gives_a_path_that_the_kernel_takes(place, name):
    paths = [starting.new_socket(name, place) for _ in range(3)]
    assert len(set(paths)) == 3
    for path in paths:
        assert len(os.fsencode(path)) <= starting.PATH_BYTES
        assert path.parent == starting.socket_directory()
        path.touch()
    assert list(starting.existing_sockets(name, place)) == sorted(paths)
    assert list(starting.existing_sockets()) == sorted(paths)
    assert list(starting.existing_sockets(name)) == sorted(paths)
    assert not list(starting.existing_sockets("other", place))
    assert not list(starting.existing_sockets("other"))
    assert not list(starting.existing_sockets(name, place / "elsewhere"))


def test_names_that_look_alike_are_told_apart(place):
    starting.new_socket("a-b", place).touch()
    assert not list(starting.existing_sockets("a b", place))


@pytest.mark.slow
def test_a_cluster_with_a_long_temporary_directory(tmp_path, monkeypatch, nothing_survives):
    long = tmp_path / ("x" * 150)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    monkeypatch.chdir(long)
    with Cluster(1, warm=False) as cluster:
        assert cluster.run("main.py", source="print('long')").wait(120).logs(0) == b"long\n"


def test_dead_sockets_are_removed(place):
    path = starting.new_socket("cluster", place)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    path.with_suffix(".log").touch()
    with pytest.raises(NoCluster):
        Cluster.attach("cluster", place)
    assert not list(starting.socket_directory().iterdir())
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert list(clusters()) == []
    assert not list(starting.socket_directory().iterdir())
