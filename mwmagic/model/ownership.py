"""Whose code a file is: the user's, mwmagic's, or what is installed."""

from __future__ import annotations

import posixpath
import re

__all__ = ["is_ours", "is_users"]

_OURS = re.compile(r"/mwmagic/(?:(?:agent|frameworks|model|repairs|worker)/\w+|keras)\.py$")
"""The rooms that run inside a worker."""

_OTHERS = re.compile(
    r"^<|/(?:site|dist)-packages/|/lib/python3|/python3\d+\.zip/|/__autograph_generated_file"
    r"|^[^/].*\.(?:pyx|pxd|pxi)$"  # the relative paths that compiled packages give
)


def is_ours(file: str) -> bool:
    """Return whether a file is a part of mwmagic that runs inside workers."""
    return _OURS.search(file) is not None


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
    return file == script or _OTHERS.search(inside) is None
