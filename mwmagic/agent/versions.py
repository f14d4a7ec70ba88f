"""Prints which versions of packages this Python has, without importing them.

The agent starts it as ``python DIR/__main__.py versions NAME ...``.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec

from .fork_server.zygote import hide_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def is_there(name: str) -> bool:
    """Return whether a package can be imported; what an uninstallation leaves behind cannot."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def version_of(name: str) -> str | None:
    """Return the version of a package, no text if it has none, and None if it is not there."""
    if not is_there(name):
        return None
    try:
        return version(name) or ""
    except PackageNotFoundError:  # tf-nightly and others bring the same package
        others = packages_distributions().get(name, ())
        return next((version(other) or "" for other in others), "")


def run(names: Iterable[str]) -> None:
    """Print a line of JSON."""
    hide_folder()
    sys.stdout.write(json.dumps({name: version_of(name) for name in names}))
