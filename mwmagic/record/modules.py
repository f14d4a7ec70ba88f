"""The modules beside a program that it imports, as far as its source says."""

from __future__ import annotations

import ast
import hashlib
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["TEXT_BYTES", "beside", "digest", "is_changed"]

TEXT_BYTES = 2**20
"""How much text of modules a record holds in total; of the others it holds hashes."""

MODULE_COUNT = 500
"""The most modules that are looked at."""


def beside(source: bytes, script: Path) -> dict[str, bytes]:
    """Return the modules of its own folder that a program imports, directly or through others.

    By their paths there, with what they hold. Raises OSError if one cannot be read.
    """
    folder = script.parent
    found: dict[str, bytes] = {}
    sources = [source]
    while sources and len(found) < MODULE_COUNT:
        names = sorted(set(_imported(sources.pop())))
        for path in (path for name in names for path in _files(folder, name)):
            key = str(path.relative_to(folder))
            if key not in found and path != script and len(found) < MODULE_COUNT:
                found[key] = path.read_bytes()
                sources.append(found[key])
    return found


def digest(data: bytes) -> str:
    """Return the hash of what a module holds."""
    return hashlib.sha256(data).hexdigest()


def is_changed(path: Path, was: str) -> bool:
    """Return whether a file no longer has a hash, or cannot be read any more."""
    try:
        return digest(path.read_bytes()) != was
    except OSError:
        return True


def _imported(source: bytes) -> Iterator[str]:
    """Yield the first names of what a source imports, wherever it does."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are the program's own, when it runs
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _files(folder: Path, name: str) -> Iterator[Path]:
    """Yield the files of a module or a package in a folder."""
    module, package = folder / f"{name}.py", folder / name
    if module.is_file():
        yield module
    elif package.is_dir():
        yield from _within(package)


def _within(package: Path) -> Iterator[Path]:
    """Yield the files of a package; a folder with data in it is not searched."""
    for path in sorted(package.iterdir()):
        if path.suffix == ".py" and path.is_file():
            yield path
        elif (path / "__init__.py").is_file():
            yield from _within(path)
