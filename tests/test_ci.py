"""Continuous integration runs what you run after you cloned the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKE = """#!/bin/sh
pwd; echo "$@"; echo "3 failed"
exit 2
"""


@pytest.mark.slow
def test_the_tests_run_in_a_clone_of_the_repositorys_name(tmp_path):
    repository = tmp_path / "a folder of another name"
    shutil.copytree(ROOT / ".ci", repository / ".ci")
    identity = ["-c", "user.name=a", "-c", "user.email=b"]
    for words in (["init"], ["add", "."], [*identity, "commit", "--message=c"]):
        subprocess.run(["git", *words], cwd=repository, stdout=subprocess.DEVNULL, check=True)
    make = tmp_path / "bin" / "make"
    make.parent.mkdir()
    make.write_text(MAKE)
    make.chmod(0o755)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {"PATH": f"{make.parent}:{os.environ['PATH']}", "TMPDIR": str(temporary)}
    done = subprocess.run(
        [repository / ".ci" / "run"],
        cwd="/",
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    folder, asked, said = done.stdout.splitlines()
    assert (folder.rpartition("/")[2], asked, said) == ("mwmagic", "test", "3 failed")
    assert done.returncode == 2
    assert not [*temporary.iterdir()]
