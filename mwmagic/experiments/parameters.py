"""What a program calls its parameters, what they were in a run, and what they shall be in the next.

Nobody changes code for it: what people write is enough. The user's file stays as it is. The run
gets its text with other literals in the same lines, or the same text with other arguments or
variables. So the recorded code, arguments and variables of a run say what its parameters were, and
no other record of them is kept.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mwmagic.errors import BadArguments
from mwmagic.model.option import meant
from mwmagic.model.values import NOT_FINITE
from mwmagic.model.variables import PARAMETER

from .forms import (
    absl_flags,
    argparse_arguments,
    attributes,
    classes,
    click_options,
    entries,
    fire_defaults,
    mapped,
    names,
    variables,
)
from .program import MISSING, Parameter, Program, literal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from .program import Way

__all__ = [
    "MISSING",
    "Parameter",
    "Settings",
    "listed",
    "matching",
    "named",
    "numbers_in",
    "parameters",
    "settings",
    "values",
    "without_values",
]

READ_CHARACTERS = 1 << 20
"""The longest source that is read; a longer one has no parameters."""

_SHORT = re.compile(r"(-\w)(\d+)")
"""A short option such as ``-n`` with its value in the same word."""

LISTED_LIMIT = 20
"""How many names an error lists."""

FORMS = (
    argparse_arguments,
    absl_flags,
    click_options,
    fire_defaults,
    mapped,
    variables,
    attributes,
    entries,
    classes,
    names,
)
"""The forms of parameters: those that are set from outside before those that the source sets."""


def parameters(source: str) -> list[Parameter]:
    """Return a program's parameters in the order of its lines, or raise SyntaxError.

    Those that cannot be set are among them, with the reason.
    """
    if len(source) > READ_CHARACTERS:
        return []
    try:
        program = Program(ast.parse(source))
    except SyntaxError as error:
        raise SyntaxError(f"{error.msg} in line {error.lineno}") from error
    except (ValueError, RecursionError) as error:  # a null byte, bytes that are not UTF-8, ...
        raise SyntaxError(str(error)) from error
    known: dict[str, Parameter] = {}
    for form in FORMS:
        for one in form(program):
            before = known.get(one.name)
            if before is None or (before.refusal and not one.refusal):
                known[one.name] = one
            elif one.span and not before.span:
                known[one.name] = replace(before, hidden=one.line)
    return sorted(known.values(), key=lambda one: one.line)


@dataclass(frozen=True)
class Settings:
    """What runs, once parameters are set.

    `source` has as many lines as before; `env` has the environment variables to add, and `values`
    what was set, by the parameters' whole names.
    """

    source: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


def settings(
    source: str,
    given: Mapping[str, Any],
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Settings:
    """Set parameters of a program, which is given some arguments and variables besides.

    The last parts of a dotted name are enough where only one parameter has them; a text is read as
    the parameter's own value is written. BadArguments is raised if there is no such parameter, it
    cannot be set or not to this value, or it is set twice.
    """
    try:
        known = parameters(source)
    except SyntaxError as error:
        raise BadArguments(f"the program's parameters cannot be read: {error}") from error
    texts: list[tuple[Parameter, str]] = []
    words, more = list(args), {}
    args = _spelled_out(known, args)
    chosen: dict[str, Any] = {}
    for name, asked in given.items():
        one = named(name, known, source)
        if one.name in chosen:
            raise BadArguments(f"the parameter {one.name} is given twice; leave one out")
        value = _checked(one, asked)
        if value is None and (one.way and not one.way.quoted):
            raise BadArguments(
                f"the parameter {one.name} cannot be None, as an argument is text; leave it out"
            )
        chosen[one.name] = value
        if one.way is not None:
            if _stated(one, args) is not MISSING:
                raise BadArguments(
                    f"the script's arguments hold {one.way.flag} already; leave it out there, or "
                    f"leave out the parameter {one.name}"
                )
            words += _words(one, value)
        elif one.variable:
            if one.variable in (env or {}):
                raise BadArguments(
                    f"the variable {one.variable} is given with --env already; leave it out there, "
                    f"or leave out the parameter {one.name}"
                )
            more[one.variable] = _variable(one, value)
        else:
            texts.append((one, _code(value)))
    return Settings(_written(source, texts), tuple(words), more, chosen)


def values(
    source: str,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    hidden: Collection[str] = (),
) -> dict[str, Any]:
    """Return what a program's parameters are with these arguments and variables.

    Those that are assigned again are left out, as nobody knows without running it; so are the
    variables that are `hidden`: set, but nobody knows to what.
    """
    known: dict[str, Any] = {}
    found = parameters(source)
    args = _spelled_out(found, args)
    for one in found:
        if one.variable in hidden and one.variable:
            continue
        value = one.value
        if one.variable and one.variable in (env or {}):
            value = _cast(one, (env or {})[one.variable])
        elif one.way is not None and (stated := _stated(one, args)) is not MISSING:
            value = stated
        if not one.refusal and value is not MISSING:
            known[one.name] = value
    return known


def numbers_in(source: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment that set a program's parameters to numbers.

    Others are left out, as a text may be a secret.
    """
    try:
        known = parameters(source)
    except SyntaxError:
        return {}
    return {
        one.variable: env[one.variable]
        for one in known
        if one.variable in env
        and one.kind in (int, float)
        and isinstance(_cast(one, env[one.variable]), int | float)
    }


def without_values(source: str) -> str:
    """Return a source in which the values that can be set in it are all the same.

    Programs that differ in parameters alone are then equal, line by line.
    """
    try:
        known = parameters(source)
    except SyntaxError:
        return source
    return _written(source, [(one, "0") for one in known if one.span and not one.refusal])


def listed(known: Iterable[Parameter]) -> str:
    """Return the names of parameters that can be set, for an error."""
    found = [one.name for one in known if not one.refusal]
    if not found:
        return "it has none that can be set"
    more = f" and {len(found) - LISTED_LIMIT} more" if len(found) > LISTED_LIMIT else ""
    return f"its parameters are {', '.join(found[:LISTED_LIMIT])}{more}"


def matching(name: str, known: list[Parameter]) -> list[Parameter]:
    """Return the parameters with a name, or else those with such last parts of a name."""
    exact = [one for one in known if one.name == name]
    short = [one for one in known if one.name.endswith(f".{name}")]
    return exact or [one for one in short if not one.refusal] or short


def named(name: str, known: list[Parameter], source: str = "") -> Parameter:
    """Return the parameter of a program with a name, or with the last parts of a name."""
    found = matching(name, known)
    if len(found) > 1:
        choices = " or ".join(one.name for one in found)
        raise BadArguments(f"the program has several parameters {name!r}: write {choices}")
    settable = [one.name for one in known if not one.refusal]
    like = meant(name, settable)
    hint = f"; did you mean {like}?" if like else ""
    if not found:
        line = _computed(name, source)
        why = f", as its value in line {line} is computed" if line else ""
        raise BadArguments(f"the program has no parameter {name!r}{why}: {listed(known)}{hint}")
    [one] = found
    if one.refusal:
        raise BadArguments(
            f"{one.name} in line {one.line} cannot be set: {one.refusal}; {listed(known)}{hint}"
        )
    return one


def _computed(name: str, source: str) -> int:
    """Return the line in which a program gives a name a computed value; 0 if none does."""
    nodes = Program(ast.parse(source)).globals.get(name, [])
    lines = [one.lineno for one in nodes if isinstance(one, ast.Assign | ast.AnnAssign)]
    return lines[0] if lines else 0


def _cast(one: Parameter, text: str) -> Any:  # noqa: ANN401 - any literal
    """Return what the program makes of a variable's text."""
    try:
        if one.variable.startswith(PARAMETER):
            return json.loads(text)
        return text if one.kind is None else one.kind(text)
    except (TypeError, ValueError):
        return text


_NOT_FINITE = {"inf", "-inf", *map(str.lower, NOT_FINITE)}
"""How such numbers are typed, and how a record spells them, in lower case."""

_SPELLED = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}


def _checked(one: Parameter, value: Any) -> Any:  # noqa: ANN401 - any literal
    """Return a value as a parameter takes it."""
    value = _read(one, value) if isinstance(value, str) else value
    kind = one.kind
    fits = {
        bool: isinstance(value, bool),
        int: isinstance(value, int) and not isinstance(value, bool),
        float: isinstance(value, int | float) and not isinstance(value, bool),
        str: isinstance(value, str),
        list: isinstance(value, list | tuple),
        tuple: isinstance(value, list | tuple),
    }
    if kind is not None and not fits.get(kind, True):
        words = {bool: "true or false", int: "an integer", float: "a number", str: "text"}
        what = words.get(kind, "a list, as [1, 2]")
        hint = ""
        if kind is int and isinstance(value, float) and one.span:
            hint = f"; the program gives it {one.value!r} in line {one.line}, write a float there"
        raise BadArguments(f"the parameter {one.name} takes {what}, not {value!r}{hint}")
    if kind is float and isinstance(value, int):
        value = float(value)
    if kind in (list, tuple) and isinstance(value, list | tuple):
        value = kind(_elements(one, value))
    if one.choices and value not in one.choices:
        choices = ", ".join(map(str, one.choices))
        raise BadArguments(f"the parameter {one.name} takes one of {choices}, not {value!r}")
    return value


def _elements(one: Parameter, values: Sequence[Any]) -> list[Any]:
    """Return the elements of a list, which are numbers if the program's own are."""
    own = one.value if isinstance(one.value, list | tuple) else ()
    kinds = {type(element) for element in own}
    if not kinds or not kinds <= {int, float}:
        return list(values)
    element = replace(one, kind=float if float in kinds else int, choices=(), span=None)
    return [_checked(element, value) for value in values]


def _read(one: Parameter, text: str) -> Any:  # noqa: ANN401 - any literal
    """Return the value that a text stands for."""
    try:
        value = literal(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError):
        value = MISSING
    if one.kind is str:
        return value if isinstance(value, str) else text
    if one.kind is bool and text.strip().lower() in _SPELLED:
        return _SPELLED[text.strip().lower()]
    if one.kind in (float, None) and text.strip().lower() in _NOT_FINITE:
        return float(text)
    if one.kind in (list, tuple) and (value is MISSING or not isinstance(value, list | tuple)):
        parts = [part.strip() for part in text.split(",")]
        return [_plain(part) for part in parts]
    return text if value is MISSING else value


def _plain(text: str) -> Any:  # noqa: ANN401 - any literal
    try:
        value = literal(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError):
        return text
    return text if value is MISSING else value


def _code(value: Any) -> str:  # noqa: ANN401 - any literal
    """Return a value as Python's source has it."""
    if isinstance(value, tuple | list):
        inner = ", ".join(map(_code, value))
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):  # noqa: PLR0124 - NaN
        return f'float("{value}")'
    return repr(value)


def _variable(one: Parameter, value: Any) -> str:  # noqa: ANN401 - any literal
    """Return a value as an environment variable holds it; `bool` takes any text for true."""
    if one.variable.startswith(PARAMETER):
        return json.dumps(value)
    if isinstance(value, bool):
        return "1" if value else ""
    return value if isinstance(value, str) else str(value)


def _words(one: Parameter, value: Any) -> list[str]:  # noqa: ANN401 - any literal
    """Return a value as words of a command line."""
    way = one.way
    if way is None:
        return []
    if way.on or way.off:
        word = way.on if value else way.off
        return [word] if word else []
    if isinstance(value, list | tuple) and way.many:
        return [way.flag, *map(str, value)]
    if isinstance(value, list | tuple) and not way.quoted:
        text = ",".join(map(str, value))
    elif isinstance(value, bool) and way.joined and not way.quoted:
        text = str(value).lower()
    elif way.quoted and isinstance(value, str):
        text = value if _plain(value) == value else json.dumps(value)
    else:
        text = str(value)
    # A value that begins with a dash is one only in the same word.
    return [f"{way.flag}={text}"] if way.joined or text.startswith("-") else [way.flag, text]


def _spelled_out(known: Iterable[Parameter], args: Sequence[str]) -> list[str]:
    """Return arguments with the whole name of each option that was shortened, as argparse allows.

    One that could mean several is left as it is: the program refuses it.
    """
    ways = [one.way for one in known if one.way is not None]
    words = {
        word: way.shortened for way in ways for word in (way.flag, *way.others, way.on, way.off)
    }
    shortened = [word for word, may in words.items() if may and word.startswith("--")]
    end = args.index("--") if "--" in args else len(args)
    found = []
    for word in args[:end]:
        flag, equals, value = word.partition("=")
        fitting = [one for one in shortened if one.startswith(flag)]
        plain = flag in words or not flag.startswith("--") or len(fitting) != 1
        found.append(word if plain else f"{fitting[0]}{equals}{value}")
    return [*found, *args[end:]]


def _stated(one: Parameter, args: Sequence[str]) -> Any:  # noqa: ANN401 - any literal
    """Return the value that arguments give a parameter; `MISSING` if they do not."""
    way = one.way
    found: Any = MISSING
    if way is None:
        return found
    words = list(args)
    if "--" in words:
        del words[words.index("--") :]
    for at, word in enumerate(words):
        within = _value_in(way, word)
        rest = words[at + 1 :]
        alone = not rest or rest[0].startswith("--")
        if word == way.off:
            found = False
        elif within:
            found = _read(one, within[0])
        elif within is None:
            continue
        elif way.on or way.off or (one.kind is bool and alone):
            found = bool(way.on) or not way.off
        elif way.many:
            end = next((i for i, more in enumerate(rest) if more.startswith("--")), len(rest))
            found = [_plain(more) for more in rest[:end]]
        elif rest:
            found = _read(one, rest[0])
    return found


def _value_in(way: Way, word: str) -> list[str] | None:
    """Return the value that a word has for an option; none in the list if the next word is it.

    None if the word is not this option.
    """
    for flag in (way.flag, *way.others):
        if word == flag:
            return []
        if word.startswith(f"{flag}="):
            return [word[len(flag) + 1 :]]
        if (short := _SHORT.fullmatch(word)) and short[1] == flag:
            return [short[2]]
    return None


def unset(
    source: str, names: Iterable[str], args: Sequence[str], env: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return arguments and variables without those that set these parameters.

    BadArguments is raised if there is no such parameter.
    """
    words, left = list(args), dict(env)
    try:
        known = parameters(source) if names else []
    except SyntaxError as error:
        raise BadArguments(f"the program's parameters cannot be read: {error}") from error
    words = _spelled_out(known, words)
    for name in names:
        one = named(name, known, source)
        left.pop(one.variable, None)
        words = _others(one, words)
    return tuple(words), left


def _others(one: Parameter, args: Sequence[str]) -> list[str]:
    """Return arguments without those that give a parameter its value."""
    way, kept, words = one.way, list[str](), list(args)
    while words:
        word = words.pop(0)
        if way is None or word == "--":
            return [*kept, word, *words]
        within = _value_in(way, word)
        if word in (way.on, way.off) and word:
            continue
        if within is None:
            kept.append(word)
        elif not within and not (way.on or way.off):
            while words and not words[0].startswith("--"):
                words.pop(0)
                if not way.many:
                    break
    return kept


def _written(source: str, texts: list[tuple[Parameter, str]]) -> str:
    """Return a source with other literals, each in the lines of the one before."""
    lines = source.encode().split(b"\n")
    for one, code in sorted(texts, key=lambda pair: pair[0].span or (), reverse=True):
        if one.span is None:
            continue
        first, begin, last, end = one.span
        blank = "\n" * (last - first)
        text = code
        if blank:  # within brackets, where a line may end anywhere
            text = f"{code[:-1]}{blank}{code[-1]}" if code[-1] in ")]" else f"({code}{blank})"
        rest = lines[last - 1][end:]
        lines[first - 1 : last] = (lines[first - 1][:begin] + text.encode() + rest).split(b"\n")
    return b"\n".join(lines).decode()
