"""Whether this operating system can hold a gang."""

from __future__ import annotations

import sys

from .errors import UnsupportedPlatform

__all__ = ["check"]


def check(platform: str = sys.platform) -> None:
    """Refuse an operating system that lacks what holding a gang needs.

    Parameters
    ----------
    platform : str
        As ``sys.platform`` names it.

    Raises
    ------
    UnsupportedPlatform
        It is not Linux.
    """
    if platform == "win32":
        raise UnsupportedPlatform(
            "mwmagic holds processes together with what Linux offers and Windows does not; "
            "install WSL2 (`wsl --install`) and run Jupyter inside it"
        )
    if not platform.startswith("linux"):
        raise UnsupportedPlatform(
            f"mwmagic needs Linux (pidfd, subreaper, SO_REUSEPORT), not {platform}; "
            "run Jupyter in a Linux container or virtual machine"
        )
