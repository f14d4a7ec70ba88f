"""Ctrl-C where something could be lost by it."""

from __future__ import annotations

import signal
import sys
import threading

import pytest

from mwmagic.client.connection import Conversation
from mwmagic.client.live.cell import DeferredInterrupt, LiveCell


def pressed(done):
    """Press Ctrl-C, and note that what follows happens."""
    signal.raise_signal(signal.SIGINT)
    done.append("all")


def deferred_press(done):
    with DeferredInterrupt():
        pressed(done)


def open_press(done):
    with DeferredInterrupt() as interrupt, interrupt.gap:
        pressed(done)


def press_before_it_opens(done):
    with DeferredInterrupt() as interrupt:
        signal.raise_signal(signal.SIGINT)
        with interrupt.gap:
            done.append("all")


@pytest.mark.parametrize(
    ("act", "expected"),
    [(deferred_press, ["all"]), (open_press, []), (press_before_it_opens, [])],
)
def test_ctrl_c_raises_in_a_gap_or_at_the_end(act, expected):
    done = []
    with pytest.raises(KeyboardInterrupt):
        act(done)
    assert done == expected
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_raises_once():
    with pytest.raises(KeyboardInterrupt):
        open_press([])
    with DeferredInterrupt() as interrupt, interrupt.gap:
        pass


def test_a_handler_that_does_not_raise_is_called_each_time():
    heard = []
    kept = signal.signal(signal.SIGINT, lambda *_: heard.append("pressed"))
    try:
        with DeferredInterrupt() as interrupt, interrupt.gap:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            assert len(heard) == 2
    finally:
        signal.signal(signal.SIGINT, kept)


@pytest.mark.parametrize("usual", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_handler_that_is_no_function_stays(usual):
    kept = signal.signal(signal.SIGINT, usual)
    try:
        with DeferredInterrupt():
            assert signal.getsignal(signal.SIGINT) is usual
    finally:
        signal.signal(signal.SIGINT, kept)


def test_other_threads_need_none():
    found = []

    def look():
        with DeferredInterrupt():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def pressing(at):
    """Return a function for `sys.settrace` that presses Ctrl-C at one instruction of the client."""
    left = iter(range(at, -1, -1))

    def trace(frame, event, _):
        if "mwmagic/client" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and next(left, None) == 0:
            signal.raise_signal(signal.SIGINT)
        return trace

    return trace, left


def test_whichever_instruction_ctrl_c_interrupts_a_cells_answer_is_taken():
    given = {"ok": True, "value": {}, "seconds": 0.0, "start": 0, "end": 0}
    usual, raised = sys.gettrace(), 0
    for at in range(10_000):
        conversation = Conversation()
        conversation.put(("answer", {"task": "worker:0", **given}))
        cell = LiveCell(conversation, 1)
        trace, left = pressing(at)
        try:
            sys.settrace(trace)
            cell.news(0.0)
        except KeyboardInterrupt:
            raised += 1
            sys.settrace(usual)
            cell.news(0.0)
        finally:
            sys.settrace(usual)
        assert cell.answers, at
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if next(left, None) is not None:  # it has fewer instructions
            break
    assert raised > 100
