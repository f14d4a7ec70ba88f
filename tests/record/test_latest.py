"""Values of which only the newest is written."""

from __future__ import annotations

import threading

from processes import eventually

from mwmagic.record.writer import Latest


def test_only_the_newest_is_written_in_order_and_off_the_callers_thread():
    written, threads = [], set()

    def write(value):
        written.append(value)
        threads.add(threading.current_thread())

    latest = Latest(write, 0.02)
    for value in range(1000):
        latest.put(value)
    assert latest.flush(10.0)
    assert written[-1] == 999
    assert written == sorted(written)
    assert len(written) < 1000
    assert threading.current_thread() not in threads
    assert len(threads) == 1


def test_a_flush_does_not_wait_for_the_next_turn():
    written = []
    latest = Latest(written.append, 3600.0)
    latest.put(1)
    assert latest.flush(10.0)
    latest.put(2)
    assert written == [1]
    assert latest.flush(10.0)
    assert written == [1, 2]
    assert latest.flush(10.0)


def test_a_flush_that_takes_too_long_is_given_up():
    held = threading.Event()
    latest = Latest(lambda _: held.wait(), 0.0)
    latest.put(1)
    assert not latest.flush(0.01)
    held.set()
    assert latest.flush(10.0)


def test_the_thread_ends_where_nothing_is_to_do_and_comes_back():
    written = []
    latest = Latest(written.append, 0.0)
    for value in range(3):
        latest.put(value)
        eventually(lambda: not [t for t in threading.enumerate() if t.name == "mwmagic-record"])
    assert written == [0, 1, 2]


def test_an_error_does_not_end_the_writing(capsys):
    written = []

    def write(value):
        if value == 1:
            raise ValueError(value)
        written.append(value)

    latest = Latest(write, 0.0)
    latest.put(1)
    assert latest.flush(10.0)
    latest.put(2)
    assert latest.flush(10.0)
    assert written == [2]
    assert "ValueError: 1" in capsys.readouterr().err
