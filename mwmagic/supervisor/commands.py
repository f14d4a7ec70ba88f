"""The commands that an agent starts: this package's programs, where its machine has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mwmagic.engines.channel import Channel

__all__ = ["warm_command", "worker_command"]


def worker_command(channel: Channel) -> list[str]:
    """Return the command that runs a user's file; its name and its arguments follow."""
    return [channel.executable, f"{channel.package}/worker/bootstrap.py"]


def warm_command(channel: Channel, modules: Sequence[str], ahead: Sequence[str] = ()) -> list[str]:
    """Return the command of a process to be forked from, which imports modules before.

    Without those `ahead` it works as well.
    """
    python, bootstrap = worker_command(channel)
    program = f"{channel.package}/agent/__main__.py"
    return [python, program, "zygote", bootstrap, *modules, "--", *ahead]
