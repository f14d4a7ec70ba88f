"""A machine's warm process: what it has imported with, and what may be forked from it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from mwmagic.frameworks.environment import differing, is_early, is_settable
from mwmagic.model.findings import Finding, Symptom
from mwmagic.model.machine import Warm
from mwmagic.model.ownership import package_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mwmagic.engines.channel import Channel
    from mwmagic.model.messages import Message

    from .program import Assigned

__all__ = ["WarmProcess"]

IMPORT_SECONDS = 1.0
"""How often it is told that starts wait for an import, of which nothing else tells."""

REPLACE_SECONDS = 10.0
"""How long after a launch that it was not for another one is begun, if its run is not over before.

Its workers import at first, which would take longer beside the import of the next process.
"""


class WarmProcess:
    """Has a machine's agent keep a process that workers are forked from.

    `key` is the name by which the agent knows it, and `since` when its imports began.
    """

    def __init__(
        self, channel: Channel, waits: Callable[[], bool], listener: Callable[[Message], None]
    ) -> None:
        self.status = Warm()
        self.key = ""
        self.since = 0.0
        self._channel = channel
        self._waits = waits
        self._listener = listener
        self._command: Callable[[Sequence[str]], list[str]] = lambda _: []
        self._ahead: tuple[str, ...] = ()
        self._env: Mapping[str, str] = {}
        self._cwd = ""
        self._reads: frozenset[str] = frozenset()
        self._sets: dict[str, str] = {}
        self._left: dict[str, bool] = {}
        self._count = 0
        self._wanted: tuple[Mapping[str, str], str] | None = None
        self._latest: tuple[Mapping[str, str], str] | None = None
        self._cold: dict[str, Finding] = {}
        self._replacing: asyncio.TimerHandle | None = None
        self._ticking: asyncio.TimerHandle | None = None

    @property
    def alive(self) -> bool:
        """Whether it is there, or will be."""
        return self.status.state in ("importing", "ready")

    @property
    def importing(self) -> bool:
        """Whether it imports, which starts wait for."""
        return self.status.state == "importing"

    def begin(
        self,
        command: Callable[[Sequence[str]], list[str]],
        ahead: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
    ) -> None:
        """Start it, unless it is there."""
        if not self.alive:
            self._command, self._ahead = command, tuple(ahead)
            self._begin(env, cwd)

    def _begin(self, env: Mapping[str, str], cwd: str) -> None:
        self._count += 1
        self.key = f"warm-{self._count}"
        self.status = Warm("importing")
        self.since = time.monotonic()
        self._env, self._cwd, self._wanted = env, cwd, None
        self._reads, self._sets = frozenset(), {}
        argv = self._command(self._ahead)
        self._channel.send("warm", key=self.key, argv=argv, env=dict(env), cwd=cwd)
        self._tick()

    def _tick(self) -> None:
        """Send news each second while starts wait for the import."""
        if self._ticking is None and self.importing:
            loop = asyncio.get_running_loop()
            self._ticking = loop.call_later(IMPORT_SECONDS, self._ticked)

    def _ticked(self) -> None:
        self._ticking = None
        if self._waits() and self.importing:
            self._listener({"type": "warming"})
        self._tick()

    def refusal(self, env: Mapping[str, str], assigned: Assigned) -> Finding | None:
        """Return why a worker is not to be forked from it."""
        if self.status.state == "failed":
            return Finding(Symptom.COLD_FAILED, detail=self.status.error)
        names = differing(assigned.applied(env), self._env, self._reads, self._sets)
        if names:
            return Finding(Symptom.COLD_VARIABLE, detail=", ".join(names))
        for one in (*assigned.late, *assigned.unknown):
            if one.name is None or (is_early(one.name, self._reads) and is_settable(one.name)):
                return Finding(Symptom.COLD_UNKNOWN, at=one.line, detail=one.name)
        return None

    def launched(self, process: str, env: Mapping[str, str], cwd: str, why: Finding | None) -> None:
        """Note with what environment a process imports that starts, and why it is not forked."""
        env = {name: env[name] for name in env if name in self._env or not name.startswith("MWM")}
        self._latest = (env, cwd)
        if why is not None and why.symptom is Symptom.COLD_VARIABLE:
            self._wanted = self._latest
        if why is not None:
            self._cold[process] = why
            if self._replacing is None:
                loop = asyncio.get_running_loop()
                self._replacing = loop.call_later(REPLACE_SECONDS, self.renew)

    def why(self, event: Message) -> Finding | None:
        """Return why a process that started was not forked from it, if there was one."""
        own, told = self._cold.pop(event["process"], None), event["cold"]
        return own if told is None else Finding(Symptom(told["why"]), detail=told["what"] or None)

    def left_out(self) -> Finding | None:
        """Return what it lacks of what it was to import, each module once."""
        new = [why for why, told in self._left.items() if not told]
        self._left = dict.fromkeys(self._left, True)
        return Finding(Symptom.LEFT_OUT, detail="; ".join(new)) if new else None

    def _leave_out(self, *whys: str) -> None:
        for why in whys:
            self._left.setdefault(why.partition("\n")[0], False)

    def renew(self) -> None:
        """Start it again for the latest program that could not be forked from it, if any."""
        if self._replacing is not None:
            self._replacing.cancel()
            self._replacing = None
        if self._wanted is not None and self.alive:
            self._channel.send("cool", key=self.key)
            self._begin(*self._wanted)

    def lost(self, host: str) -> None:
        """Note that it ended with its agent."""
        self.status = Warm("failed", error=f"the agent on {host} ended")

    def close(self) -> None:
        """Stop the timers."""
        for timer in (self._ticking, self._replacing):
            if timer is not None:
                timer.cancel()

    def on_event(self, event: Message) -> None:
        """Take what becomes of it; start another one if that can be better."""
        if event["type"] == "warmed":
            self.status = Warm("ready", seconds=event["seconds"], pid=event["pid"])
            self._reads, self._sets = frozenset(event["reads"]), event["sets"]
            self._leave_out(*event["left"])
            return
        was, self.status = self.status, Warm("failed", error=event.get("error"))
        unfit = event.get("module")
        if unfit is not None:
            self._leave_out(event["error"])
            without = package_of(unfit)
            self._ahead = tuple(name for name in self._ahead if package_of(name) != without)
            self._begin(self._env, self._cwd)
        elif event["type"] == "stale":
            self._begin(*(self._latest or (self._env, self._cwd)))
        elif was.state == "ready":  # it was killed, as the kernel does where memory is short
            self._begin(self._env, self._cwd)
