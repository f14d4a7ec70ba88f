"""The local engine: every task on this machine, under one agent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .engine import CODE, Host

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from mwmagic.model.cluster import Task
    from mwmagic.model.options import ClusterOptions

__all__ = ["LocalEngine"]


class LocalEngine:
    """This machine; see `mwmagic.engines.Engine`."""

    helpers: Collection[int] = ()

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options

    async def allocate(
        self,
        tasks: Sequence[Task],  # noqa: ARG002 - all of them fit
        *,
        avoid: Collection[str],  # noqa: ARG002 - there is no other machine
        notify: Callable[[str], None],  # noqa: ARG002 - nothing to wait for
    ) -> Sequence[Host]:
        """Return this machine."""
        agent = str(CODE / "agent" / "__main__.py")
        command = (sys.executable, "-I", "-S", agent)
        return [Host("localhost", "localhost", command, shared=True, here=True)]

    async def why(self, host: Host) -> str | None:  # noqa: ARG002 - no scheduler
        """Return None: there is no scheduler."""
        return None

    async def release(self) -> None:
        """Do nothing: the agent ends with its channel."""
