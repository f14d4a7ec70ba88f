"""The connection to an agent, with agents that are not as they should be."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from textwrap import dedent

import pytest

from mwmagic.engines import Host
from mwmagic.engines import channel as module
from mwmagic.engines.channel import Channel
from mwmagic.errors import SupervisorError
from mwmagic.model.messages import VERSION, MessageError

pytestmark = pytest.mark.usefixtures("nothing_survives")

HELLO = {"type": "hello", "version": 1, "pid": 1, "host": "h", "python": "3", "time": 0, "wall": 0}
HELLO |= {"executable": "/usr/bin/python3", "package": "/opt/mwmagic", "folder": "/w"}
HELLO["addresses"] = {"eth0": ["10.0.0.1"]}
AGENT = f"""
import json, signal, sys, time
def say(**event):
    print(json.dumps(event), flush=True)
def hear():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit()
hello = hear()
say(**{HELLO!r})
"""


def greet(code):
    return AGENT + dedent(code)


async def opened(code, *, here=True, **options):
    argv = (sys.executable, "-I", "-c", dedent(code))
    return await Channel.open(Host("there", "10.0.0.1", argv, here=here, env={}), **options)


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 120))


def test_an_agent_is_greeted_and_closed():
    async def test():
        echo = greet("hear()\nsay(type='usage', time=0, machine={}, processes=hello)\nhear()")
        one = await opened(echo, silence=3.5, sample=0.5)
        heard = asyncio.Queue()
        one.listener = heard.put_nowait
        one.lost = lambda: heard.put_nowait("lost")
        one.send("ping", n=1, until=None)
        hello = (await heard.get())["processes"]
        assert hello == {
            "type": "hello",
            "version": VERSION,
            "parent": os.getpid(),
            "silence": 3.5,
            "sample": 0.5,
            "inherit": False,
        }
        assert (one.executable, one.package) == ("/usr/bin/python3", "/opt/mwmagic")
        await one.close()
        assert heard.empty()

    run(test())


def test_an_agent_of_another_version_is_refused():
    async def test():
        code = (
            'print(\'{"type": "refused", "command": "hello", "reason": null, "error": "too new"}\')'
        )
        with pytest.raises(SupervisorError, match="the agent on there refuses: too new"):
            await opened(code)

    run(test())


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", "the agent on there ended"),
        ("print('garbage', flush=True); import time; time.sleep(600)", "the agent on there ended"),
        ('print(\'{"type": "dance"}\', flush=True); import time; time.sleep(600)', "ended"),
    ],
)
def test_a_program_that_is_not_an_agent_is_ended(code, said):
    async def test():
        with pytest.raises(SupervisorError, match=said):
            await opened(code)

    run(test())


def test_an_agent_that_does_not_answer_is_ended(monkeypatch):
    monkeypatch.setattr(module, "AGENT_ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(module, "AGENT_CLOSE_SECONDS", 0.1)

    async def test():
        with pytest.raises(SupervisorError, match="the agent on there did not answer"):
            await opened("import time; time.sleep(600)")

    run(test())


def test_an_agent_that_closes_only_its_output_is_ended(monkeypatch):
    monkeypatch.setattr(module, "PARTING_SECONDS", 0.05)

    async def test():
        with pytest.raises(SupervisorError, match="the agent on there ended"):
            await opened("import os, time; os.close(1); time.sleep(600)")

    run(test())


def test_an_error_has_what_the_command_said_last(capfd):
    async def test():
        code = (
            "import os, sys; os.close(1); sys.stderr.write('no\\nway\\r\\n\\33[1m.'); sys.exit(3)"
        )
        with pytest.raises(SupervisorError, match=r"the agent on there ended: no; way; \[1m$"):
            await opened(code)

    run(test())
    assert capfd.readouterr().err == "no\nway\r\n\33[1m."


def test_the_next_step_is_reported_only_if_the_agent_never_answered():
    async def test(code):
        argv = (sys.executable, "-I", "-c", dedent(code))
        host = Host("there", "there", argv, here=True, hint="Install it.")
        one = await Channel.open(host)
        one.send("ping", n=1, until=None)
        try:
            await one.hold(1)
        finally:
            await one.close()

    with pytest.raises(SupervisorError, match=r"^the agent on there ended: bad luck. Install it.$"):
        run(test("import sys; sys.exit('bad luck')"))
    with pytest.raises(SupervisorError, match=r"^the agent on there ended: worse$"):
        run(
            test(
                "import sys; sys.stderr.write('hi\\n'); sys.stderr.flush()"
                + greet("hear(); sys.exit('worse')")
            )
        )


def test_a_command_that_says_very_much_is_not_held_up(capfd):
    async def test():
        much = "sys.stderr.write('x' * 1_000_000 + '\\nend'); sys.stderr.flush()"
        told = "say(type='usage', time=0, machine={}, processes={})"
        one = await opened(greet(f"hear(); {much}; {told}; hear()"))
        heard = asyncio.Queue()
        one.listener = heard.put_nowait
        one.send("ping", n=1, until=None)
        await heard.get()
        await one.close()
        said = one.host.stderr.last
        assert said.endswith("x; end")
        assert len(said) < 1000

    run(test())
    assert len(capfd.readouterr().err) == 1_000_004


def test_a_command_that_cannot_be_run_is_an_error():
    async def test():
        with pytest.raises(FileNotFoundError):
            await Channel.open(Host("there", "there", ("/no/such/agent",)))

    run(test())


def test_ports_are_held_one_request_at_a_time_or_many_at_once():
    async def test():
        code = """
            while True:
                one = hear()
                if one["type"] == "hold":
                    say(type="held", id=one["id"], ports=[one["id"]] * one["count"])
        """
        one = await opened(greet(code))
        found = await asyncio.gather(*(one.hold(count) for count in range(5)))
        assert [len(ports) for ports in found] == list(range(5))
        assert len({ports[0] for ports in found if ports}) == 4
        await one.close()

    run(test())


def test_ports_that_cannot_be_held_are_an_error(monkeypatch):
    async def test():
        code = """
            one = hear()
            say(type="refused", command="hold", reason=None, id=one["id"], error="no ports left")
            hear()
            time.sleep(0.1)
            hear()
        """
        one = await opened(greet(code))
        with pytest.raises(SupervisorError, match="refuses: no ports left"):
            await one.hold(1)
        monkeypatch.setattr(module, "AGENT_ANSWER_SECONDS", 0.05)
        with pytest.raises(SupervisorError, match="did not answer"):
            await one.hold(1)
        await one.close()

    run(test())


def test_an_agent_that_ends_is_lost_once_and_each_request_that_waits_fails():
    async def test():
        one = await opened(greet("hear()"))
        lost = asyncio.Queue()
        one.lost = lambda: lost.put_nowait("lost")
        with pytest.raises(SupervisorError, match="the agent on there ended"):
            await one.hold(1)
        await lost.get()
        one.send("ping", n=1, until=None)  # nobody hears it
        await one.close()
        assert lost.empty()

    run(test())


def test_an_agent_whose_news_cannot_be_taken_in_is_ended(capfd):
    async def test():
        one = await opened(
            greet("hear()\nsay(type='usage', time=0, machine={}, processes={})\ntime.sleep(600)")
        )
        lost = asyncio.Queue()
        one.lost = lambda: lost.put_nowait("lost")
        one.listener = lambda event: 1 / 0
        one.send("ping", n=1, until=None)
        await lost.get()
        await one.close()

    run(test())
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_command_that_no_agent_takes_is_not_sent():
    async def test():
        one = await opened(greet("hear()"))
        with pytest.raises(MessageError, match="unknown message 'dance'"):
            one.send("dance")
        with pytest.raises(MessageError, match="lacks 'n'"):
            one.send("ping")
        await one.close()

    run(test())


AHEAD = """
def clock():
    return time.monotonic() + 5000
while True:
    one = hear()
    if one["type"] == "close":
        break
    if one["type"] == "ping":
        say(type="pong", n=one["n"], time=clock())
    elif one["type"] == "release":
        report = {"time": clock(), "kind": "x"}
        say(type="usage", time=clock(), machine={}, processes={})
        say(type="refused", command="x", reason=None, error="y", report=report)
"""


def test_times_of_another_machine_are_reported_in_our_own():
    async def test():
        one = await opened(greet(AHEAD), here=False)
        heard = asyncio.Queue()
        one.listener = heard.put_nowait
        before = time.monotonic()
        one.send("release", ports=[])
        usage, other = await heard.get(), await heard.get()
        for told in (usage["time"], other["report"]["time"]):
            assert before - 1 < told < time.monotonic() + 1
        assert 4999 < one.skew < 5001
        await one.close()

    run(test())


DEAF = """
for _ in range(CLOCK_PINGS + 3):
    one = hear()
    say(type="pong", n=one["n"], time=0)
say(type="usage", time=0, machine={}, processes={})
time.sleep(600)
"""


LATE = """
for _ in range(CLOCK_PINGS):
    say(type="pong", n=hear()["n"], time=0)
n = hear()["n"]
hear()
say(type="pong", n=n, time=0)
while (one := hear())["type"] == "ping":
    say(type="pong", n=one["n"], time=0)
"""


def test_an_agent_that_does_not_answer_for_half_its_lease_is_quiet_until_it_does():
    async def test():
        late = LATE.replace("CLOCK_PINGS", str(module.CLOCK_PINGS))
        one = await opened(greet(late), here=False)
        heard = asyncio.Queue()
        one.lease.on_unresponsive = lambda: heard.put_nowait(one.lease.unresponsive)
        one.lease.begin(0.1)
        assert await heard.get()
        one.send("release", ports=[])
        assert not await heard.get()
        await one.close()
        assert heard.empty()

    run(test())


def test_an_agent_that_no_longer_answers_is_lost_once(monkeypatch):
    monkeypatch.setattr(module, "OVERDUE_SECONDS", 0.05)

    async def test():
        deaf = DEAF.replace("CLOCK_PINGS", str(module.CLOCK_PINGS))
        one = await opened(greet(deaf), here=False, silence=0.05)
        heard = asyncio.Queue()
        one.listener = heard.put_nowait
        one.lost = lambda: heard.put_nowait("lost")
        assert (await heard.get())["type"] == "usage"
        assert await heard.get() == "lost"
        await one.close()
        assert heard.empty()

    run(test())


SLOW = """
while (one := hear())["type"] == "ping":
    time.sleep(0.01)
    say(type="pong", n=one["n"], time=0)
time.sleep(600)
"""


def test_a_question_after_a_moment_is_answered_or_the_agent_is_lost(monkeypatch):
    monkeypatch.setattr(module, "OVERDUE_SECONDS", 0.05)
    monkeypatch.setattr(module, "HELD_UP_SECONDS", 0.0)

    async def test():
        one = await opened(greet(SLOW), here=False)
        lost = []
        one.lost = lambda: lost.append("lost")
        one.lease.seconds, since = 60.0, time.monotonic()
        assert one.lease.latest(since) == 0.0
        await one.answers(since)
        assert one.lease.answered >= since
        assert one.lease.latest(since) >= 0.01
        assert one.lease.latest(time.monotonic()) == 0.0
        one.send("release", ports=[])
        one.lease.seconds = 0.05
        await one.answers(time.monotonic())
        assert lost == ["lost"]
        await one.close()

    run(test())


def test_an_agent_that_does_not_listen_when_something_is_to_end_is_killed(monkeypatch):
    monkeypatch.setattr(module, "DEAF_SECONDS", 0.05)

    async def test():
        one = await opened(greet("time.sleep(600)"))
        lost = asyncio.Queue()
        one.lost = lambda: lost.put_nowait("lost")
        one.end("p", 0.0)
        await lost.get()
        await one.close()

    run(test())


def test_a_stubborn_agent_is_killed(monkeypatch):
    monkeypatch.setattr(module, "AGENT_CLOSE_SECONDS", 0.1)

    async def test():
        one = await opened(greet("time.sleep(600)"))
        lost = asyncio.Queue()
        one.lost = lambda: lost.put_nowait("lost")
        await one.close()
        assert lost.empty()

    run(test())


def test_refusals_and_other_events_reach_the_listener():
    async def test():
        refusal = {
            "type": "refused",
            "command": "start",
            "process": "p",
            "reason": None,
            "error": "no",
        }
        one = await opened(greet(f"hear()\nsay(**{refusal!r})\nhear()"))
        heard = asyncio.Queue()
        one.listener = heard.put_nowait
        one.send("ping", n=1, until=None)
        assert await heard.get() == json.loads(json.dumps(refusal))
        await one.close()

    run(test())
