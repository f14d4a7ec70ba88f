"""Ctrl-C where something could be lost by it."""

from __future__ import annotations

import signal
import threading

import pytest

from mwmagic.client.shield import shielded


def pressed(done):
    """Press Ctrl-C, and note that what follows happens."""
    signal.raise_signal(signal.SIGINT)
    done.append("all")


def shielded_press(done):
    with shielded():
        pressed(done)


def open_press(done):
    with shielded() as shield, shield.open():
        pressed(done)


def press_before_it_opens(done):
    with shielded() as shield:
        signal.raise_signal(signal.SIGINT)
        with shield.open():
            done.append("all")


@pytest.mark.parametrize(
    ("act", "expected"),
    [(shielded_press, ["all"]), (open_press, []), (press_before_it_opens, [])],
)
def test_ctrl_c_raises_where_the_shield_is_open_or_at_its_end(act, expected):
    done = []
    with pytest.raises(KeyboardInterrupt):
        act(done)
    assert done == expected
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_raises_once():
    with pytest.raises(KeyboardInterrupt):
        open_press([])
    with shielded() as shield, shield.open():
        pass


@pytest.mark.parametrize("usual", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_handler_that_is_no_function_stays(usual):
    kept = signal.signal(signal.SIGINT, usual)
    try:
        with shielded():
            assert signal.getsignal(signal.SIGINT) is usual
    finally:
        signal.signal(signal.SIGINT, kept)


def test_other_threads_need_none():
    found = []

    def look():
        with shielded():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
