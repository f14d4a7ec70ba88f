"""Where supervisors listen."""

from __future__ import annotations

import os
import socket
import stat
import tempfile

import pytest

from mwmagic import Cluster, clusters
from mwmagic.client import sockets
from mwmagic.errors import NoCluster, SupervisorError


@pytest.fixture
def place(own_sockets, tmp_path):
    return tmp_path


def test_the_directory_is_private(place):
    path = sockets.directory()
    assert path.parent == type(path)(tempfile.gettempdir())
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert sockets.directory() == path


def test_a_directory_that_others_may_enter_is_refused(place):
    sockets.directory().chmod(0o755)
    with pytest.raises(
        SupervisorError, match=r"must be a directory of yours with mode 0700.*TMPDIR"
    ):
        sockets.directory()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(place):
    os.chown(sockets.directory(), 12345, -1)
    with pytest.raises(SupervisorError, match="must be a directory of yours"):
        sockets.directory()


def test_a_link_or_a_file_in_its_place_is_refused(place, tmp_path):
    path = sockets.directory()
    path.rmdir()
    path.symlink_to(tmp_path)
    with pytest.raises(SupervisorError, match="must be a directory of yours"):
        sockets.directory()
    path.unlink()
    path.touch(mode=0o700)
    with pytest.raises(SupervisorError, match="must be a directory of yours"):
        sockets.directory()


def test_a_long_temporary_directory_is_passed_over(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 150)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert sockets.directory().parent == type(long)("/tmp")


@pytest.mark.parametrize("name", ["cluster", "ü" * 50, "a/b c", "", "x" * 300])
def test_every_name_gives_a_path_that_the_kernel_takes(place, name):
    paths = [sockets.fresh(name, place) for _ in range(3)]
    assert len(set(paths)) == 3
    for path in paths:
        assert len(os.fsencode(path)) <= sockets.PATH_BYTES
        assert path.parent == sockets.directory()
        path.touch()
    assert list(sockets.existing(name, place)) == sorted(paths)
    assert list(sockets.existing()) == sorted(paths)
    assert list(sockets.existing(name)) == sorted(paths)
    assert not list(sockets.existing("other", place))
    assert not list(sockets.existing("other"))
    assert not list(sockets.existing(name, place / "elsewhere"))


def test_names_that_look_alike_are_told_apart(place):
    sockets.fresh("a-b", place).touch()
    assert not list(sockets.existing("a b", place))


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
    path = sockets.fresh("cluster", place)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    path.with_suffix(".log").touch()
    with pytest.raises(NoCluster):
        Cluster.attach("cluster", place)
    assert not list(sockets.directory().iterdir())
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert list(clusters()) == []
    assert not list(sockets.directory().iterdir())
