"""The options in Python's terms: a signature and a section of a docstring."""

from __future__ import annotations

import textwrap
from inspect import Parameter, Signature

from .options import OPTIONS

__all__ = ["parameters", "signature"]

_TEXT_COLUMNS = 92


def signature() -> Signature:
    """Return the signature of a callable that takes the options, all but the first by keyword."""
    first, *others = OPTIONS.values()
    return Signature(
        [
            Parameter(
                option.name,
                Parameter.POSITIONAL_OR_KEYWORD if option is first else Parameter.KEYWORD_ONLY,
                default=option.default,
                annotation=option.annotation,
            )
            for option in (first, *others)
        ]
    )


def parameters() -> str:
    """Return the options as entries of a docstring's Parameters section."""
    entries = (
        f"{option.name} : {option.annotation.replace(' | ', ' or ')}, default {option.default!r}\n"
        + textwrap.indent(textwrap.fill(option.help, _TEXT_COLUMNS), "    ")
        for option in OPTIONS.values()
    )
    return textwrap.indent("\n".join(entries), "    ")
