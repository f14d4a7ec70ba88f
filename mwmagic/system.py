"""Checks that the operating system can run a gang."""

from __future__ import annotations

import sys

from .errors import UnsupportedPlatform

__all__ = ["check"]


def check(platform: str = sys.platform) -> None:
    """Refuse an operating system that lacks what a gang needs."""
    if platform == "win32":
        raise UnsupportedPlatform(
            "mwmagic needs Linux to keep its processes together, and this is Windows; "
            "install WSL2 (`wsl --install`) and run Jupyter inside it"
        )
    if not platform.startswith("linux"):
        raise UnsupportedPlatform(
            f"mwmagic needs Linux (pidfd, subreaper, SO_REUSEPORT), not {platform}; "
            "run Jupyter in a Linux container or virtual machine"
        )
