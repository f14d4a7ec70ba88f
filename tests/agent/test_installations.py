"""A worker is not forked from a process that has begun before something was installed."""

from __future__ import annotations

import os
import sys

import pytest
from warming import run, warm

from mwmagic.agent.fork_server.imports import Installations

LOOK = "import pack; print(pack.VERSION)"


def install(folder, version, name="pack"):
    """Install a package as pip does, in place of another version."""
    remove(folder, name)
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(f"VERSION = {version}\n")
    (folder / f"{name}-{version}.dist-info").mkdir()


def remove(folder, name="pack"):
    """Remove a package as pip does."""
    for path in (folder / name, *folder.glob(f"{name}-*.dist-info")):
        if path.exists():
            path.rename(folder.parent / f"{path.name}-{os.urandom(4).hex()}")


@pytest.fixture
def packages(tmp_path):
    """A folder with an installed package; its path has another one's end in it."""
    folder = tmp_path / "my-packages" / "lib" / "site-packages"
    folder.mkdir(parents=True)
    install(folder, 1)
    return folder


@pytest.fixture
def ready(agent, bootstrap, packages):
    """Have an agent keep a warm process that has imported the package."""
    warm(agent, bootstrap, "pack", env={"PYTHONPATH": str(packages)})
    agent.wait("warmed", key="k")


def printed(agent, bootstrap, packages, name, **fields):
    env = {"PYTHONPATH": str(packages)}
    said = run(agent, bootstrap, name, LOOK, env=env, **fields)
    return said, agent.wait("started", process=name)["warm"]


def test_a_package_that_was_upgraded_is_the_new_one(agent, bootstrap, packages, ready):
    assert printed(agent, bootstrap, packages, "a") == ("1\n", True)
    install(packages, 2)
    assert printed(agent, bootstrap, packages, "b") == ("2\n", False)
    assert agent.all("stale") == [{"type": "stale", "key": "k"}]
    assert printed(agent, bootstrap, packages, "c") == ("2\n", False)
    assert not agent.all("cooled")
    warm(agent, bootstrap, "pack", key="next", env={"PYTHONPATH": str(packages)})
    agent.wait("warmed", key="next")
    assert printed(agent, bootstrap, packages, "d", key="next") == ("2\n", True)
    assert len(agent.all("stale")) == 1


def test_a_package_that_was_removed_is_missing(agent, bootstrap, packages, ready):
    remove(packages)
    said, warm = printed(agent, bootstrap, packages, "a")
    assert "No module named 'pack'" in said
    assert not warm


def test_one_that_is_upgraded_during_the_import_is_the_new_one(agent, bootstrap, packages):
    (packages / "slow.py").write_text(
        "import pathlib, time\n"
        "here = pathlib.Path(__file__).parent\n"
        "(here / 'begun').touch()\n"
        "while not (here / 'go').exists(): time.sleep(0.01)\n"
    )
    warm(agent, bootstrap, "pack", "slow", env={"PYTHONPATH": str(packages)})
    agent.until((packages / "begun").exists)
    install(packages, 2)
    (packages / "go").touch()
    agent.wait("warmed", key="k")
    assert printed(agent, bootstrap, packages, "a") == ("2\n", False)


def test_what_is_not_installed_changes_nothing(agent, bootstrap, packages, ready):
    (packages / "__pycache__").mkdir(exist_ok=True)
    (packages / "notes.txt").write_text("")
    assert printed(agent, bootstrap, packages, "a") == ("1\n", True)
    assert not agent.all("stale")


def test_every_folder_of_packages_is_looked_at(tmp_path, monkeypatch):
    first, second, missing = (tmp_path / name / "dist-packages" for name in "abc")
    for folder in (first, second):
        folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", ["", str(first), f"{second}/", str(missing), "/usr/lib"])
    for change in (
        lambda: install(first, 1),
        lambda: install(second, 1),
        lambda: remove(second),
        lambda: (missing.mkdir(parents=True), install(missing, 1)),
        lambda: (second / "link.pth").write_text("/somewhere"),
    ):
        known = Installations()
        assert not known.changed
        change()
        assert known.changed
