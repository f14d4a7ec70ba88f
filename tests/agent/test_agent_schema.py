"""The agent speaks the schema of `mwmagic.model.messages` and needs nothing but Python."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from speaker import AGENT, PYTHON

import mwmagic
from mwmagic.model import messages

ZYGOTE = AGENT.with_name("zygote.py")
BOOTSTRAP = Path(mwmagic.__file__).parent / "worker" / "bootstrap.py"

DESCRIBE = """
import importlib.util, json, sys

spec = importlib.util.spec_from_file_location("agent", sys.argv[1])
agent = importlib.util.module_from_spec(spec)
spec.loader.exec_module(agent)

def names(types):
    return sorted(one.__name__ for one in (types if isinstance(types, tuple) else (types,)))

print(json.dumps({
    "version": agent.VERSION,
    "limit": agent.LINE,
    "commands": {kind: {name: names(types) for name, types in fields.items()}
                 for kind, (handler, fields) in agent.COMMANDS.items() if callable(handler)},
    "foreign": sorted(name for name, module in sys.modules.items()
                      if "site-packages" in str(getattr(module, "__file__", "")) or
                      name.partition(".")[0] == "mwmagic"),
}))
"""


def names(types):
    return sorted(one.__name__ for one in (types if isinstance(types, tuple) else (types,)))


def test_the_agent_alone_has_the_version_and_the_commands_of_the_schema():
    done = subprocess.run(
        [*PYTHON, "-c", DESCRIBE, str(AGENT)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {
        "version": messages.VERSION,
        "limit": messages.LIMIT,
        "commands": {
            kind: {name: names(types) for name, types in fields.items()}
            for kind, fields in messages.COMMANDS.items()
        },
        "foreign": [],
    }


@pytest.mark.parametrize("file", [AGENT, ZYGOTE], ids=lambda file: file.name)
def test_it_imports_the_standard_library_only(file):
    nodes = list(ast.walk(ast.parse(file.read_text())))
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    assert not [node.module for node in froms if node.level]
    imported = {node.module for node in froms}
    imported |= {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    assert {name.partition(".")[0] for name in imported} <= {*sys.stdlib_module_names}
    assert not [node for node in nodes if isinstance(node, ast.Name) and node.id == "__import__"]


def test_every_event_of_a_working_agent_is_in_the_schema(speak, tmp_path):
    agent = speak(sample=0.05)
    agent.say("hold", id=1, count=2)
    agent.say("ping", n=7)
    agent.say("nonsense")
    agent.write(b"[]\n")
    warm = {"env": dict(os.environ), "cwd": str(tmp_path)}
    agent.say("warm", key="cold", argv=["/bin/false"], **warm)
    argv = [sys.executable, str(ZYGOTE), str(BOOTSTRAP), "json"]
    agent.say("warm", key="json", argv=argv, **warm)
    agent.wait("warmed", key="json")
    agent.start("ends", "print('on its way'); raise SystemExit(3)")
    agent.start("absent", argv=["/nonexistent"])
    agent.start("stays", "import time; print('up'); time.sleep(100)")
    agent.says("stays", "up")
    agent.wait("usage")
    agent.wait("exited", process="ends")
    agent.wait("cooled", key="cold")
    agent.say("signal", process="stays", signal=signal.SIGKILL)
    agent.wait("exited", process="stays")
    for event in agent.events:
        messages.check(event, messages.EVENTS)
    assert {event["type"] for event in agent.events} == set(messages.EVENTS)
    ends = {event["process"]: event for event in agent.all("exited")}
    assert (ends["ends"]["code"], ends["stays"]["signal"]) == (3, signal.SIGKILL)
    assert ends["absent"]["error"]
    assert [event["command"] for event in agent.all("refused")] == ["nonsense", None]
