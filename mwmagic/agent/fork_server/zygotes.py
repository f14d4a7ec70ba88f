"""The agent's handles on its zygotes; `zygote` is the process itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import suppress

from ..family import Row
from ..system import contents, spawn, waiting_in
from ..wire import CHUNK_BYTES, LABEL, LABEL_BYTES, parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..family import Closing, Family
    from ..process import Process
    from ..system import EventWriter, Loop

STOPPED = "T"
"""The state of a process that a signal has stopped, and no debugger."""

HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Has the C library ask for huge pages, which hold 140 of the 340 MB that imports write.

A fork, and the end of one, then take two thirds of the time, as the kernel copies fewer page
tables: 5 ms less of 15 for each. The variable acts as a process starts, so workers do not have it.
"""

QUOTED_BYTES = 2000
"""How much of a zygote's output is quoted when the zygote dies."""


class Zygote:
    """A process that has imported what workers need and forks them on request."""

    def __init__(
        self, key: str, channel: socket.socket, output: int, reply: int, pid: int = 0
    ) -> None:
        self.key = key
        self.began = time.monotonic()
        self.seconds: float | None = None
        self.retired = False
        self.error: str | None = None
        self.unfit: str | None = None
        self.basis: dict[str, Any] = {}
        self.socket = channel
        self.socket.settimeout(0)
        self.output = output
        self.reply = reply
        self.pid = pid
        self.pidfd = -1
        self._orders: list[tuple[int, int, int, int]] = []

    @classmethod
    def spawned(cls, command: dict[str, Any]) -> Zygote:
        """Start a process."""
        channel, far = socket.socketpair()
        output = os.memfd_create("zygote")
        own = {"PYTHONUNBUFFERED": "1", LABEL: " " * LABEL_BYTES}
        env = {**HUGE_PAGES, **command["env"], **own}
        with far:
            ends = (far.fileno(), output)
            pid, reply = spawn(command["argv"], env, command["cwd"], ends)
        return cls(command["key"], channel, output, reply, pid)

    @property
    def ready(self) -> bool:
        """Whether it can be forked."""
        return self.seconds is not None and not self.retired

    def hear(self) -> None:
        """Read its only message: one line of JSON when its imports are done."""
        try:
            said = parsed(self.socket.recv(CHUNK_BYTES))
        except (OSError, ValueError):
            return  # it died without a message
        self.error, self.unfit = said.get("error"), said.get("module")
        if self.error is None:
            self.basis = said["basis"]
            self.seconds = time.monotonic() - self.began

    def fork(self, process: Process) -> int:
        """Have a worker requested by `send`; return the pipe on which it will answer."""
        words = process.command["argv"]
        request = {"argv": words, "env": process.environment, "cwd": process.command["cwd"]}
        request |= {"tag": process.tag, "attributes": process.command["attributes"]}
        file = os.memfd_create("request")
        try:
            os.write(file, json.dumps(request).encode("ascii"))
            reply, answer = os.pipe2(os.O_CLOEXEC)
        except OSError:
            os.close(file)
            raise
        os.set_blocking(reply, False)
        self._orders.append((file, process.log.writer, answer, process.line.far.fileno()))
        return reply

    def send(self) -> None:
        """Send the requests; one that cannot be sent is answered by nothing."""
        for order in self._orders:
            with suppress(OSError):
                socket.send_fds(self.socket, [b"f"], order)
            file, _, answer, _ = order
            os.close(file)
            os.close(answer)
        self._orders.clear()

    def retire(self) -> None:
        """Let it end once it has forked what it was asked for."""
        self.send()
        self.retired = True
        with suppress(OSError):  # it is ending anyway
            self.socket.shutdown(socket.SHUT_WR)

    def end_stopped(self) -> bool:
        """Kill it if a signal has stopped it, so that it neither forks nor ends; return whether."""
        stat = contents(f"/proc/{self.pid}/stat")
        if not stat or Row(self.pid, stat).state != STOPPED:
            return False
        os.kill(self.pid, signal.SIGKILL)
        self.seconds, self.error = None, "a signal had stopped it"
        return True

    def last_words(self, status: int) -> str:
        """Return why it died, from its message and its output."""
        if self.unfit:
            return self.error or ""
        code = os.waitstatus_to_exitcode(status)
        how = f"exited with code {code}" if code >= 0 else f"was killed by signal {-code}"
        start = max(0, os.fstat(self.output).st_size - QUOTED_BYTES)
        said = waiting_in(self.reply) or os.pread(self.output, QUOTED_BYTES, start)
        text = said.decode("utf-8", "replace").strip()
        return f"the warm process {how}: {self.error or text}".rstrip(": ")

    def close(self) -> None:
        """Close all that is open."""
        self.socket.close()
        for descriptor in (self.output, self.reply, self.pidfd):
            if descriptor >= 0:
                os.close(descriptor)


class Zygotes:
    """All zygotes, by the key with which they were requested."""

    def __init__(self, loop: Loop, events: EventWriter, family: Family, closing: Closing) -> None:
        self.loop = loop
        self.events = events
        self.family = family
        self.closing = closing
        self.known: dict[str, Zygote] = {}

    def get(self, key: str | None) -> Zygote | None:
        """Return the zygote with a key, ready or not."""
        return self.known.get(key) if key is not None else None

    @property
    def importing(self) -> list[Zygote]:
        """Those that are not ready yet."""
        return [one for one in self.known.values() if one.seconds is None]

    def end_stopped(self) -> None:
        """Kill those that a signal has stopped as they import: starts wait for them."""
        for zygote in self.importing:
            zygote.end_stopped()

    def send(self) -> None:
        """Request the workers that are to be forked.

        All at once, since the first ones would have this process wait for its turn to request more.
        """
        for zygote in self.known.values():
            zygote.send()

    def warm(self, command: dict[str, Any]) -> None:
        """Start a zygote, or report again that it is ready."""
        key = command["key"]
        if key in self.known:
            self.warmed(self.known[key])
            return
        try:
            zygote = self.known[key] = Zygote.spawned(command)
        except OSError as error:
            self.lost(key, str(error))
        else:
            self.follow(zygote)

    def cool(self, command: dict[str, Any]) -> None:
        """Let a zygote end; of its end nothing is reported."""
        zygote = self.known.get(command["key"])
        if zygote is not None:
            zygote.retire()

    def spoil(self, key: str) -> None:
        """Let a zygote end that has read what is not as it was."""
        zygote = self.known.get(key)
        if zygote is not None and zygote.ready:
            zygote.retire()
            self.events.emit("stale", key=key)

    def follow(self, zygote: Zygote) -> None:
        """Watch a zygote's message and its end."""
        self.family.helpers.add(zygote.pid)
        zygote.pidfd = os.pidfd_open(zygote.pid)
        self.loop.watch(zygote.socket.fileno(), lambda: self.heard_from(zygote))
        self.loop.watch(zygote.pidfd, lambda: self.cooled(zygote))

    def heard_from(self, zygote: Zygote) -> None:
        """Report that a zygote is ready; it sends no other message."""
        zygote.hear()
        self.loop.unwatch(zygote.socket.fileno())
        self.warmed(zygote)

    def warmed(self, zygote: Zygote) -> None:
        """Report a zygote that is ready."""
        if zygote.ready:
            fields = {"pid": zygote.pid, "seconds": zygote.seconds, **zygote.basis}
            self.events.emit("warmed", key=zygote.key, **fields)

    def cooled(self, zygote: Zygote) -> None:
        """Report a zygote's death; its workers live on."""
        pid, status = os.waitpid(zygote.pid, os.WNOHANG)
        if not pid:
            return
        zygote.hear()
        if self.closing.since is None and not zygote.retired:
            self.lost(zygote.key, zygote.last_words(status), zygote.unfit)
        self.loop.unwatch(zygote.pidfd)
        self.loop.unwatch(zygote.socket.fileno())
        zygote.close()
        del self.known[zygote.key]
        self.family.helpers.discard(zygote.pid)

    def lost(self, key: str, error: str, module: str | None = None) -> None:
        """Report that there is no zygote, and which module's import is the reason, if one is."""
        self.events.emit("cooled", key=key, error=error, module=module)
