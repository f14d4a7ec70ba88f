"""Where a run came from: versions of its libraries, its directory's commit, modules beside it."""

from __future__ import annotations

import ast
import hashlib
import platform
import subprocess
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = [
    "MODULE_COUNT",
    "TEXT_BYTES",
    "beside",
    "commit",
    "digest",
    "is_changed",
    "statements",
    "versions",
]

GIT_SECONDS = 2.0
"""How long to wait for git, which may take longer in a huge repository on a slow disk."""

_STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=no")
_OBJECT = "# branch.oid "


def versions(modules: Iterable[str]) -> dict[str, str | None]:
    """Return the versions of Python, mwmagic and some modules, without importing those."""
    found = {module: _version(module) for module in ("mwmagic", *modules)}
    return {"python": platform.python_version(), **found}


def _version(module: str) -> str | None:
    # This import takes longer than most of what a supervisor does before it listens.
    from importlib import metadata

    try:
        return metadata.version(module)
    except metadata.PackageNotFoundError:
        pass  # its package may have another name, as tensorflow-cpu has
    for package in metadata.packages_distributions().get(module, ()):
        return metadata.version(package)
    return None


def commit(directory: Path) -> dict[str, Any] | None:
    """Return the commit that is checked out in a directory.

    It takes as long as git does, up to `GIT_SECONDS`.
    """
    # Take no lock that the user's own git may need, and start no monitor that keeps running.
    options = ("--no-optional-locks", "-c", "core.fsmonitor=false")
    command = ["git", *options, *_STATUS]
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    names = [line.removeprefix(_OBJECT) for line in lines if line.startswith(_OBJECT)]
    name = names[0] if names and names[0] != "(initial)" else None
    return {"commit": name, "dirty": any(not line.startswith("#") for line in lines)}


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
        for path in (path for name in _imported(sources.pop()) for path in _files(folder, name)):
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


@lru_cache(MODULE_COUNT)
def _imported(source: bytes) -> list[str]:
    """Return the first names of what a source imports, wherever it does; each launch asks again."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are the program's own, when it runs
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = set()
    for node in statements(tree):
        if isinstance(node, ast.Import):
            found |= {one.name.partition(".")[0] for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return sorted(found)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a statement and all that are inside it, without what these consist of."""
    left = [node]
    while left:
        node = left.pop()
        yield node
        for name in ("finalbody", "orelse", "handlers", "cases", "body"):
            inner = getattr(node, name, ())
            left += reversed(inner) if isinstance(inner, list) else ()


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
