"""The command engine: what a user may write after ``--``."""

from __future__ import annotations

import asyncio
import sys

import pytest

from mwmagic.engines import agent_command, engine_for
from mwmagic.engines.channel import Channel
from mwmagic.errors import ClusterError, SupervisorError
from mwmagic.model.cluster import make_tasks
from mwmagic.model.options import ClusterOptions

pytestmark = pytest.mark.usefixtures("nothing_survives")


async def host(*words, **options):
    declared = {"directory": "/", "engine": "command", "hosts": ["a"], "scheduler": words}
    engine = engine_for(ClusterOptions(**declared, **options))
    [one] = await engine.allocate(make_tasks(1), avoid=(), notify=print)
    return one


def command(*words, **options):
    return asyncio.run(host(*words, **options)).command


AGENT = agent_command("/opt/python")


@pytest.mark.parametrize(
    ("words", "filled"),
    [
        (["env", "{python}", "-"], ["env", *AGENT]),
        (["env", "{agent}"], ["env", *AGENT]),
        (["env", "{agent}", "-"], ["env", *AGENT, "-"]),
        (["env", "X={host}.{host}", "--", "{python}", "-"], ["env", "X=a.a", "--", *AGENT]),
        (["env", "P={python}", "{agent}"], ["env", "P=/opt/python", *AGENT]),
        (["env", "A=$HOME {}", "{agent}"], ["env", "A=$HOME {}", *AGENT]),
    ],
)
def test_a_machine_has_the_command_with_its_names(words, filled):
    assert command(*words, python="/opt/python") == tuple(filled)


def test_python_is_by_default_the_path_of_this_one():
    assert command("env", "{python}", "-")[1] == sys.executable


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "write the command that reaches a machine after --, as in .* kubectl exec -i {host}"),
        (["env", "{node}", "{agent}"], "has {node}; it may have {host}, {python} and {agent}"),
        (["env", "{}", "x"], "must start the agent once: let it end with {python} -, or .*{agent}"),
        (["env", "{python}"], "must start the agent once"),
        (["env", "{agent}", "{agent}"], "must start the agent once"),
        (["env", "x{agent}"], "must start the agent once"),
        (["no-such-program", "{agent}"], "no program 'no-such-program' on this machine; install"),
    ],
)
def test_a_command_that_cannot_work_is_refused(words, said):
    with pytest.raises(ClusterError, match=said):
        command(*words)


def test_an_error_has_the_words_of_the_command():
    said = r"on a ended: .*/nowhere/a: No such .* terminal, .*: nsenter .* --version$"

    async def test():
        one = await host("nsenter", "--net=/nowhere/{host}", "{python}", "-")
        with pytest.raises(SupervisorError, match=said):
            await Channel.open(one)

    asyncio.run(test())
