"""Whose code a file is: the user's, mwmagic's, or what is installed; and names of modules.

A worker asks this as it exits, when importing `re` could import modules of the user's that have the
names of Python's own.
"""

from __future__ import annotations

import posixpath

__all__ = ["is_module_name", "is_ours", "is_users", "package_of"]

_ROOMS = ("agent", "frameworks", "model", "recovery", "repairs", "worker")
"""The rooms that run inside a worker."""

_MODULES = ("hooks", "keras")
"""The modules beside them that do."""

_HOMES = frozenset(
    posixpath.dirname(posixpath.dirname(path))
    for path in (posixpath.abspath(__file__), posixpath.realpath(__file__))
)
"""This package's folder, also as a worker names it."""

_DELIVERED = {"code-": 64, "new-": 8, "mwmagic-": 8}
"""How the folders begin and how many characters follow, into which other machines unpack it."""

_INSTALLED = (
    "/site-packages/",
    "/dist-packages/",
    "/lib/python3",
    "/__autograph_generated_file",
)
"""What the paths of files contain that are no user's."""

_COMPILED = (".pyx", ".pxd", ".pxi")
"""How the relative paths end that compiled packages give."""


def is_ours(file: str) -> bool:
    """Return whether a file is a part of mwmagic that runs inside workers.

    A project of the user's may lie in a folder of that name and have rooms of the same names.
    """
    folder, _, name = file.removesuffix(".py").rpartition("/")
    if not file.endswith(".py") or not name.replace("_", "a").isalnum():
        return False
    room, wing = folder.rpartition("/"), folder.rpartition("/")[0].rpartition("/")
    inside = any(name in _ROOMS and _is_home(home) for home, _, name in (room, wing))
    return inside or (name in _MODULES and _is_home(folder))


def _is_home(folder: str) -> bool:
    """Return whether this package lies in a folder, here, installed or on another machine."""
    above, _, name = folder.rpartition("/")
    parent = above.rpartition("/")[2]
    unpacked = any(
        parent.startswith(begin) and len(parent) == len(begin) + count
        for begin, count in _DELIVERED.items()
    )
    installed = parent in ("site-packages", "dist-packages")
    return folder in _HOMES or (name == "mwmagic" and (installed or unpacked))


def _is_installed(file: str) -> bool:
    """Return whether a file is generated, or belongs to Python or to a package."""
    compiled = not file.startswith("/") and file.endswith(_COMPILED)
    listed = any(one in file for one in _INSTALLED)
    return file.startswith("<") or compiled or listed or _is_zipped(file)


def _is_zipped(file: str) -> bool:
    """Return whether a file is in the archive of Python's own modules, as ``python311.zip``."""
    folders = file.split("/")[1:-1] if ".zip/" in file else ()
    return any(
        name.startswith("python3") and name.endswith(".zip") and name[7:-4].isdecimal()
        for name in folders
    )


def is_users(file: str, script: str = "") -> bool:
    """Return whether a file is the user's own code."""
    if not file or is_ours(file):
        return False
    folder = posixpath.dirname(script).rstrip("/")
    inside = file[len(folder) :] if folder and file.startswith(f"{folder}/") else file
    return file == script or not _is_installed(inside)


def is_module_name(text: str) -> bool:
    """Return whether a text may be the name of a module, as ``import`` has it."""
    return all(part.isidentifier() for part in text.split("."))


def package_of(module: str) -> str:
    """Return the topmost package of a module's name, or the name itself."""
    return module.partition(".")[0]
