"""Whose code a file is: the user's, mwmagic's, or what is installed."""

from __future__ import annotations

import posixpath

__all__ = ["attribute", "file_of", "is_ours", "is_users"]

_ROOMS = ("agent", "frameworks", "model", "repairs", "worker")
"""The rooms that run inside a worker."""

_INSTALLED = (
    "/site-packages/",
    "/dist-packages/",
    "/lib/python3",
    "/__autograph_generated_file",
)
"""What the paths of files contain that are no user's."""

_COMPILED = (".pyx", ".pxd", ".pxi")
"""How the relative paths end that compiled packages give."""


def attribute(module: object, name: str) -> object:
    """Return what a module has; one that is lazy would import itself if it were asked."""
    return getattr(module, "__dict__", {}).get(name)


def file_of(module: object) -> str:
    """Return the file that a module comes from, if it says any."""
    file = attribute(module, "__file__")
    return file if isinstance(file, str) else ""


def is_ours(file: str) -> bool:
    """Return whether a file is a part of mwmagic that runs inside workers."""
    folder, _, name = file.rpartition("/")
    if not name.endswith(".py"):
        return False
    return file.endswith("/mwmagic/keras.py") or folder.endswith(
        tuple(f"/mwmagic/{room}" for room in _ROOMS)
    )


def _is_installed(file: str) -> bool:
    """Return whether a file is generated, or belongs to Python or to a package."""
    zipped = "/python3" in file and ".zip/" in file
    compiled = not file.startswith("/") and file.endswith(_COMPILED)
    return file.startswith("<") or zipped or compiled or any(one in file for one in _INSTALLED)


def is_users(file: str, script: str = "") -> bool:
    """Return whether a file is the user's own code.

    Parameters
    ----------
    file : str
        The file, as a traceback or a stack names it.
    script : str
        The path of the user's script. It is the user's wherever it lies, and so is what lies
        in its folder but for packages that are installed there.
    """
    if not file or is_ours(file):
        return False
    folder = posixpath.dirname(script).rstrip("/")
    inside = file[len(folder) :] if folder and file.startswith(f"{folder}/") else file
    return file == script or not _is_installed(inside)
