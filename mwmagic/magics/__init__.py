"""IPython magics, without logic of their own.

`magic` lists them and says what a magic is, and `extension` registers them. They are in `cluster`,
`worker`, `sweep`, `scaling`, `live`, `status`, `records` and `export`. `source` reads a cell's
code and writes files; `session` is what magics share, `display` what they show, also while
``%mw_wait`` blocks the kernel, and `completion` completes their lines.
"""

from __future__ import annotations

from .extension import MWMagic, load, unload

__all__ = ["MWMagic", "load", "unload"]
