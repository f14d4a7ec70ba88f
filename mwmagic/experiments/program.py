"""A program's tree, as its parameters are looked for in it: names, and how often each is bound."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeGuard

__all__ = ["MISSING", "Parameter", "Program", "Way"]


class _Missing:
    """The default of a parameter that has none, or one that only running the program shows."""

    def __repr__(self) -> str:
        return "(required or computed)"


MISSING: Final = _Missing()
"""The value of a parameter that the program does not give one."""

Span = tuple[int, int, int, int]
"""First line, first byte in it, last line, and the byte after the last: as `ast` counts."""


@dataclass(frozen=True)
class Way:
    """How an argument is written on the command line."""

    flag: str
    """The option, as ``--lr``."""
    others: tuple[str, ...] = ()
    """The other words for it, as ``-l``."""
    joined: bool = False
    """Whether its value follows ``=`` in the same word."""
    on: str = ""
    off: str = ""
    """The words that make a flag true and false; empty if that is the default, or if it takes a
    value."""
    many: bool = False
    """Whether it takes several values as several words."""
    quoted: bool = False
    """Whether the program reads the value as Python does, so that a text that looks like a number
    needs quotes."""
    shortened: bool = False
    """Whether the beginning of the option is enough if no other begins like it."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a program."""

    name: str
    """As the program spells it: ``units``, ``config.opt.lr``, ``Config.lr``, ``BATCH_SIZE``."""
    value: Any
    """What it is if nothing sets it; `MISSING` if the program demands it."""
    line: int
    """Where the program gives that value, or asks for one."""
    kind: type | None = None
    """What its values must be; None if the program does not say."""
    span: Span | None = None
    """Where its literal is, if setting it means to write another one there."""
    variable: str = ""
    """The environment variable that sets it, if one does."""
    way: Way | None = None
    """How an argument sets it, if one does."""
    choices: tuple[Any, ...] = ()
    """The only values that it takes; empty if there are no such."""
    refusal: str = ""
    """Why setting it would change nothing; empty if it can be set."""
    hidden: int = 0
    """The line of a literal that has the same name, and that setting this does not change."""


class Program:
    """A program's tree, with what several forms ask of it."""

    def __init__(self, tree: ast.Module) -> None:
        self.nodes = list(ast.walk(tree))
        self.parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}
        self.top = list(_top(tree.body))
        self.globals: dict[str, list[ast.AST]] = {}
        """Each name of the module, with the statements that bind it."""
        for node, statement in _bindings(tree.body):
            self.globals.setdefault(node, []).append(statement)
        for function in self.nodes:
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                shared = {
                    name
                    for node in ast.walk(function)
                    if isinstance(node, ast.Global)
                    for name in node.names
                }
                for name, statement in _bindings(function.body):
                    if name in shared:
                        self.globals.setdefault(name, []).append(statement)
        self.literals = {
            name: value
            for name, node in assigned(self.top)
            if (value := literal(node)) is not MISSING and len(self.globals.get(name, ())) == 1
        }
        """The names of the module that are bound once, to a literal."""

    def value(self, node: ast.expr | None) -> Any:  # noqa: ANN401 - any literal
        """Return what an expression is, if it is a literal or the name of one."""
        if isinstance(node, ast.Name):
            return self.literals.get(node.id, MISSING)
        return MISSING if node is None else literal(node)

    def calls(self, name: str) -> Iterator[ast.Call]:
        """Yield the calls of a function or method by its last name."""
        for node in self.nodes:
            if isinstance(node, ast.Call) and last_name(node.func) == name:
                yield node


def literal(node: ast.expr) -> Any:  # noqa: ANN401 - any literal
    """Return the value of a number, text, boolean, None, or a tuple or list of them."""
    if isinstance(node, ast.Tuple | ast.List):
        values = [literal(one) for one in node.elts]
        if any(one is MISSING for one in values):
            return MISSING
        return tuple(values) if isinstance(node, ast.Tuple) else values
    if isinstance(node, ast.Constant) and not isinstance(node.value, bytes | complex):
        return MISSING if node.value is Ellipsis else node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = literal(node.operand)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -value if isinstance(node.op, ast.USub) else value
    return MISSING


def last_name(node: ast.expr) -> str:
    """Return the last name of a dotted one."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def dotted(node: ast.expr) -> str:
    """Return a dotted name as it is written; empty if it is something else."""
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return getattr(node, "id", "")


def statement_of(program: Program, node: ast.AST) -> ast.stmt:
    """Return the statement that an expression is part of."""
    while not isinstance(node, ast.stmt):
        node = program.parents[node]
    return node


def span(node: ast.expr) -> Span:
    return (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)


def kind_of(value: object) -> type | None:
    return None if value is None or value is MISSING else type(value)


def is_main(node: ast.stmt) -> TypeGuard[ast.If]:
    """Return whether a statement is ``if __name__ == "__main__":``."""
    spelled = ("__name__ == '__main__'", "'__main__' == __name__")
    return isinstance(node, ast.If) and ast.unparse(node.test) in spelled


def _top(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that always run when the program does."""
    for node in body:
        if is_main(node):
            yield from _top(node.body)
        else:
            yield node


def assigned(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that are assigned in a block, with what is assigned."""
    for node in body:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            if isinstance(node.target, ast.Name):
                yield node.target.id, node.value
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            yield from _unpacked(node.targets[0], node.value)


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names of an assignment such as ``a, b = 1, 2``."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, part in zip(target.elts, value.elts, strict=False):
            yield from _unpacked(one, part)


def _bindings(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names that a block binds in its own scope, unless from what they were before."""
    waiting: list[tuple[ast.AST, ast.AST]] = [(node, node) for node in body]
    while waiting:
        node, statement = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
            continue
        if isinstance(node, ast.Lambda) or (isinstance(node, ast.AnnAssign) and not node.value):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], node
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name, node
        elif _binds(node) and not _continues(statement, node.id):
            yield node.id, statement
        for child in ast.iter_child_nodes(node):
            inner = child if isinstance(child, ast.stmt) else statement
            waiting.append((child, inner))


def _binds(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)


def _continues(statement: ast.AST, name: str) -> bool:
    """Return whether an assignment computes a name's new value from its old one."""
    if isinstance(statement, ast.AugAssign):
        return True
    value = getattr(statement, "value", None)
    return (
        isinstance(statement, ast.Assign | ast.AnnAssign)
        and value is not None
        and any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(value))
    )


def again(statements: list[ast.AST], first: int) -> str:
    """Say where a name is bound again; empty if it is bound once."""
    lines = sorted({getattr(one, "lineno", 0) for one in statements})
    others = [line for line in lines if line != first]
    if not others and len(statements) > 1:
        others = [first]
    return f"it is assigned again in line {others[-1]}" if others else ""
