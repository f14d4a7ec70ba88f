"""The local engine: one agent for all tasks."""

from __future__ import annotations

import asyncio
import os

import pytest
from processes import alive, children

from mwmagic.engines import ENGINES, engine_for
from mwmagic.engines.local import LocalEngine
from mwmagic.errors import ClusterError
from mwmagic.model.cluster import make_tasks

pytestmark = pytest.mark.usefixtures("nothing_survives")


def test_an_engine_is_found_by_its_name():
    assert isinstance(engine_for("local"), LocalEngine)
    with pytest.raises(ClusterError, match=f"unknown engine 'cloud'; .* {', '.join(ENGINES)}"):
        engine_for("cloud")


def test_all_tasks_share_an_agent_that_ends_with_the_engine():
    async def test():
        engine, tasks = LocalEngine(), make_tasks(3)
        channels = await engine.reserve(tasks)
        assert list(channels) == list(tasks)
        assert len(set(channels.values())) == 1
        channel = channels[tasks[0]]
        assert channel.pid in children(os.getpid())
        ports = await channel.hold(3)
        assert len(set(ports)) == 3
        await engine.close()
        await engine.close()
        assert not alive(channel.pid)

    asyncio.run(asyncio.wait_for(test(), 60))


def test_an_engine_that_reserved_nothing_is_closed():
    asyncio.run(LocalEngine().close())
