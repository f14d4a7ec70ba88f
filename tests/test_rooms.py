"""The rooms of the package: which imports which, and the maps of them."""

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mwmagic"
MAP = ROOT / "CONTRIBUTING.md"

PURE = {"errors", "model"}
READERS = PURE | {"experiments", "gang", "frameworks", "logs", "diagnosis", "words", "record"}

MAY_IMPORT = {
    "errors": set(),
    "model": {"errors", "agent"},
    "gang": PURE,
    "recovery": {"model"},
    "hooks": PURE,
    "recovery/task": PURE | {"hooks"},
    "cells": {"model", "recovery"},
    "frameworks": PURE,
    "agent": set(),
    "experiments": PURE | {"record"},
    "record": PURE,
    "logs": PURE | {"frameworks"},
    "diagnosis": PURE | {"gang", "frameworks", "logs"},
    "slowness": PURE,
    "words": PURE | {"diagnosis", "experiments", "record"},
    "repairs": PURE | {"hooks", "recovery/task"},
    "worker": PURE | {"frameworks", "hooks", "recovery/task", "repairs"},
    "keras": {"model", "repairs"},
    "engines": PURE | {"agent"},
    "supervisor": READERS | {"cells", "agent", "engines", "slowness", "worker"},
    "client": READERS | {"worker"},
    "dashboard": READERS | {"client"},
    "magics": READERS | {"client", "dashboard"},
    "cli": READERS | {"client", "dashboard"},
}
"""What each room may import, also for types alone; `mwmagic/__init__.py` names them lazily.

The model knows of the agent only what both ends of its pipe share.
"""


def room(module):
    """Return the room of a module such as ``mwmagic.model.cluster``."""
    inner = [name for name in MAY_IMPORT if "/" in name]
    path = module.replace(".", "/").removeprefix("mwmagic/")
    return next((one for one in inner if f"{path}/".startswith(f"{one}/")), path.split("/")[0])


@cache
def modules():
    """Return the modules by their names."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name != "mwmagic":
            found[name] = path
    return found


def targets(module, path, node):
    """Return the modules that an import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        own = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
        base = ".".join([*own[: len(own) - node.level + 1], *filter(None, [node.module])])
    inner = [f"{base}.{alias.name}" for alias in node.names]
    return [name if name in modules() else base for name in inner]


def for_types(tree):
    """Return the import statements that only type checkers see."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    typed = [node for node in blocks if getattr(node.test, "id", "") == "TYPE_CHECKING"]
    return {statement for node in typed for statement in ast.walk(node)}


@cache
def imports(module, *, types=True):
    """Return the modules of the package that a module imports anywhere, for types too or not."""
    path = modules()[module]
    tree = ast.parse(path.read_text())
    left_out = set() if types else for_types(tree)
    statements = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and node not in left_out
    ]
    named = {name for node in statements for name in targets(module, path, node)}
    return sorted(name for name in named if name in modules() and name != module)


def test_the_rooms_are_those_of_the_table():
    assert {room(name) for name in modules()} == set(MAY_IMPORT)


@pytest.mark.parametrize("name", sorted(MAY_IMPORT))
def test_a_room_imports_only_what_it_may(name):
    own = [module for module in modules() if room(module) == name]
    wrong = {
        f"{module} -> {other}"
        for module in own
        for other in imports(module)
        if room(other) not in MAY_IMPORT[name] | {name}
    }
    assert not wrong


def test_the_arrows_between_rooms_go_one_way():
    assert list(TopologicalSorter(MAY_IMPORT).static_order())


def test_no_modules_import_each_other_in_a_circle():
    graph = {name: imports(name, types=False) for name in modules()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_map_names_every_room():
    listed = re.findall(r"^\| `([a-z_/]+?)(?:/|\.py)` \|", MAP.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(MAY_IMPORT)


def rooms_map(path):
    """Return what the `__init__` modules of a module's folders say of what is in them."""
    folders = [one / "__init__.py" for one in path.parents if PACKAGE in one.parents]
    texts = [one.read_text() for one in folders if one.exists()]
    return "\n".join(filter(None, map(ast.get_docstring, map(ast.parse, texts))))


def test_the_map_of_a_room_names_every_module():
    missing = [
        name
        for name, path in modules().items()
        if path.stem not in ("__init__", "__main__")
        and name.count(".") > 1
        and f"`{path.stem}`" not in rooms_map(path)
    ]
    assert not missing, "name each in the docstring of its room's __init__.py"


SHARED_NAMES = {"LINE", "REPAIRS", "SCRATCH", "T", "TYPE_CHECKING"}
"""Each has one meaning in all of its modules: some are aliases, the others are idioms."""


def public_names(tree):
    """Yield the classes and constants that a module defines for others."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Name) and target.id[0].isupper():
                yield target.id
        if isinstance(node, ast.AnnAssign) and node.target.id[0].isupper():
            yield node.target.id


def test_a_name_has_one_meaning():
    homes = {}
    for module, path in modules().items():
        for name in public_names(ast.parse(path.read_text())):
            if not name.startswith("_"):
                homes.setdefault(name, []).append(module)
    twice = {name: found for name, found in homes.items() if len(found) > 1}
    assert not {name: found for name, found in twice.items() if name not in SHARED_NAMES}
