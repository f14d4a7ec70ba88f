"""What is counted of a process leaves its sockets as they were."""

import os
import socket
import struct
from contextlib import suppress

import pytest
from processes import eventually

from mwmagic.worker.looks import BUSY_AT, TCP_INFO_BYTES, links


@pytest.fixture
def connection():
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        with near, far:
            yield near, far


@pytest.fixture
def default_timeout():
    yield socket.setdefaulttimeout
    socket.setdefaulttimeout(None)


def test_connections_are_known_by_both_ends(connection):
    near, _ = connection
    near.sendall(b"x")
    assert ("127.0.0.1", near.getpeername()[1], near.getsockname()[1]) in links()


def test_a_program_that_does_not_read_is_no_slow_link(connection):
    near, _ = connection
    near.settimeout(0)
    with suppress(BlockingIOError):
        while True:
            near.send(b"x" * 65536)

    def busy():
        info = near.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        return struct.unpack_from("=Q", info, BUSY_AT)[0] / 1e6

    eventually(lambda: busy() > 0.1)
    known = links()["127.0.0.1", near.getpeername()[1], near.getsockname()[1]]
    assert known.seconds < 0.05


def test_sockets_stay_blocking_if_the_program_sets_a_default_timeout(connection, default_timeout):
    default_timeout(60)
    links()
    assert all(os.get_blocking(one.fileno()) for one in connection)
