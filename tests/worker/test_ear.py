"""A socket that a thread of its own listens to, or a thread that waits for what it brings."""

from __future__ import annotations

import random
import socket
import threading

import pytest
from processes import eventually

from mwmagic.worker.ear import Ear

OWN = "the ear's own"


class Line:
    """The near end of a line of packets; notes which thread takes each."""

    def __init__(self):
        self.near, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.taken = []
        self.ear = Ear(self.near.fileno(), self.take)
        self.meanwhile = lambda: None

    def take(self):
        try:
            packet = self.near.recv(100, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        if packet:
            self.meanwhile()
            self.taken.append((packet.decode(), threading.current_thread().name))
        return bool(packet)

    @property
    def words(self):
        return [word for word, _ in self.taken]

    @property
    def takers(self):
        return {name for _, name in self.taken}


@pytest.fixture
def line():
    one = Line()
    yield one
    one.far.close()
    eventually(lambda: OWN not in {thread.name for thread in threading.enumerate()})
    one.near.close()


def test_its_own_thread_listens(line):
    line.ear.start(OWN)
    line.far.send(b"a")
    eventually(lambda: line.taken == [("a", OWN)])


def test_a_thread_that_waits_listens_itself_and_the_own_one_goes_on(line):
    line.ear.start(OWN)
    with line.ear.lent() as mine:
        assert mine
        assert not line.ear.wait(0)
        line.far.send(b"a")
        assert line.ear.wait()
        assert line.ear.take()
    assert line.taken == [("a", "MainThread")]
    line.far.send(b"b")
    eventually(lambda: line.taken[1:] == [("b", OWN)])


def test_only_one_other_listens(line):
    line.ear.start(OWN)
    with line.ear.lent(), line.ear.lent() as second:
        assert not second
    with line.ear.lent() as mine:
        assert mine


def test_a_thread_that_is_taking_something_does_not_listen_for_more(line):
    asked = []

    def ask():
        with line.ear.lent() as mine:
            asked.append(mine)

    line.meanwhile = ask
    line.ear.start(OWN)
    line.far.send(b"a")
    eventually(lambda: asked == [False])


def test_the_end_is_the_end_for_all(line):
    line.ear.start(OWN)
    with line.ear.lent():
        line.far.close()
        assert line.ear.wait()
        assert not line.ear.take()
        assert not line.ear.take()


@pytest.mark.slow
def test_each_packet_is_taken_once_and_in_order_whoever_listens(line):
    count, chance = 3_000, random.Random(4)
    line.ear.start(OWN)

    def send():
        for number in range(count):
            line.far.send(str(number).encode())

    sender = threading.Thread(target=send)
    sender.start()
    while len(line.taken) < count:
        until = len(line.taken) + chance.randrange(20)
        with line.ear.lent():
            while len(line.taken) < min(until, count):
                line.ear.wait()
                line.ear.take()
        aside = threading.Event()
        aside.wait(chance.random() * 0.01)
    sender.join()
    assert line.words == [str(number) for number in range(count)]
    assert line.takers == {OWN, "MainThread"}
