"""The code of this package, brought to a machine that does not have it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from mwmagic.engines import CODE, Host, agent_command, code_digest
from mwmagic.engines.channel import Channel
from mwmagic.errors import SupervisorError
from mwmagic.supervisor.preparation import warm_command, worker_command

pytestmark = pytest.mark.usefixtures("nothing_survives")


def command(folder):
    """Return an agent's command where this checkout is in another folder, or in none."""
    words = agent_command(sys.executable)
    assert words[-1] == str(CODE)
    return (*words[:-1], str(folder))


async def package(folder, home, **env):
    """Run a worker and a warm process under an agent, and return where its code is."""
    env = {"HOME": str(home), "PATH": os.environ["PATH"], **env}
    channel = await Channel.open(Host("there", "10.0.0.1", command(folder), env=env))
    try:
        events = asyncio.Queue()
        channel.listener = events.put_nowait
        argv = [*worker_command(channel), str(home / "main.py")]
        rest = {"report": None, "zygote": None, "credit": 9999, "grace": 0.0, "cwd": str(home)}
        rest["attributes"] = {}
        log = str(home / "log")
        channel.send("start", process="a", argv=argv, env={"A": "b"}, log=log, **rest)
        argv = warm_command(channel, ["json"])
        channel.send("warm", key="k", argv=argv, env={}, cwd="/")
        ends = {}
        while not {"exited", "warmed"} <= set(ends):
            event = await events.get()
            ends[event["type"]] = event
        assert ends["exited"]["code"] == 0
        return channel.package
    finally:
        await channel.close()


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 120))


def tried(folder, home, **env):
    """Start an agent, and return where its code is and what a worker prints there."""
    (home / "main.py").write_text("import mwmagic, os; print(mwmagic.__file__, os.getenv('OWN'))")
    (home / "log").unlink(missing_ok=True)
    found = run(package(folder, home, **env))
    return found, (home / "log").read_text().split()


@pytest.mark.slow
def test_code_on_a_shared_disk_is_used_there(tmp_path):
    found, said = tried(CODE, tmp_path, OWN="own")
    assert found == str(CODE)
    assert said == [str(CODE / "__init__.py"), "own"]
    assert not (tmp_path / ".cache").exists()


@pytest.mark.slow
def test_code_that_a_machine_lacks_is_brought_once(tmp_path):
    kept = tmp_path / ".cache" / "mwmagic" / f"code-{code_digest()}" / "mwmagic"
    found, said = tried("/nowhere", tmp_path)
    assert found == str(kept)
    assert said[0] == str(kept / "__init__.py")
    assert kept.parents[1].stat().st_mode & 0o777 == 0o700
    changed = kept.stat().st_mtime_ns
    assert tried("/nowhere", tmp_path)[0] == found
    assert kept.stat().st_mtime_ns == changed
    assert list(kept.parents[1].iterdir()) == [kept.parent]


@pytest.mark.slow
def test_another_version_in_the_same_folder_is_not_used(tmp_path):
    other = tmp_path / "mwmagic"
    shutil.copytree(CODE, other, ignore=shutil.ignore_patterns("__pycache__"))
    (other / "errors.py").write_text("raise SystemExit('another version')")
    assert tried(other, tmp_path)[0] != str(other)


@pytest.mark.slow
def test_a_damaged_copy_is_not_used(tmp_path):
    found, _ = tried("/nowhere", tmp_path)
    Path(found, "errors.py").write_text("raise SystemExit('damaged')")
    assert tried("/nowhere", tmp_path) == (found, [f"{found}/__init__.py", "None"])


@pytest.mark.slow
def test_without_a_home_the_code_is_brought_elsewhere(tmp_path):
    found, _ = tried("/nowhere", tmp_path, XDG_CACHE_HOME="/dev/null", TMPDIR=str(tmp_path))
    assert Path(found).is_relative_to(tmp_path)


def test_a_python_that_is_too_old_says_so(tmp_path):
    old = tmp_path / "old.py"
    old.write_text(
        "import sys\nsys.version_info, sys.version = (3, 8, 2), '3.8.2 (default)'\n"
        "program = sys.argv[sys.argv.index('-c') + 1]\n"
        "sys.argv = ['-c', 'digest', 'folder']\nexec(program)"
    )
    words = (sys.executable, str(old), *agent_command("python3"))
    with pytest.raises(SupervisorError, match=r"is Python 3.8.2; mwmagic needs 3.10 or later"):
        run(Channel.open(Host("there", "10.0.0.1", words)))
