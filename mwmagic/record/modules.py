"""The modules beside a program that it imports, as far as its source says."""

from __future__ import annotations

import ast
import hashlib
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["TEXT_BYTES", "beside", "digest"]

TEXT_BYTES = 2**20
"""How much text of modules a record holds in total; of the others it holds hashes."""

MODULE_COUNT = 500
"""The most modules that are looked at."""


def beside(source: bytes, script: Path) -> dict[str, Path]:
    """Return the modules of its own folder that a program imports, directly or through others."""
    folder = script.parent
    found: dict[str, Path] = {}
    sources = [source]
    while sources and len(found) < MODULE_COUNT:
        names = sorted(set(_imported(sources.pop())))
        for path in (path for name in names for path in _files(folder, name)):
            key = str(path.relative_to(folder))
            if key not in found and path != script and len(found) < MODULE_COUNT:
                found[key] = path
                sources.append(_read(path))
    return found


def digest(path: Path) -> str | None:
    """Return the hash of a file; None if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


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
