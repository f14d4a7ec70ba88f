"""The commands that an agent starts: this package's programs, where its machine has them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mwmagic.engines.channel import Channel

__all__ = ["warm_command", "worker_command"]


def worker_command(channel: Channel) -> list[str]:
    """Return the command that runs a user's file; its name and its arguments follow."""
    return [channel.executable, f"{channel.package}/worker/bootstrap.py"]


def warm_command(
    channel: Channel,
    modules: Sequence[str],
    postponed: Mapping[str, str] = MappingProxyType({}),
    ahead: Sequence[str] = (),
) -> list[str]:
    """Return the command of a process to be forked from, which imports modules before.

    Without those `ahead` it works as well; see `Framework` for those `postponed`.
    """
    python, bootstrap = worker_command(channel)
    program = f"{channel.package}/agent/__main__.py"
    later = [f"{importer}={module}" for importer, module in postponed.items()]
    return [python, program, "zygote", bootstrap, *modules, "--", *ahead, "--", *later]
