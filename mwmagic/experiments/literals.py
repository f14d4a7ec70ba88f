"""Parameters that the source itself gives a value: literals at the top level of a program."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .program import (
    MISSING,
    Parameter,
    Program,
    again,
    assigned,
    kind_of,
    last_name,
    literal,
    span,
    statement_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["attributes", "classes", "entries", "names"]

_CHANGING = {"clear", "pop", "popitem", "setdefault", "update"}
"""The methods of a dict that change it."""

_PLAIN_BASES = {"BaseModel", "NamedTuple", "Namespace", "Protocol", "TypedDict", "object"}
"""A class that derives from these alone holds values; one of Keras's layers is no configuration."""


def names(program: Program) -> Iterator[Parameter]:
    """Find ``units = 64`` at the top level."""
    for name, node in assigned(program.top):
        value = literal(node)
        if value is MISSING or name.startswith("__"):
            continue
        twice = again(program.globals.get(name, []), statement_of(program, node).lineno)
        yield Parameter(name, value, node.lineno, kind_of(value), span(node), refusal=twice)


def entries(program: Program) -> Iterator[Parameter]:
    """Find the entries of ``config = {"lr": 0.1}``, ``dict(lr=0.1)`` or ``Namespace(lr=0.1)``."""
    for name, node in assigned(program.top):
        entries = list(_items(node, name))
        if not entries:
            continue
        twice = again(program.globals.get(name, []), statement_of(program, node).lineno)
        changes = list(_changes(program, name))
        for path, value in entries:
            known = literal(value)
            refusal = twice or _changed(path, value, changes)
            where = (value.lineno, kind_of(known), span(value))
            yield Parameter(".".join(path), known, *where, refusal=refusal)


_MAPPINGS = {"ConfigDict", "Namespace", "SimpleNamespace", "dict"}


def _items(node: ast.expr, *path: str) -> Iterator[tuple[tuple[str, ...], ast.expr]]:
    """Yield the literals in a literal mapping, each with its path."""
    pairs: list[tuple[str, ast.expr]] = []
    if isinstance(node, ast.Dict):
        for named, given in zip(node.keys, node.values, strict=True):
            if named is None:  # `**others`, which may replace what stands before it
                pairs.clear()
            elif isinstance(named, ast.Constant) and isinstance(named.value, str):
                pairs.append((named.value, given))
    elif isinstance(node, ast.Call) and last_name(node.func) in _MAPPINGS:
        if len(node.args) == 1 and not node.keywords:
            yield from _items(node.args[0], *path)
            return
        if not node.args:
            pairs = [(one.arg, one.value) for one in node.keywords if one.arg]
    for key, value in dict(pairs).items():
        if literal(value) is not MISSING:
            yield (*path, key), value
        else:
            yield from _items(value, *path, key)


def _changes(program: Program, name: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield what the program writes below a name: the path as far as it is known, and the line."""
    for node in program.nodes:
        if isinstance(node, ast.Subscript | ast.Attribute):
            if isinstance(node.ctx, ast.Store | ast.Del):
                path = _path(node)
                parent = program.parents[node]
                if path and path[0] == name and not isinstance(parent, ast.AugAssign):
                    yield path, node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            path = _path(node.func.value)
            if node.func.attr in _CHANGING and path and path[0] == name:
                keys = [one.arg for one in node.keywords if one.arg]
                if keys and not node.args and len(keys) == len(node.keywords):
                    for key in keys:
                        yield (*path, key), node.lineno
                else:
                    yield path, node.lineno


def _path(node: ast.expr) -> tuple[str, ...]:
    """Return the names of ``config["opt"].lr``, up to a key that is computed."""
    steps: list[str | None] = []
    while isinstance(node, ast.Subscript | ast.Attribute):
        if isinstance(node, ast.Attribute):
            steps.append(node.attr)
        else:
            key = node.slice
            text = key.value if isinstance(key, ast.Constant) else None
            steps.append(text if isinstance(text, str) else None)
        node = node.value
    if not isinstance(node, ast.Name):
        return ()
    path = [node.id]
    for step in reversed(steps):
        if step is None:
            break
        path.append(step)
    return tuple(path)


def _changed(
    path: tuple[str, ...], node: ast.AST, changes: list[tuple[tuple[str, ...], int]]
) -> str:
    """Say where the program replaces an entry; empty if it does not."""
    for other, line in changes:
        if path[: len(other)] == other and line != getattr(node, "lineno", 0):
            return f"it is assigned again in line {line}"
    return ""


def attributes(program: Program) -> Iterator[Parameter]:
    """Find ``config.lr = 0.1`` at the top level."""
    for node in program.top:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target = node.targets[0]
        if not isinstance(target, ast.Attribute | ast.Subscript) or _imported(program, target):
            continue
        path, value = _path(target), literal(node.value)
        if value is MISSING or len(path) < 2 or not _whole(target, path):  # noqa: PLR2004 - a.b
            continue
        refusal = _changed(path, node, list(_changes(program, path[0])))
        where = (node.lineno, kind_of(value), span(node.value))
        yield Parameter(".".join(path), value, *where, refusal=refusal)


def _whole(node: ast.expr, path: tuple[str, ...]) -> bool:
    """Return whether a path holds all the steps of an expression."""
    steps = 1
    while isinstance(node, ast.Subscript | ast.Attribute):
        steps, node = steps + 1, node.value
    return steps == len(path)


def _imported(program: Program, node: ast.expr) -> bool:
    """Return whether something belongs to what the program has imported, or to `os.environ`."""
    first = _path(node)[:1]
    bound = program.globals.get(first[0], []) if first else []
    return not bound or any(isinstance(one, ast.Import | ast.ImportFrom) for one in bound)


def classes(program: Program) -> Iterator[Parameter]:
    """Find ``class Config: lr = 0.1``, also a dataclass's fields."""
    for node in program.top:
        if not isinstance(node, ast.ClassDef) or not _holds_values(node):
            continue
        fields = list(assigned(node.body))
        order = [
            one.target.id
            for one in node.body
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        ]
        others = {node.name, *_instances(program, node.name)}
        changes = [
            ((node.name, *path[1:]), line)
            for other in others
            for path, line in _changes(program, other)
        ]
        calls = list(program.calls(node.name))
        twice = again(program.globals.get(node.name, []), node.lineno)
        for name, given in fields:
            default = _default(given)
            value = literal(default)
            if value is MISSING or name.startswith("__"):
                continue
            last = [one for one, _ in fields].count(name) > 1
            refusal = (
                twice
                or ("it is assigned again in the class" if last else "")
                or _changed((node.name, name), default, changes)
                or _passed(calls, name, order)
            )
            where = (default.lineno, kind_of(value), span(default))
            yield Parameter(f"{node.name}.{name}", value, *where, refusal=refusal)


def _holds_values(node: ast.ClassDef) -> bool:
    return all(last_name(one) in _PLAIN_BASES for one in node.bases)


def _default(node: ast.expr) -> ast.expr:
    """Return the default in ``field(default=0.1)``."""
    if isinstance(node, ast.Call) and last_name(node.func) in ("field", "Field"):
        for one in node.keywords:
            if one.arg == "default":
                return one.value
    return node


def _instances(program: Program, name: str) -> set[str]:
    """Return the names that an instance of a class, or the class itself, is assigned to."""
    return {
        one.id
        for node in program.nodes
        if isinstance(node, ast.Assign)
        and name in (last_name(node.value), last_name(getattr(node.value, "func", node.value)))
        for one in node.targets
        if isinstance(one, ast.Name)
    }


def _passed(calls: list[ast.Call], name: str, order: list[str]) -> str:
    """Say where an instance is made with another value than the default."""
    for call in calls:
        named = any(one.arg in (name, None) for one in call.keywords)
        if named or (name in order and order.index(name) < len(call.args)):
            return f"it is given in line {call.lineno}"
    return ""
