"""What a run came from."""

from __future__ import annotations

import os
import platform
import subprocess
import time

import pytest
from processes import printed
from pythons import executable

from mwmagic import __version__
from mwmagic.record import provenance
from mwmagic.record.provenance import commit, versions


def git(folder, *args):
    names = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    subprocess.run(["git", *names, *args], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "--quiet")
    return tmp_path


def test_versions_are_those_of_the_packages():
    found = versions(["numpy", "no_such_module"])
    assert found["python"] == platform.python_version()
    assert found["mwmagic"] == __version__
    assert found["numpy"][0].isdecimal()
    assert found["no_such_module"] is None


def test_nothing_is_imported_for_its_version():
    code = (
        "import sys; from mwmagic.record.provenance import versions; versions(['tensorflow', "
        "'keras', 'torch', 'jax']); print({'tensorflow', 'keras', 'torch', 'jax'} & {*sys.modules})"
    )
    assert printed(code) == "set()\n"


def test_a_commit_is_named_and_compared_with_the_files(repository):
    assert commit(repository) == {"commit": None, "dirty": False}
    (repository / "main.py").write_text("one")
    git(repository, "add", "main.py")
    git(repository, "commit", "--quiet", "-m", "one")
    name = commit(repository)["commit"]
    assert len(name) == 40
    (repository / "new.py").write_text("untracked")
    assert commit(repository) == {"commit": name, "dirty": False}
    (repository / "main.py").write_text("two")
    (repository / "sub").mkdir()
    assert commit(repository / "sub") == {"commit": name, "dirty": True}


def test_without_repository_or_git_there_is_no_commit(tmp_path, monkeypatch):
    assert commit(tmp_path) is None
    assert commit(tmp_path / "gone") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit(tmp_path) is None


@pytest.mark.slow
def test_a_git_that_hangs_is_not_waited_for(tmp_path, monkeypatch):
    slow = tmp_path / "git"
    executable(slow, "import time\ntime.sleep(60)\n")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(provenance, "GIT_SECONDS", 0.3)
    began = time.monotonic()
    assert commit(tmp_path) is None
    assert time.monotonic() - began < 30
