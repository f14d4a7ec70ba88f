"""What a value looks like in a notebook."""

from __future__ import annotations

import base64
import io
import sys
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

    None is shown only if `none` says so; otherwise None is returned for it. A method that raises
    is left out, as IPython does.

    Raises
    ------
    BaseException
        Whatever the value's ``__repr__`` raises.
    """
    if value is None and not none:
        return None
    found: dict[str, Any] = {"text/plain": repr(value)[:VALUE_CHARACTERS]}
    for kind, name in _WAYS.items():
        made = _called(value, name)
        if made is not None:
            found[kind] = made
    return {**found, **_of_its_own(value), **_figure(value)}


def _called(value: object, name: str) -> Any:  # noqa: ANN401 - JSON values
    """Return what a method says of a value, if it has one and that works."""
    method = getattr(value, name, None)
    if isinstance(value, type) or not callable(method):
        return None
    try:
        made = method()
    except Exception:  # noqa: BLE001 - the other ways remain
        return None
    return _encoded(made[0] if isinstance(made, tuple) else made)


def _encoded(made: object) -> object:
    return base64.b64encode(made).decode() if isinstance(made, bytes) else made


def _of_its_own(value: object) -> Mapping[str, Any]:
    """Return what a value says of itself for all types at once."""
    made = _called(value, "_repr_mimebundle_")
    return {k: _encoded(v) for k, v in made.items()} if isinstance(made, dict) else {}


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
