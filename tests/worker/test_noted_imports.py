"""What a run notes of its imports, for a process that imports it ahead of the next."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mwmagic.record.imports import MODULE_COUNT, latest_imports, new_imports
from mwmagic.record.paths import RunPaths, runs_folder
from mwmagic.worker import bootstrap


@pytest.fixture
def noted(tmp_path, monkeypatch):
    """Run code as a worker would; return the modules that it noted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MWMAGIC_IMPORTS", str(tmp_path / "imports.txt"))

    def run(code, *, ends_well=False):
        (tmp_path / "main.py").write_text(code)
        command = [sys.executable, bootstrap.__file__, "main.py"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert not ends_well or done.returncode == 0, done.stderr
        path = tmp_path / "imports.txt"
        return path.read_text().split() if path.exists() else done.stderr

    return run


def test_packages_that_the_code_names_are_noted_with_their_parts(noted):
    assert noted("import psutil, json\n") == ["psutil"]
    assert noted("import json; import psutil; print(1)\n") == ["psutil"]
    assert noted("def f():\n    from pygments.token import Token\nf()\n") == [
        "pygments",
        "pygments.token",
    ]


def test_what_changes_keras_is_not_noted(noted):
    assert noted("import mwmagic, mwmagic.errors, psutil") == ["psutil"]


def test_of_the_users_modules_what_they_import_is_noted(noted, tmp_path):
    (tmp_path / "setup_data.py").write_text("import psutil as p  # comment\n")
    (tmp_path / "unused.py").write_text("import pygments\n")
    assert noted("import setup_data\nimport os\n") == ["psutil"]


@pytest.mark.parametrize(
    "end", ["1 / 0", "raise SystemExit(3)", "import sys; sys.modules['a'] = 1"]
)
def test_it_is_noted_however_the_code_ends(noted, end):
    assert noted(f"import psutil\n{end}") == ["psutil"]


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("os.environ['A'] = '1'", []),
        ('os.environ["A"]="1"', []),
        ("os.environ.update(A='1')", []),
        ("os.environ.setdefault('A', '1')", []),
        ("os.environ['A'] = '1'; del os.environ['A']", []),
        ("os.putenv('A', '1')", []),
        ("os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'", ["psutil"]),
        ("assert os.environ['PATH'] != 'a'", ["psutil"]),
        ("if os.environ['PATH'] == 'a': pass", ["psutil"]),
        ("size = os.environ.get('A')", ["psutil"]),
        ("environment = 'A'", ["psutil"]),
    ],
)
def test_where_code_sets_variables_that_a_module_may_read_nothing_is_noted(noted, code, names):
    assert noted(f"import os\n{code}\nimport psutil") == names


@pytest.fixture
def forked(tmp_path, monkeypatch):
    """Have workers behave as forks of a process that has imported a module."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, psutil\n"
        f"sys.path.append({str(Path(bootstrap.__file__).parents[2])!r})\n"
        "from mwmagic.worker import imports\n"
        "imports.remember()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def test_what_a_fork_imports_itself_is_marked(noted, forked):
    assert noted("import psutil, pygments") == ["psutil", "+pygments"]


def test_a_module_in_a_folder_that_the_code_adds_is_not_noted(noted, forked, tmp_path):
    folder = tmp_path / "drive" / "site-packages"
    (folder / "own_package").mkdir(parents=True)
    (folder / "own_package" / "__init__.py").write_text("")
    (folder / "own_module.py").write_text("")
    code = (
        f"import sys\nsys.path.insert(0, {str(folder)!r})\nimport own_package, own_module, pygments"
    )
    assert noted(code) == ["psutil", "+pygments"]


def test_a_fork_notes_nothing(noted):
    code = "import os\nif os.fork():\n    os.wait()\n    os._exit(0)\nimport psutil"
    assert noted(code) == ""


def test_odd_modules_do_not_keep_a_program_from_ending(noted):
    code = """
import sys, psutil
class Odd:
    __slots__ = ()
    __file__ = property(lambda _: 1 / 0)
sys.modules["odd"] = Odd()
sys.modules["none"] = None
"""
    assert noted(code, ends_well=True) == ["psutil"]


def test_a_record_that_is_gone_ends_nothing(noted, monkeypatch):
    monkeypatch.setenv("MWMAGIC_IMPORTS", "/nowhere/imports.txt")
    assert noted("import psutil\nprint('well')") == ""


def test_the_latest_run_that_noted_any_counts(tmp_path):
    assert latest_imports(tmp_path) == []
    for number, text in ((1, "one"), (2, "two\nnot a name\n\ntwo.more\n\xff"), (3, None)):
        folder = runs_folder(tmp_path) / f"{number:04d}-main"
        folder.mkdir(parents=True)
        if text is not None:
            RunPaths(folder).imports.write_text(text, encoding="latin-1")
    assert latest_imports(tmp_path) == ["two", "two.more"]
    RunPaths(folder).imports.write_text("a\n" * 9999)
    assert len(latest_imports(tmp_path)) == MODULE_COUNT


def test_what_was_new_to_a_run_is_known(tmp_path):
    assert new_imports(tmp_path) == []
    RunPaths(tmp_path).imports.write_text("one\n+two\n++three\n+not a name\n+four.more\n")
    assert new_imports(tmp_path) == ["two", "four.more"]
    folder = runs_folder(tmp_path) / "0001-main"
    folder.mkdir(parents=True)
    RunPaths(folder).imports.write_text("one\n+two\n")
    assert latest_imports(tmp_path) == ["one", "two"]
