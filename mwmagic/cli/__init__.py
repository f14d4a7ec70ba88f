"""The command line.

`main` has the parser; each group of commands has a module: `clusters`, `sweep`, `records` and
`demo`. `output` prints.
"""

from __future__ import annotations

from .main import main, parser

__all__ = ["main", "parser"]
