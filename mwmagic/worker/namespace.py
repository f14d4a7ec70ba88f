"""What names mean in an interpreter, looked up without running the user's code.

Attributes are read as they are stored: a property, or whatever else computes a value, is not asked
for it, but for those of types that are written in C. Modules are asked, since many import their
parts only then.
"""

from __future__ import annotations

import builtins
import inspect
import keyword
import re
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["completions", "described"]

NAMES_LIMIT = 500
"""The most names that are offered at once."""

HELP_CHARACTERS = 4_000
"""The most that is said of a name: a packet holds that, also where every character is escaped."""

_HARMLESS = (
    staticmethod,
    classmethod,
    FunctionType,
    BuiltinFunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
"""What may be asked for its value: it binds functions, or reads what C code stores."""

_CHAIN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class _Unknown(Exception):
    """A name has no value here, or one that only code could compute."""


def completions(text: str, names: Mapping[str, Any]) -> list[str]:
    """Return the names that complete the last one in ``model.fi``, sorted."""
    owner, dot, begun = text.rpartition(".")
    try:
        known = dir(_value(owner, names)) if dot else _everywhere(names)
    except Exception:  # noqa: BLE001 - the user's own `__dir__` may raise anything
        return []
    found = {one for one in known if isinstance(one, str) and one.startswith(begun)}
    shown = [one for one in found if begun.startswith("_") or not one.startswith("_")]
    return sorted(shown)[:NAMES_LIMIT]


def described(text: str, names: Mapping[str, Any]) -> str | None:
    """Return the signature, the type and the documentation of a name; None if it has no value."""
    if not _CHAIN.fullmatch(text):
        return None
    try:
        value = _value(text, names)
    except Exception:  # noqa: BLE001 - as above
        return None
    parts = {
        "Signature": _signature(text, value),
        "Type": type(value).__name__,
        "Docstring": _documentation(value),
    }
    lines = [f"{head}: {said}" for head, said in parts.items() if said]
    return "\n".join(lines)[:HELP_CHARACTERS]


def _everywhere(names: Mapping[str, Any]) -> list[str]:
    return [*names, *vars(builtins), *keyword.kwlist]


def _value(text: str, names: Mapping[str, Any]) -> object:
    """Return the value of names with dots between them."""
    first, *others = text.split(".")
    if first not in names and first not in vars(builtins):
        raise _Unknown(first)
    value = names[first] if first in names else vars(builtins)[first]
    for name in others:
        value = _attribute(value, name)
    return value


def _attribute(value: object, name: str) -> object:
    """Return an attribute, if no code of Python is needed for that."""
    if isinstance(value, ModuleType):
        return getattr(value, name)
    stored = inspect.getattr_static(value, name)
    if isinstance(stored, _HARMLESS):
        return getattr(value, name)
    if hasattr(type(stored), "__get__"):
        raise _Unknown(name)
    return stored


def _signature(text: str, value: object) -> str:
    if not callable(value):
        return ""
    try:
        return f"{text.rpartition('.')[2]}{inspect.signature(value)}"
    except Exception:  # noqa: BLE001 - of code in C, or of the user's own `__signature__`
        return ""


def _documentation(value: object) -> str:
    try:
        said = inspect.getdoc(value)
    except Exception:  # noqa: BLE001 - as above
        return ""
    return f"\n{said}" if isinstance(said, str) else ""
