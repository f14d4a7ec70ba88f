"""The text of a program that is to be launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_program"]


def read_program(path: Path) -> str:
    """Return a program's text."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} to run")
    # Byte for byte, whatever encoding it declares: the interpreter is to judge that.
    return path.read_bytes().decode("utf-8", "surrogateescape")
