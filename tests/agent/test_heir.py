"""A warm process is replaced by a fork of it that has imported more."""

from __future__ import annotations

import os
import signal

import pytest
from processes import children, eventually
from speaker import gone, state
from warming import launch, run, warm

LOOK = """
import sys
print(*[one for one in ('wave', 'tomllib', 'bad') if one in sys.modules and one in sys.remembered])
"""
FOREVER = "import time; print('up', flush=True); time.sleep(1000)"
BAD = {
    "thread": "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n",
    "print": "print('printed by an import', flush=True)",
    "signal": "import signal\nsignal.signal(signal.SIGUSR2, signal.SIG_IGN)",
    "logging": "import logging\nlogging.basicConfig(level=10)",
    "flag": "import absl.flags\nabsl.flags.DEFINE_integer('batch_size', 1, '')",
    "variable": "import os\nos.environ['SET_BY_AN_IMPORT'] = '1'",
}


@pytest.fixture
def elder(agent, bootstrap):
    """Have an agent keep a warm process; return the process."""
    warm(agent, bootstrap, "json", env={"PYTHONPATH": str(agent.folder)})
    return agent.wait("warmed", key="k")["pid"]


def renew(agent, *ahead, key="heir", of="k"):
    agent.say("renew", key=key, elder=of, ahead=[*ahead])


def test_an_heir_forks_workers_that_have_imported_more(agent, bootstrap, elder):
    renew(agent, "wave", "no_such_module")
    told = agent.wait("warmed", key="heir")
    assert told["pid"] != elder
    assert told["seconds"] > 0
    for key, name, seen in (("k", "old", "\n"), ("heir", "new", "wave\n")):
        assert run(agent, bootstrap, name, LOOK, key=key) == seen
        assert agent.wait("started", process=name)["warm"]
    renew(agent, "tomllib", key="next", of="heir")
    agent.wait("warmed", key="next")
    assert run(agent, bootstrap, "newest", LOOK, key="next") == "wave tomllib\n"


def test_one_that_is_cooled_forks_what_was_asked_before(agent, bootstrap, elder):
    with agent.together():
        for name in "abc":
            launch(agent, bootstrap, name, LOOK)
        agent.say("cool", key="k")
        launch(agent, bootstrap, "d", "print('cold')")
    assert [agent.wait("started", process=name)["warm"] for name in "abcd"] == [True] * 3 + [False]
    for name in "abcd":
        assert agent.wait("exited", process=name)["code"] == 0
    eventually(lambda: gone([elder]), "its end")


@pytest.mark.slow
def test_one_that_is_cooled_ends_and_its_workers_live_on(agent, bootstrap, elder):
    launch(agent, bootstrap, "a", FOREVER)
    agent.says("a", "up")
    renew(agent, "wave")
    heir = agent.wait("warmed", key="heir")["pid"]
    launch(agent, bootstrap, "b", FOREVER)  # it is asked first
    agent.say("cool", key="k")
    agent.says("b", "up")
    workers = [agent.wait("started", process=name)["pid"] for name in "ab"]
    eventually(lambda: gone([elder]), "end of the first one")
    assert all(map(state, [*workers, heir]))
    assert not agent.all("cooled")
    assert run(agent, bootstrap, "c", "print('cold')", key="k") == "cold\n"
    assert not agent.wait("started", process="c")["warm"]
    assert run(agent, bootstrap, "d", LOOK, key="heir") == "wave\n"
    assert agent.wait("started", process="d")["warm"]


@pytest.mark.slow
def test_an_heir_that_is_not_wanted_any_more_ends(agent, bootstrap, elder):
    (agent.folder / "long.py").write_text(
        "import os, pathlib, time\n"
        "here = pathlib.Path(__file__).parent\n"
        "(here / 'pid').write_text(str(os.getpid()))\n"
        "while not (here / 'go').exists(): time.sleep(0.01)\n"
    )
    renew(agent, "long")
    heir = int(agent.until(lambda: (agent.folder / "pid").exists() and pid(agent)))
    agent.say("cool", key="heir")
    assert run(agent, bootstrap, "a", LOOK) == "\n"
    (agent.folder / "go").touch()
    eventually(lambda: gone([heir]), "end of the heir")
    renew(agent, "wave", key="heir")
    agent.wait("warmed", key="heir")
    assert not agent.all("cooled")


def pid(agent):
    return (agent.folder / "pid").read_text()


@pytest.mark.parametrize("kind", BAD)
def test_a_module_of_which_forks_would_lose_something_makes_no_heir(agent, bootstrap, elder, kind):
    (agent.folder / "bad.py").write_text(BAD[kind])
    renew(agent, "wave", "bad")
    told = agent.wait("cooled", key="heir")
    assert told["module"] == "bad"
    assert "bad: its import" in told["error"]
    assert run(agent, bootstrap, "a", LOOK) == "\n"
    renew(agent, "wave")
    agent.wait("warmed", key="heir")
    assert run(agent, bootstrap, "b", LOOK, key="heir") == "wave\n"


def test_an_heir_that_dies_leaves_the_first_one(agent, bootstrap, elder):
    (agent.folder / "bad.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    renew(agent, "bad")
    told = agent.wait("cooled", key="heir")
    assert (told["module"], "killed by signal 9" in told["error"]) == (None, True)
    assert run(agent, bootstrap, "a", LOOK) == "\n"
    assert agent.wait("started", process="a")["warm"]


def test_only_one_that_is_ready_has_an_heir(agent, bootstrap, elder):
    renew(agent, "wave", of="none")
    assert "none cannot be forked" in agent.wait("cooled", key="heir")["error"]
    renew(agent, "wave", key="k")
    assert "k is there already" in agent.wait("refused", key="k")["error"]
    os.kill(elder, signal.SIGKILL)
    agent.wait("cooled", key="k")
    renew(agent, "wave", key="late")
    agent.wait("cooled", key="late")
    agent.say("cool", key="k")
    agent.say("ping", n=1)
    agent.wait("pong")
    assert len(agent.all("refused")) == 1


@pytest.mark.slow
def test_an_heir_outlives_the_first_one_and_ends_with_the_agent(speak, bootstrap):
    agents = [speak(), speak()]
    heirs = []
    for agent in agents:
        warm(agent, bootstrap, "json")
        elder = agent.wait("warmed", key="k")["pid"]
        renew(agent, "wave")
        heirs.append(agent.wait("warmed", key="heir")["pid"])
        os.kill(elder, signal.SIGKILL)
        agent.wait("cooled", key="k")
        assert run(agent, bootstrap, "a", LOOK, key="heir") == "wave\n"
    left = [*heirs, *(one for agent in agents for one in children(agent.pid))]
    agents[0].child.stdin.close()
    os.kill(agents[1].pid, signal.SIGKILL)
    eventually(lambda: gone(left), "end of the heirs")


@pytest.mark.slow
def test_an_agent_ends_while_an_heir_is_being_made(speak, bootstrap):
    agent = speak()
    (agent.folder / "long.py").write_text("import time; time.sleep(1000)")
    warm(agent, bootstrap, "json", env={"PYTHONPATH": str(agent.folder)})
    agent.wait("warmed", key="k")
    renew(agent, "long")
    agent.say("ping", n=1)
    agent.wait("pong")
    left = children(agent.pid)
    agent.child.stdin.close()
    eventually(lambda: gone(left), "end of all processes")
