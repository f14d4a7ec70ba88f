"""The modules that a worker has imported itself, among those that it was forked with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mwmagic.worker import bootstrap, warm


@pytest.fixture
def forked(monkeypatch):
    """Take what is imported now for what this process was forked with."""
    monkeypatch.setattr(warm, "_NEWEST", set())
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return warm.remember_modules


def put(*names):
    for name in names:
        sys.modules.pop(name, None)
        sys.modules[name] = ModuleType(name)
    return list(names)


def test_a_process_that_was_not_forked_has_imported_all_itself(forked):
    assert warm.imported() == sys.modules
    assert list(warm.imported()) == list(sys.modules)


@pytest.mark.parametrize("count", [0, 1, warm.FIRST_COUNT, 5 * warm.FIRST_COUNT])
def test_a_fork_has_imported_what_came_later(forked, count):
    forked()
    names = put(*(f"new_{number}" for number in range(count)))
    assert list(warm.imported()) == names


def test_what_is_imported_again_is_new(forked):
    put("old", "newest")
    forked()
    assert put("old", "new") == list(warm.imported())
    del sys.modules["newest"]  # then nothing tells old ones from new ones
    assert {"old", "new", "sys"} < set(warm.imported())


ENDING = """
import sys

class Said:
    def __init__(self, text):
        self.text = text
    def __del__(self):
        sys.stdout.write(self.text + " ends\\n")

here = Said("main")
"""


def test_what_modules_hold_ends_with_a_fork(tmp_path):
    own, installed = tmp_path / "own", tmp_path / "lib" / "site-packages"
    own.mkdir()
    installed.mkdir(parents=True)
    for folder, name in ((own, "before"), (own, "after"), (installed, "theirs")):
        (folder / f"{name}.py").write_text(ENDING.replace('"main"', f'"{name}"'))
    paths = [str(own), str(installed), str(Path(bootstrap.__file__).parents[2])]
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nsys.path += {paths}\n"
        "import before, theirs\nfrom mwmagic.worker import modules\nmodules.remember()\n"
    )
    (tmp_path / "main.py").write_text(ENDING + "import after\n")
    done = subprocess.run(
        [sys.executable, bootstrap.__file__, "main.py"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert sorted(done.stdout.splitlines()) == [
        "after ends",
        "before ends",
        "main ends",
        "theirs ends",
    ]
