"""Where a run came from: the versions of its libraries, the commit of its directory."""

from __future__ import annotations

import platform
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["commit", "versions"]

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
