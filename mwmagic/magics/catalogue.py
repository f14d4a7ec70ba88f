"""Which magics there are, as IPython knows them before their modules are imported."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .magic import Magic
    from .session import Session

__all__ = ["NAMES", "Entry", "find"]

_HOMES = {
    "%mw_cluster": "cluster",
    "%%mw_worker": "worker",
    "%mw_wait": "worker",
    "%%mw_live": "live",
    "%mw_push": "live",
    "%mw_pull": "live",
    "%mw_debug": "live",
    "%mw_reset": "live",
    "%mw_status": "status",
    "%mw_show": "records",
    "%mw_logs": "status",
    "%mw_stop": "cluster",
    "%mw_restart": "worker",
    "%mw_rerun": "worker",
    "%mw_kill": "cluster",
    "%mw_stacks": "status",
    "%mw_runs": "records",
    "%mw_compare": "records",
    "%mw_note": "records",
    "%mw_tag": "records",
    "%mw_gc": "records",
    "%mw_fetch": "live",
    "%mw_export": "export",
}

NAMES = tuple(_HOMES)
"""Every magic as it is written, in the order of the reference."""


@cache
def find(written: str) -> Magic:
    """Return a magic, such as ``%mw_cluster`` or ``%%mw_worker``."""
    module = import_module(f".{_HOMES[written]}", __package__)
    found: Magic = getattr(module, written.lstrip("%"))
    return found


class Entry:
    """What IPython calls, and whose documentation it shows: that of the magic."""

    def __init__(self, written: str, session: Callable[[], Session]) -> None:
        self.written = written
        self._session = session

    def __repr__(self) -> str:
        return f"<magic {self.written}>"

    def __call__(self, line: str, cell: str = "") -> object:
        """Do what the magic does with a line, and the cell below it."""
        return find(self.written).call(self._session(), line, cell)

    @property
    def name(self) -> str:
        """Its name, without the leading percent signs."""
        return self.written.lstrip("%")

    @property
    def kind(self) -> str:
        """``cell`` or ``line``."""
        return "cell" if self.written.startswith("%%") else "line"

    @property
    def _ipython_magic_no_var_expand(self) -> bool:
        """Whether IPython leaves braces and dollar signs in the line as they are typed."""
        return find(self.written).parser.typed is not None

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """Its help."""
        return find(self.written).parser.format_help()
