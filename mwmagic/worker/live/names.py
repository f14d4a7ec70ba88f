"""What a notebook shows of names and values, looked up without running the user's code.

Attributes are read as they are stored: a property, or whatever else computes a value, is not asked
for it, but for those of types that are written in C. Modules are asked, since many import their
parts only then.
"""

from __future__ import annotations

import base64
import builtins
import inspect
import io
import json
import keyword
import re
import sys
from collections.abc import Iterable
from numbers import Integral, Real
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

__all__ = ["bundle", "completions", "described", "figures"]

NAMES_LIMIT = 500
"""The most names that are offered at once."""

HELP_CHARACTERS = 4_000
"""The most that is shown of a name: a packet holds that, also if every character is escaped."""

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


VALUE_CHARACTERS = 100_000
"""The most of a value's text that is shown."""

_WAYS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "text/latex": "_repr_latex_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
    "application/json": "_repr_json_",
}
"""The methods that IPython's formatters look for, by what they return."""


def bundle(value: object, *, none: bool = False) -> dict[str, Any] | None:
    """Return a value by MIME type, as JSON values, binary ones in base64.

    None is shown only if `none` says so; otherwise None is returned for it. A method that raises,
    or returns what JSON cannot hold, is left out, as IPython does.
    """
    if value is None and not none:
        return None
    text = repr(value)[:VALUE_CHARACTERS]
    found: dict[str, Any] = {"text/plain": text.encode(errors="replace").decode()}
    made = {kind: _called(value, name) for kind, name in _WAYS.items()}
    of_its_own = _called(value, "_repr_mimebundle_")
    if isinstance(of_its_own, dict):
        made.update(of_its_own)
    held = {str(kind): _held(one) for kind, one in made.items()}
    found.update((kind, one) for kind, one in held.items() if one is not None)
    return {**found, **_figure(value)}


def _called(value: object, name: str) -> object:
    """Return what a method says of a value, if it has one and that works."""
    method = getattr(value, name, None)
    if isinstance(value, type) or not callable(method):
        return None
    try:
        made = method()
    except Exception:  # noqa: BLE001 - the other ways remain
        return None
    return made[0] if isinstance(made, tuple) else made


def _held(made: object) -> object:
    """Return what JSON holds of a value, as Jupyter does it; None if it cannot."""
    try:
        return json.loads(json.dumps(made, default=_plain), parse_constant=str)
    except Exception:  # noqa: BLE001 - it may have cycles, or keys or parts of any kind
        return None


def _plain(value: object) -> object:
    """Return what stands in JSON for a value that is not plain data."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(type(value).__name__)


def figures() -> list[Any]:
    """Return the figures that pyplot has open, and close them there, as notebooks do."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    found = [pyplot.figure(number) for number in pyplot.get_fignums()]
    pyplot.close("all")
    return found


def _figure(value: object) -> Mapping[str, Any]:
    """Return the picture of a figure of Matplotlib, which leaves that to IPython."""
    figure = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
    if figure is None or not isinstance(value, figure):
        return {}
    file = io.BytesIO()
    value.savefig(file, format="png", bbox_inches="tight")
    return {"image/png": base64.b64encode(file.getvalue()).decode()}
