"""What a value looks like in a notebook."""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Iterable
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["bundle", "figures"]

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
