"""What runs on a task: its launch, its code, and what that sets before it imports."""

from __future__ import annotations

import ast
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from mwmagic.experiments.program import is_main
from mwmagic.frameworks.environment import is_settable
from mwmagic.model.ownership import package_of
from mwmagic.record.provenance import MODULE_COUNT, statements

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from mwmagic.model.messages import Launch

__all__ = ["Assigned", "TaskProgram", "Unknown", "assigned"]

_CHANGES = ("clear", "pop", "popitem", "setdefault", "update")
"""The methods of `os.environ` that may change it."""

_FUNCTIONS = ("putenv", "unsetenv")
"""The functions of `os` that do."""

_WORDS = (b"environ", b"putenv", b"unsetenv")
"""What a source that changes variables has one of."""

_KERAS = ("keras", "tf_keras")
_FRAMEWORKS = {"jax", "tensorflow", "torch", *_KERAS}
"""What Keras may import."""

LARGEST_BYTES = 1 << 20
"""The longest source that is read."""


@dataclass(frozen=True)
class Unknown:
    """A line that may set a variable before an import, with its name if the source says it."""

    name: str | None
    line: str


@dataclass
class Assigned:
    """What a program sets before it imports."""

    steps: list[tuple[str, str | None, bool]] = field(default_factory=list)
    """A variable, its value or None if it is deleted, and whether one that is there is kept."""
    unknown: list[Unknown] = field(default_factory=list)
    """What may set others."""
    late: list[Unknown] = field(default_factory=list)
    """What was seen to set others when it ran, in a warm worker: too late for that one."""

    def applied(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return an environment as the program has it when it imports."""
        env = dict(env)
        for name, value, kept in self.steps:
            if not is_settable(name):
                continue
            if value is None:
                env.pop(name, None)
            elif not (kept and name in env):
                env[name] = value
        return env


@dataclass(frozen=True)
class TaskProgram:
    """What runs on a task: the copy of its code in the record, with the variables that it sets."""

    launch: Launch
    source: Path
    assigned: Assigned = field(default_factory=Assigned)

    @cached_property
    def broken(self) -> bool:
        """Whether Python cannot compile it, for which no framework is needed."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(self.source.read_bytes(), "main.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):  # the second of a null byte
            return True
        except (OSError, RecursionError, MemoryError):  # the worker finds out
            return False
        return False


def assigned(source: bytes, folder: Path, readers: Collection[str]) -> Assigned:
    """Read what a program sets before its imports."""
    scan = _Scan(folder, set(readers))
    scan.read(source, "main.py")
    return scan.found


@dataclass(frozen=True)
class _Step:
    """Something in a file that matters: a module that it may import, or variables."""

    first: bool
    """Whether it is the first one of a statement at the top of its file."""
    module: str | None = None
    literal: tuple[tuple[str, str | None, bool], ...] | None = None
    """What a statement sets that does nothing else, as `Assigned.steps` has it."""
    changed: tuple[tuple[str | None, int], ...] = ()
    """Variables that it may change, None for any, with the lines."""


class _Scan:
    """Goes through the statements of a program and of its own modules, in their order."""

    def __init__(self, folder: Path, readers: set[str]) -> None:
        self.found = Assigned()
        self._folder = folder
        self._missing = readers
        self._begun = False
        self._seen: set[Path] = set()
        self._open: list[tuple[Iterator[_Step], str]] = []

    def read(self, source: bytes, name: str) -> None:
        """Go through a file, and through what it imports, up to the last import that matters."""
        self._open.append((iter(_steps(source)), name))
        while self._open:
            steps, name = self._open[-1]
            step = next(steps, None)
            if step is None or (step.first and not self._missing):
                self._open.pop()
            elif step.module is not None:
                self._import(step.module)
            elif step.literal is not None and not self._begun:
                self.found.steps += step.literal
            else:
                self.found.unknown += [Unknown(one, f"{name}:{at}") for one, at in step.changed]

    def _import(self, module: str) -> None:
        path = self._own(module)
        if path is not None:
            self._follow(path)
        elif package_of(module) not in sys.stdlib_module_names:
            self._begun = True
            self._missing -= _FRAMEWORKS if module in _KERAS else {package_of(module)}

    def _own(self, module: str) -> Path | None:
        """Return the file of one of the program's own modules."""
        base = self._folder.joinpath(*module.split("."))
        for path in (base / "__init__.py", base.with_name(f"{base.name}.py")):
            if path.is_file():
                return path
        return None

    def _follow(self, path: Path) -> None:
        if path in self._seen:
            return
        self._seen.add(path)
        with suppress(OSError), path.open("rb") as file:
            self._open.append((iter(_steps(file.read(LARGEST_BYTES))), path.name))


@lru_cache(MODULE_COUNT)
def _steps(source: bytes) -> tuple[_Step, ...]:
    """Return what matters in a file, in its order; a launch may read many, and most again."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    walk = ast.walk if any(word in source for word in _WORDS) else statements
    found: list[_Step] = []
    for statement in tree.body:
        count = len(found)
        for one in statement.body if is_main(statement) else [statement]:
            found += _steps_of(one, walk)
        if len(found) > count:
            found[count] = replace(found[count], first=True)
    return tuple(found)


def _steps_of(statement: ast.stmt, walk: Callable[[ast.AST], Iterable[ast.AST]]) -> Iterator[_Step]:
    changed: list[tuple[str | None, int]] = []
    for node in walk(statement):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (_Step(first=False, module=one) for one in _modules(node))
        else:
            at = getattr(node, "lineno", statement.lineno)
            changed += [(one, at) for one in _changed(node)]
    if changed:
        literal = _literal(statement)
        known = None if literal is None else tuple(literal)
        yield _Step(first=False, literal=known, changed=tuple(changed))


def _modules(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield the modules that a statement may import, packages before what is in them."""
    if isinstance(statement, ast.Import):
        found = [alias.name for alias in statement.names]
    else:
        base = statement.module or ""
        found = [base, *(f"{base}.{alias.name}".strip(".") for alias in statement.names)]
    for name in filter(None, found):
        parts = name.split(".")
        yield from (".".join(parts[: at + 1]) for at in range(len(parts)))


def _is_environ(node: ast.AST) -> bool:
    named = isinstance(node, ast.Attribute) and node.attr in ("environ", "environb")
    return named or (isinstance(node, ast.Name) and node.id in ("environ", "environb"))


def _text(node: ast.AST | None) -> str | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else None


def _key(node: ast.AST) -> str | None:
    """Return the variable of ``os.environ["NAME"]``, if it is a literal."""
    known = isinstance(node, ast.Subscript) and _is_environ(node.value)
    return _text(node.slice) if known else None  # type: ignore[attr-defined]


def _literal(statement: ast.stmt) -> list[tuple[str, str | None, bool]] | None:
    """Return what a statement sets, if it does nothing but set variables to literals."""
    if isinstance(statement, ast.Assign):
        names, value = [_key(one) for one in statement.targets], _text(statement.value)
        known = [name for name in names if name is not None]
        whole = value is not None and len(known) == len(names)
        return [(name, value, False) for name in known] if whole else None
    if isinstance(statement, ast.AugAssign) and _is_environ(statement.target):
        return _pairs(statement.value)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return _called(statement.value)
    return None


def _called(call: ast.Call) -> list[tuple[str, str | None, bool]] | None:
    function = call.func
    if not (isinstance(function, ast.Attribute) and _is_environ(function.value)):
        return None
    first = _text(call.args[0]) if call.args else None
    if function.attr == "setdefault" and len(call.args) == 2:  # noqa: PLR2004 - as it takes
        value = _text(call.args[1])
        return None if first is None or value is None else [(first, value, True)]
    if function.attr == "pop" and len(call.args) == 2:  # noqa: PLR2004 - as it takes
        return None if first is None else [(first, None, False)]
    if function.attr == "update" and len(call.args) <= 1:
        given = _pairs(call.args[0]) if call.args else []
        named = [(one.arg, _text(one.value)) for one in call.keywords]
        if given is None or any(None in pair for pair in named):
            return None
        return [*given, *((str(name), value, False) for name, value in named)]
    return None


def _pairs(node: ast.expr) -> list[tuple[str, str | None, bool]] | None:
    """Return the names and values of a dictionary of literals."""
    if not isinstance(node, ast.Dict):
        return None
    found = [(_text(key), _text(value)) for key, value in zip(node.keys, node.values, strict=True)]
    return None if any(None in pair for pair in found) else [(str(n), v, False) for n, v in found]


def _changed(node: ast.AST) -> Iterable[str | None]:
    """Yield the variables that one node of a syntax tree may change, None for any."""
    if isinstance(node, ast.Subscript) and _is_environ(node.value):
        if isinstance(node.ctx, (ast.Store, ast.Del)):
            yield _text(node.slice)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        first = _text(node.args[0]) if node.args else None
        if node.func.attr in _FUNCTIONS or (
            _is_environ(node.func.value) and node.func.attr in _CHANGES
        ):
            yield first
    elif isinstance(node, ast.AugAssign) and _is_environ(node.target):
        yield None
