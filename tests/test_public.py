"""What the package shows, and what importing it costs."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest
from processes import printed

import mwmagic
from mwmagic import errors

PUBLIC = {"Cluster", "ClusterSpec", "Run", "Task", "__version__", "clusters", "runs", "scale"}
PUBLIC |= {"sweeps"}

ROOMS = {
    "worker": {
        *("LayoutReport", "cluster_size", "is_chief", "layout_report", "params", "report"),
        *("this_task", "write_path"),
    },
    "words": {"explain", "headline", "remark"},
    "engines": {
        *("ENGINES", "Engine", "GROUP", "Host", "PreparingEngine", "agent_command"),
        *("engine_for", "engine_names"),
    },
}
"""What each public room shows; `mwmagic.keras` shows nothing."""

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")]
IMPORT = re.compile(r"from mwmagic(?:\.([\w.]+))? import ([\w, ]+)")


def test_what_users_import_is_at_the_top():
    assert set(mwmagic.__all__) == PUBLIC | set(errors.__all__)
    assert mwmagic.WorkerFailed is errors.WorkerFailed


@pytest.mark.parametrize("room", ROOMS)
def test_what_the_public_rooms_show(room):
    assert set(import_module(f"mwmagic.{room}").__all__) == ROOMS[room]


def test_pages_and_notebooks_import_only_what_is_public():
    allowed = {"": set(mwmagic.__all__), **ROOMS}
    found = [one for path in PAGES for one in IMPORT.findall(path.read_text())]
    wrong = [(room, names) for room, names in found if set(names.split(", ")) - allowed[room]]
    assert found
    assert not wrong


def test_errors_import_nothing_of_the_package():
    body = ast.walk(ast.parse(Path(errors.__file__).read_text()))
    modules = [node.module for node in body if isinstance(node, ast.ImportFrom)]
    assert modules == ["__future__"]


def test_what_is_inside_a_cluster_is_not_public():
    public = {name for name in dir(mwmagic.Cluster) if not name.startswith("_")}
    assert not public & {"config", "listen", "serve", "warm", "expect_end"}


@pytest.mark.parametrize("name", mwmagic.__all__)
def test_every_public_name_is_there_and_documented(name):
    member = getattr(mwmagic, name)
    assert name == "__version__" or member.__doc__
    assert name in dir(mwmagic)


RETURNED = {"Live", "PreparingEngine", "Record"}
"""Classes that users meet without importing them."""

SECTION = re.compile(r"^(Parameters|Returns|Yields|Raises)\n-+$", re.MULTILINE)


def test_only_what_users_read_has_sections_of_parameters():
    users = {*mwmagic.__all__, *RETURNED, *(name for names in ROOMS.values() for name in names)}
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    wrong = [
        f"{path.stem}.{one.name}"
        for path in sorted((ROOT / "mwmagic").rglob("*.py"))
        for top in ast.parse(path.read_text()).body
        if getattr(top, "name", "") not in users
        for one in ast.walk(top)
        if isinstance(one, kinds) and SECTION.search(ast.get_docstring(one) or "")
    ]
    assert not wrong, "a sentence suffices: types and names are in the signature"


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = mwmagic.Nothing


def modules_after(code):
    code += "\nimport sys; print(*sys.modules)"
    return set(printed(code).split())


HEAVY = {"IPython", "tensorflow", "keras", "jax", "numpy", "ipywidgets", "anywidget", "traitlets"}


def test_importing_the_package_imports_next_to_nothing():
    modules = modules_after("import mwmagic")
    assert not modules & (HEAVY | {"psutil", "asyncio", "subprocess", "socket", "argparse"})
    assert {name for name in modules if name.startswith("mwmagic.")} <= {
        "mwmagic.errors",
    }


def test_scripts_and_the_command_line_need_no_notebook_and_no_framework():
    assert not modules_after("from mwmagic import Cluster, Run, runs; import mwmagic.cli") & HEAVY


def test_the_supervisor_needs_none_either():
    assert not modules_after("import mwmagic.supervisor.__main__") & HEAVY
