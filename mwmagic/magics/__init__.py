"""IPython magics, without logic of their own.

A magic is declared with `magic` and listed in `catalogue`, and `extension` registers them. They are
in `cluster`, `worker`, `live`, `status`, `records` and `export`. `file` writes what they write and
`body` reads a cell's code; `session` is what they share, `display` what they show, also while
``%mw_wait`` blocks the kernel, and `completion` completes their lines.
"""

from __future__ import annotations

from .extension import MWMagic, load, unload

__all__ = ["MWMagic", "load", "unload"]
