"""IPython magics."""

from __future__ import annotations

from .extension import MWMagic, load, unload

__all__ = ["MWMagic", "load", "unload"]
