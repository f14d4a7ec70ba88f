"""The command line.

`main` has the parser; each group of commands has a module: `clusters`, `sweep` (scaling studies
too), `records`, `demo` and `doctor`. `output` prints.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # `signal` would import other modules first

# While modules are imported, for a quarter of a second, Ctrl-C just ends the process: Python's own
# handler would print a traceback of the imports.
_handler = _signal.getsignal(_signal.SIGINT)
if _handler is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from .main import main, parser  # noqa: E402 - as just said

if _handler is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _handler)

__all__ = ["main", "parser"]
