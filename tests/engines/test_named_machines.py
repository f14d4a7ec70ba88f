"""The machines that a user names."""

from __future__ import annotations

import asyncio

import pytest

from mwmagic.engines import engine_for
from mwmagic.errors import ClusterError
from mwmagic.model.cluster import make_tasks
from mwmagic.model.options import ClusterOptions

ENGINES = {"ssh": ["-F", "none"], "command": ["env", "{python}", "-"]}


def made(name, hosts):
    given = {"directory": "/", "engine": name, "scheduler": ENGINES[name]}
    return engine_for(ClusterOptions(hosts=hosts, **given))


async def offered(engine, tasks, *avoid):
    return await engine.allocate(make_tasks(tasks), avoid=avoid, notify=print)


@pytest.mark.parametrize("name", ENGINES)
def test_machines_are_offered_in_the_order_named_and_the_lost_ones_only_without_others(name):
    engine = made(name, ["a=10.0.0.1", "b=10.0.0.2", "c=10.0.0.3"])

    async def names(*given):
        return [host.name for host in await offered(engine, *given)]

    async def test():
        assert await names(2) == ["a", "b"]
        assert await names(5) == ["a", "b", "c"]
        assert await names(2, "a") == ["b", "c"]
        assert await names(2, "a", "c") == ["b"]
        assert await names(2, "c", "b", "a") == ["a", "b"]

    asyncio.run(test())


@pytest.mark.parametrize("name", ENGINES)
def test_a_machine_that_is_offered_again_is_the_same(name):
    engine = made(name, ["a=10.0.0.1", "b=10.0.0.2"])

    async def test():
        [a, b] = await offered(engine, 2)
        assert (a.address, a.slots, a.here) == ("10.0.0.1", None, False)
        [again] = await offered(engine, 2, "a")
        assert again is b
        assert (await offered(engine, 2))[0] is a

    asyncio.run(test())


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ([], "name the machines to use, as in --engine {} --hosts "),
        (["a", "b", "a"], "the machine a is named twice"),
        (["a", "a=10.0.0.1"], "the machine a is named twice"),
        (["-oProxyCommand=x"], "'-oProxyCommand=x' is not a machine's name; .* --engine {}"),
        (["a b"], "'a b' is not a machine's name"),
        (["=b"], "'=b' is not a machine's name"),
        (["a="], "'a=' is not a machine's name"),
    ],
)
def test_names_that_cannot_work_are_refused(name, hosts, said):
    with pytest.raises(ClusterError, match=said.format(name)):
        made(name, hosts)
