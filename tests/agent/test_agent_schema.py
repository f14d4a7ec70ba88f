"""The agent speaks the schema of `mwmagic.agent.wire` and needs nothing but Python."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from speaker import AGENT, PYTHON, ZYGOTE

import mwmagic
from mwmagic.agent import wire
from mwmagic.model import messages

BOOTSTRAP = Path(mwmagic.__file__).parent / "worker" / "bootstrap.py"

OWN = {f"_mwmagic_agent.{name}" for name in ("agent", "fork_server.zygote", "machine", "ports")}
"""Its own package, as the first of its files names it."""

MODULES = sorted(AGENT.parent.rglob("*.py"))

FOREIGN = """
import sys
sys.argv[1:] = []
code = open(FILE).read().replace("Agent(*sys.argv[1:]).run()", "")
exec(compile(code, FILE, "exec"), {"__file__": FILE})
import _mwmagic_agent.agent, _mwmagic_agent.fork_server.zygote
print(sorted(name for name, module in sys.modules.items()
             if "site-packages" in str(getattr(module, "__file__", "")) or
             name.partition(".")[0] == "mwmagic"))
"""


def test_the_agent_and_the_zygote_alone_load_nothing_foreign():
    code = FOREIGN.replace("FILE", repr(str(AGENT)))
    done = subprocess.run([*PYTHON, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_both_sides_read_one_schema():
    assert messages.COMMANDS is wire.COMMANDS
    assert messages.EVENTS is wire.EVENTS
    assert (messages.VERSION, messages.encode) == (wire.VERSION, wire.encode)


def test_it_runs_as_a_directory_and_as_an_archive_too(speak, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "agent"), "zip", AGENT.parent)
    for program in (AGENT.parent, archive):
        assert speak(program=program).hello["version"] == wire.VERSION


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.name)
def test_it_imports_the_standard_library_only(file):
    nodes = list(ast.walk(ast.parse(file.read_text())))
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    inside = len(file.relative_to(AGENT.parent).parts)
    assert all(node.level <= inside for node in froms)
    imported = {node.module for node in froms if not node.level} - OWN
    imported |= {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    assert {name.partition(".")[0] for name in imported} <= {*sys.stdlib_module_names}
    assert not [node for node in nodes if isinstance(node, ast.Name) and node.id == "__import__"]


SPEAKING = """
import os, socket
with socket.socket(fileno=int(os.environ["MWMAGIC_LINE"])) as line:
    line.send(b"hello")
"""


def upgrade(agent, argv, packages):
    """Have an agent keep a process that began before something was installed."""
    packages.mkdir()
    env = {**os.environ, "PYTHONPATH": str(packages)}
    agent.say("warm", key="old", argv=argv, env=env, cwd="/")
    agent.wait("warmed", key="old")
    (packages / "pack-1.dist-info").mkdir()
    agent.start("stale", "", zygote="old")
    agent.wait("stale", key="old")


def test_every_event_of_a_working_agent_is_in_the_schema(speak, tmp_path):
    agent = speak(sample=0.05)
    agent.say("hold", id=1, count=2)
    agent.say("ping", n=7, until=None)
    [port, _] = agent.wait("held")["ports"]
    agent.say("listen", id=5, port=port, word="w")
    agent.say("reach", id=6, targets=[[f"127.0.0.1:{port}", "w"]], within=10)
    agent.say("find", id=7, names=["json"], env=dict(os.environ))
    agent.wait("reached")
    agent.wait("found")
    agent.say("nonsense")
    agent.write(b"[]\n")
    warm = {"env": dict(os.environ), "cwd": str(tmp_path)}
    agent.say("warm", key="cold", argv=["/bin/false"], **warm)
    argv = [sys.executable, *ZYGOTE, str(BOOTSTRAP), "json"]
    agent.say("warm", key="json", argv=argv, **warm)
    agent.wait("warmed", key="json")
    upgrade(agent, argv, tmp_path / "site-packages")
    agent.start("ends", "print('on its way'); raise SystemExit(3)")
    agent.start("full", "print('no space')", log="/dev/full")
    agent.wait("unwritten", process="full")
    agent.start("absent", argv=["/nonexistent"])
    agent.start("stays", "import time; print('up'); time.sleep(600)")
    agent.says("stays", "up")
    agent.start("speaks", SPEAKING)
    agent.wait("exited", process="speaks", code=0)
    agent.say("fetch", id=2, path=str(agent.log("stays")), offset=0, bytes=2)
    agent.say("put", id=4, path=str(tmp_path / "brought" / "a"), offset=0, data=wire.packed(b"b"))
    agent.wait("stored", id=4)
    agent.say("list", id=5, path=str(tmp_path / "brought"))
    agent.wait("listed", id=5)
    assert (tmp_path / "brought" / "a").read_text() == "b"
    assert (tmp_path / "brought").stat().st_mode & 0o777 == 0o700
    agent.say("look", id=3)
    agent.wait("looked", id=3)
    agent.wait("usage")
    agent.wait("exited", process="ends")
    agent.wait("cooled", key="cold")
    agent.say("signal", process="stays", signal=signal.SIGKILL)
    agent.wait("exited", process="stays")
    for event in agent.events:
        messages.check(event, messages.EVENTS)
    assert {event["type"] for event in agent.events} == set(messages.EVENTS) - {"need"}
    ends = {event["process"]: event for event in agent.all("exited")}
    assert (ends["ends"]["code"], ends["stays"]["signal"]) == (3, signal.SIGKILL)
    assert ends["absent"]["reason"] == wire.NOT_STARTED
    assert ends["ends"]["reason"] is ends["ends"]["error"] is None
    assert [event["command"] for event in agent.all("refused")] == ["nonsense", None]
