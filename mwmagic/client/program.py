"""A program that is to be launched: its text, and whether what it imports is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from mwmagic.errors import NotInstalled

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["check_keras", "read_program"]


def read_program(path: Path) -> str:
    """Return a program's text.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path} to run")
    # Byte for byte, whatever encoding it declares: the interpreter is to judge that.
    return path.read_bytes().decode("utf-8", "surrogateescape")


def check_keras(mode: str) -> None:
    """Refuse a way to use Keras whose package is missing.

    Raises
    ------
    NotInstalled
        The message holds the command that installs it.
    """
    if mode == "legacy" and find_spec("tf_keras") is None:
        raise NotInstalled('Keras 2 is not installed: pip install "tf-keras"')
