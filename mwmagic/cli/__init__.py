"""The command line.

`main` has the parser; each group of commands has a module: `clusters`, `sweep`, `scaling`,
`records`, `demo` and `doctor`. `output` prints.
"""

from __future__ import annotations

from .main import main, parser

__all__ = ["main", "parser"]
