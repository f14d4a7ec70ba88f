"""The forms of parameters: literals in the source, environment variables, and arguments."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mwmagic.model.variables import PARAMETER

from .program import (
    MISSING,
    Parameter,
    Program,
    Way,
    again,
    assigned,
    dotted,
    kind_of,
    last_name,
    literal,
    span,
    statement_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "absl_flags",
    "argparse_arguments",
    "attributes",
    "classes",
    "click_options",
    "entries",
    "fire_defaults",
    "mapped",
    "names",
    "variables",
]

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


_SYSTEM = {"HOME", "PATH", "PWD", "TF_CONFIG", "TMPDIR", "USER"}
"""Variables that programs read, and that belong to the system or to the cluster."""

_SYSTEM_PREFIXES = ("MWMAGIC_", "SLURM_")

_CASTS = {"bool": bool, "float": float, "int": int, "str": str}


def variables(program: Program) -> Iterator[Parameter]:
    """Find ``os.environ.get("BATCH_SIZE", 64)``, ``os.getenv`` and ``os.environ["LR"]``."""
    written = {
        path.value: node.lineno
        for node in program.nodes
        if isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and last_name(node.value) == "environ"
        and isinstance(path := node.slice, ast.Constant)
    }
    for node in program.nodes:
        read = _read(node)
        if read is None:
            continue
        name, default = read
        if name in _SYSTEM or name.startswith(_SYSTEM_PREFIXES):
            continue
        value = MISSING if default is None else program.value(default)
        if isinstance(default, ast.Constant) and default.value is None:
            value = None
        taken, cast = node, program.parents.get(node)
        if isinstance(cast, ast.BoolOp) and isinstance(cast.op, ast.Or) and node is cast.values[0]:
            if not value and len(cast.values) == 2:  # noqa: PLR2004 - `get("LR") or 0.1`
                value = program.value(cast.values[1])
            taken, cast = cast, program.parents.get(cast)
        kind: type | None = None
        if isinstance(cast, ast.Call) and taken in cast.args and isinstance(cast.func, ast.Name):
            kind = _CASTS.get(cast.func.id)
        if kind is not None and value is not MISSING and value is not None:
            try:
                value = kind(value)
            except (TypeError, ValueError):
                value = MISSING
        refusal = f"the program sets it in line {written[name]}" if name in written else ""
        line = statement_of(program, node).lineno
        yield Parameter(name, value, line, kind or kind_of(value), variable=name, refusal=refusal)


def _read(node: ast.AST) -> tuple[str, ast.expr | None] | None:
    """Return the variable that an expression reads, and its default if it has one."""
    none = ast.Constant(None)
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        key = node.slice
        if last_name(node.value) == "environ" and isinstance(key, ast.Constant):
            return (key.value, None) if isinstance(key.value, str) else None
    if not isinstance(node, ast.Call) or not node.args:
        return None
    spelled = dotted(node.func)
    reads = spelled in ("os.getenv", "getenv") or spelled.endswith(
        ("environ.get", "environ.setdefault")
    )
    key = node.args[0]
    if not reads or not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        return None
    named = [one.value for one in node.keywords if one.arg == "default"]
    return key.value, (node.args[1] if len(node.args) > 1 else (named or [none])[0])


def mapped(program: Program) -> Iterator[Parameter]:
    """Find ``params.get("lr", 0.1)`` and ``params["lr"]`` of ``mwmagic.worker``."""
    names = {
        one.asname or one.name
        for node in program.nodes
        if isinstance(node, ast.ImportFrom) and node.module == "mwmagic.worker"
        for one in node.names
        if one.name == "params"
    } | {f"{module}.params" for module in _worker_modules(program)}
    for node in program.nodes:
        default: ast.expr | None = None
        if isinstance(node, ast.Subscript) and dotted(node.value) in names:
            key = node.slice
        elif isinstance(node, ast.Call) and node.args and _gets(node.func, names):
            key, default = node.args[0], (node.args[1:] or [ast.Constant(None)])[0]
        else:
            continue
        name = key.value if isinstance(key, ast.Constant) else None
        if isinstance(name, str) and name.isidentifier():
            value = MISSING if default is None else program.value(default)
            line = statement_of(program, node).lineno
            variable = f"{PARAMETER}{name}"
            yield Parameter(name, value, line, kind_of(value), variable=variable)


def _worker_modules(program: Program) -> Iterator[str]:
    """Yield the names that a program has for ``mwmagic.worker``."""
    yield "mwmagic.worker"
    for node in program.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            folder = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for one in node.names:
                if f"{folder}{one.name}" == "mwmagic.worker" and (folder or one.asname):
                    yield one.asname or one.name


def _gets(function: ast.expr, names: set[str]) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "get"
        and dotted(function.value) in names
    )


def keyword(node: ast.Call, name: str) -> ast.expr | None:
    return next((one.value for one in node.keywords if one.arg == name), None)


def _texts(call: ast.Call) -> list[str]:
    """Return the texts among a call's arguments."""
    values = [one.value for one in call.args if isinstance(one, ast.Constant)]
    return [one for one in values if isinstance(one, str)]


def argparse_arguments(program: Program) -> Iterator[Parameter]:
    """Find ``parser.add_argument("--lr", type=float, default=0.1)``."""
    refusal = ""
    for name in ("parse_args", "parse_known_args"):
        for call in program.calls(name):
            given = call.args[0] if call.args else keyword(call, "args")
            if given is not None and literal(given) is not MISSING:
                refusal = f"the program parses arguments of its own in line {call.lineno}"
    if any(program.calls("add_subparsers")):
        refusal = "the program has subcommands: give it with the script's arguments"
    shortened = not any(
        program.value(keyword(call, "allow_abbrev")) is False
        for call in program.calls("ArgumentParser")
    )
    defaults = {
        one.arg: one.value
        for call in program.calls("set_defaults")
        for one in call.keywords
        if one.arg
    }
    for call in program.calls("add_argument"):
        one = _argument(program, call)
        if one is not None:
            if one.name in defaults:
                one = replace(one, value=program.value(defaults[one.name]))
            way = one.way and replace(one.way, shortened=shortened)
            yield replace(one, way=way, refusal=one.refusal or refusal)


def _argument(program: Program, call: ast.Call) -> Parameter | None:
    """Return the parameter that a call of `add_argument` declares, if its name can be read."""
    words = _texts(call)
    if not words:
        return None
    flags = [one for one in words if one.startswith("-")]
    long = next((one for one in flags if one.startswith("--")), flags[0] if flags else "")
    named = program.value(keyword(call, "dest"))
    name = named if isinstance(named, str) else (long or words[0]).lstrip("-").replace("-", "_")
    default = keyword(call, "default")
    value = None if default is None else program.value(default)
    if default is None and program.value(keyword(call, "required")) is True:
        value = MISSING
    action = keyword(call, "action")
    action_name = (
        action.value if isinstance(action, ast.Constant) else last_name(action or call.func)
    )
    if not flags:
        refusal = "it is positional: give it with the script's arguments"
        return Parameter(name, value, call.lineno, refusal=refusal)
    others = tuple(one for one in flags if one != long)
    if action_name in ("store_true", "store_false"):
        on = action_name == "store_true"
        way = Way(long, others, on=long if on else "", off="" if on else long)
        return Parameter(name, (not on) if default is None else value, call.lineno, bool, way=way)
    if action_name == "BooleanOptionalAction":
        way = Way(long, others, on=long, off=f"--no-{long.lstrip('-')}")
        return Parameter(name, value, call.lineno, bool, way=way)
    if action_name not in ("add_argument", "store"):
        refusal = "its action is not to store a value: give it with the script's arguments"
        return Parameter(name, value, call.lineno, way=Way(long, others), refusal=refusal)
    kind = _CASTS.get(last_name(keyword(call, "type") or call.func), kind_of(value))
    many = keyword(call, "nargs") is not None and program.value(keyword(call, "nargs")) != "?"
    choices = program.value(keyword(call, "choices"))
    return Parameter(
        name,
        value,
        call.lineno,
        list if many else kind,
        way=Way(long, others, many=many),
        choices=tuple(choices) if isinstance(choices, list | tuple) else (),
    )


_REPEATED = "its option is of a special kind: give it with the script's arguments"

_ABSL = {
    "DEFINE_bool": bool,
    "DEFINE_boolean": bool,
    "DEFINE_enum": str,
    "DEFINE_float": float,
    "DEFINE_integer": int,
    "DEFINE_list": list,
    "DEFINE_string": str,
}


def absl_flags(program: Program) -> Iterator[Parameter]:
    """Find ``flags.DEFINE_float("lr", 0.1, "...")``."""
    defined = {last_name(one.func) for one in program.nodes if isinstance(one, ast.Call)}
    for define in sorted(one for one in defined if one.startswith("DEFINE_")):
        kind = _ABSL.get(define)
        for call in program.calls(define):
            name = program.value(call.args[0] if call.args else keyword(call, "name"))
            if not isinstance(name, str):
                continue
            value = program.value(call.args[1] if len(call.args) > 1 else keyword(call, "default"))
            values = call.args[2] if len(call.args) > 2 else keyword(call, "enum_values")  # noqa: PLR2004 - the third
            choices = program.value(values) if define == "DEFINE_enum" else ()
            on, off = (f"--{name}", f"--no{name}") if kind is bool else ("", "")
            yield Parameter(
                name,
                value,
                call.lineno,
                kind,
                way=Way(f"--{name}", (f"-{name}",), joined=True, on=on, off=off),
                choices=tuple(choices) if isinstance(choices, list | tuple) else (),
                refusal="" if kind else _REPEATED,
            )


def click_options(program: Program) -> Iterator[Parameter]:
    """Find ``@click.option("--lr", default=0.1)``."""
    for call in program.calls("option"):
        words = _texts(call)
        flags = [one for one in words if one.startswith("-")]
        long = next((one for one in flags if one.startswith("--")), flags[0] if flags else "")
        if not long or not isinstance(program.parents.get(call), ast.FunctionDef):
            continue
        plain = [one for one in words if not one.startswith("-")]
        on, _, off = long.partition("/")
        others = tuple(one for one in flags if one != long)
        name = (plain or [on.lstrip("-").replace("-", "_")])[0]
        default = keyword(call, "default")
        value = None if default is None else program.value(default)
        if default is None and program.value(keyword(call, "required")) is True:
            value = MISSING
        if any(program.value(keyword(call, word)) is True for word in ("multiple", "count")):
            yield Parameter(name, value, call.lineno, way=Way(on, others), refusal=_REPEATED)
            continue
        if off or program.value(keyword(call, "is_flag")) is True:
            way = Way(on, others, on=on, off=off)
            yield Parameter(name, bool(value), call.lineno, bool, way=way)
            continue
        asked = keyword(call, "type")
        kind = {"FLOAT": float, "INT": int, "STRING": str, "BOOL": bool, **_CASTS}.get(
            last_name(asked or call.func), kind_of(value)
        )
        choices: Any = ()
        if isinstance(asked, ast.Call) and last_name(asked.func) == "Choice" and asked.args:
            choices = program.value(asked.args[0])
        choices = tuple(choices) if isinstance(choices, list | tuple) else ()
        yield Parameter(name, value, call.lineno, kind, way=Way(on, others), choices=choices)


def fire_defaults(program: Program) -> Iterator[Parameter]:
    """Find the defaults of the function in ``fire.Fire(main)``."""
    functions = {one.name: one for one in program.top if isinstance(one, ast.FunctionDef)}
    for call in program.calls("Fire"):
        function = functions.get(last_name(call.args[0]) if call.args else "")
        if function is None:
            continue
        given = function.args
        names = [*given.posonlyargs, *given.args][-len(given.defaults) :] if given.defaults else []
        pairs = [
            *zip(names, given.defaults, strict=True),
            *zip(given.kwonlyargs, given.kw_defaults, strict=True),
        ]
        for argument, default in pairs:
            value = program.value(default)
            way = Way(f"--{argument.arg}", (f"-{argument.arg}",), joined=True, quoted=True)
            yield Parameter(argument.arg, value, argument.lineno, kind_of(value), way=way)
