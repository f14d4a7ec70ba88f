"""What a time limit must not lose."""

from __future__ import annotations

import asyncio

import pytest

from mwmagic.engines.link import Stderr, within


def test_what_is_done_in_time_is_returned():
    async def fast():
        return await within(60.0, asyncio.sleep(0, "done"))

    assert asyncio.run(fast()) == "done"


async def slow(ended):
    """Take long, and a moment also to end."""
    try:
        await asyncio.sleep(600)
    finally:
        await asyncio.sleep(0)
        ended.append(True)


def test_what_takes_too_long_is_cancelled_and_has_ended():
    ended = []
    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(within(0.01, slow(ended)))
    assert ended


def test_its_error_is_raised():
    async def fail():
        raise LookupError

    with pytest.raises(LookupError):
        asyncio.run(within(60.0, fail()))


def test_a_cancellation_that_comes_with_the_result_is_not_lost():
    """`asyncio.wait_for` loses it until Python 3.12, and the task that was cancelled goes on."""

    async def both():
        result = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(within(60.0, result))
        await asyncio.sleep(0)
        result.set_result("done")
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(both())


def test_what_is_cancelled_meanwhile_has_ended_before():
    ended = []

    async def cancelled():
        task = asyncio.create_task(within(60.0, slow(ended)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert ended


def test_the_last_words_of_a_command_are_without_noise():
    stderr = Stderr("lacks support for cpu binding")
    stderr.feed(b"srun: error: cluster configuration lacks support for cpu binding.\n")
    assert not stderr.last
    stderr.feed(b"srun: error: n2: task 0: Killed\n")
    assert stderr.last == "srun: error: n2: task 0: Killed"
