"""A magic as IPython knows it before it is used: a name, and where to find the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .catalogue import find

if TYPE_CHECKING:
    from collections.abc import Callable

    from .session import Session

__all__ = ["Entry"]


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
