"""What a run came from: the versions of its libraries, the state of its directory."""

from __future__ import annotations

import platform
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["commit", "versions"]

GIT_SECONDS = 2.0
"""How long git may take; in a huge repository on a slow disk it may take longer."""

_STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=no")
_OBJECT = "# branch.oid "


def versions(modules: Iterable[str]) -> dict[str, str | None]:
    """Return the version of Python, of mwmagic and of modules, none of which is imported.

    Parameters
    ----------
    modules : iterable of str
        The names under which they are imported.

    Returns
    -------
    dict
        None where a module is not installed, or not by a package.
    """
    found = {module: _version(module) for module in ("mwmagic", *modules)}
    return {"python": platform.python_version(), **found}


def _version(module: str) -> str | None:
    # Its import takes longer than most of what a supervisor does before it listens.
    from importlib import metadata

    try:
        return metadata.version(module)
    except metadata.PackageNotFoundError:
        pass  # its package may have another name, as tensorflow-cpu has
    for package in metadata.packages_distributions().get(module, ()):
        return metadata.version(package)
    return None


def commit(directory: Path) -> dict[str, Any] | None:
    """Return which commit a directory is at.

    It takes as long as git does, which is bounded.

    Returns
    -------
    dict or None
        ``commit``, None before the first one, and ``dirty``: whether tracked files
        differ from it. None where there is no repository, no git, or no answer.
    """
    # Neither take a lock that the user's own git may need, nor start a monitor that stays.
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
