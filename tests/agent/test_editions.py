"""A worker is not forked from a process that has imported packages as they were before."""

from __future__ import annotations

import os

import pytest
from warming import run, warm

LOOK = "import pack; print(pack.VERSION)"


def install(folder, version, name="pack"):
    """Install a package as pip does: its files are new ones."""
    new = folder / f"new-{name}"
    new.mkdir()
    (new / "__init__.py").write_text(f"VERSION = {version}\n")
    (folder / name).exists() and remove(folder, name)
    new.rename(folder / name)


def remove(folder, name="pack"):
    (folder / name).rename(folder.parent / f"{name}-{os.urandom(4).hex()}")


@pytest.fixture
def packages(tmp_path):
    """A folder with an installed package."""
    folder = tmp_path / "lib" / "site-packages"
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


def test_another_package_changes_nothing(agent, bootstrap, packages, ready):
    install(packages, 1, "other")
    assert printed(agent, bootstrap, packages, "a") == ("1\n", True)
    assert not agent.all("stale")


def test_an_heir_remembers_what_the_first_one_imported(agent, bootstrap, packages, ready):
    install(packages, 1, "other")
    agent.say("renew", key="heir", elder="k", ahead=["other"])
    agent.wait("warmed", key="heir")
    assert printed(agent, bootstrap, packages, "a", key="heir") == ("1\n", True)
    install(packages, 2)
    assert printed(agent, bootstrap, packages, "b", key="heir") == ("2\n", False)
    install(packages, 2, "other")
    agent.say("renew", key="next", elder="k", ahead=["other"])
    agent.wait("warmed", key="next")
    assert printed(agent, bootstrap, packages, "c", key="next") == ("2\n", False)
    assert [event["key"] for event in agent.all("stale")] == ["heir", "next"]
