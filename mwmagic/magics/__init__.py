"""IPython magics, without logic of their own.

`magic` lists them and says what a magic is, and `extension` registers them and completes their
lines. They are in `cluster`, `worker`, `sweep`, `live` and `records`. `source` reads a cell's code
and writes files; `session` is what magics share, and `display` what they show, also while
``%mw_wait`` blocks the kernel.
"""

from __future__ import annotations

from .extension import MWMagic, load, unload

__all__ = ["MWMagic", "load", "unload"]
