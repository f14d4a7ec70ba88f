"""The agent's handles on its zygotes; `zygote` is the process itself."""

from __future__ import annotations

import json
import os
import socket
import time

from .spawn import spawn
from .system import waiting_in
from .variables import LABEL, LABEL_BYTES
from .wire import CHUNK_BYTES, parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .closing import Closing
    from .family import Family
    from .loop import Loop
    from .outlet import Outlet
    from .process import Process

QUOTED_BYTES = 2000
"""How much of a zygote's output is quoted when the zygote dies."""


class Zygote:
    """A process that has imported what workers need and forks them on request."""

    def __init__(self, command: dict[str, Any]) -> None:
        self.key: str = command["key"]
        self.began = time.monotonic()
        self.seconds: float | None = None
        self.error: str | None = None
        self.unfit: str | None = None
        self.socket, far = socket.socketpair()
        self.socket.settimeout(0)
        self.output = os.memfd_create("zygote")
        env = {**command["env"], "PYTHONUNBUFFERED": "1", LABEL: " " * LABEL_BYTES}
        with far:
            ends = (far.fileno(), self.output)
            self.pid, self.reply = spawn(command["argv"], env, command["cwd"], ends)
        self.pidfd = os.pidfd_open(self.pid)

    def hear(self) -> None:
        """Read its only message: one line of JSON when its imports are done."""
        try:
            said = parsed(self.socket.recv(CHUNK_BYTES))
        except (OSError, ValueError):
            return  # it died without a message
        self.error, self.unfit = said.get("error"), said.get("module")
        if self.error is None:
            self.seconds = time.monotonic() - self.began

    def fork(self, process: Process) -> int | None:
        """Request a worker; return the pipe on which it will answer, or None if that fails."""
        words = process.command["argv"]
        request = {"argv": words, "env": process.environment, "cwd": process.command["cwd"]}
        request["badge"] = process.badge
        letter = os.memfd_create("request")
        reply, answer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reply, False)
        try:
            descriptors = [letter, process.log.writer, answer, process.line.far.fileno()]
            os.write(letter, json.dumps(request).encode("ascii"))
            socket.send_fds(self.socket, [b"f"], descriptors)
        except OSError:
            os.close(reply)
            return None
        finally:
            os.close(letter)
            os.close(answer)
        return reply

    def last_words(self, status: int) -> str:
        """Return why it died, from its message and its output."""
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
            os.close(descriptor)


class Zygotes:
    """All zygotes, by the key with which they were requested."""

    def __init__(self, loop: Loop, outlet: Outlet, family: Family, closing: Closing) -> None:
        self.loop = loop
        self.outlet = outlet
        self.family = family
        self.closing = closing
        self.known: dict[str, Zygote] = {}

    def get(self, key: str | None) -> Zygote | None:
        """Return the zygote with a key, ready or not."""
        return self.known.get(key) if key is not None else None

    def warm(self, command: dict[str, Any]) -> None:
        """Start a zygote, or report again that it is ready."""
        key = command["key"]
        if key in self.known:
            self.warmed(self.known[key])
            return
        try:
            zygote = Zygote(command)
        except OSError as error:
            self.outlet.emit("cooled", key=key, error=str(error), module=None)
            return
        self.known[key] = zygote
        self.family.helpers.add(zygote.pid)
        self.loop.watch(zygote.socket.fileno(), lambda: self.heard_from(zygote))
        self.loop.watch(zygote.pidfd, lambda: self.cooled(zygote))

    def heard_from(self, zygote: Zygote) -> None:
        """Report that a zygote is ready; it sends no other message."""
        zygote.hear()
        self.loop.unwatch(zygote.socket.fileno())
        self.warmed(zygote)

    def warmed(self, zygote: Zygote) -> None:
        """Report a zygote that is ready."""
        if zygote.seconds is not None:
            fields = {"pid": zygote.pid, "seconds": zygote.seconds}
            self.outlet.emit("warmed", key=zygote.key, **fields)

    def cooled(self, zygote: Zygote) -> None:
        """Report a zygote's death; its workers live on."""
        pid, status = os.waitpid(zygote.pid, os.WNOHANG)
        if not pid:
            return
        zygote.hear()
        if self.closing.since is None:
            error = zygote.last_words(status)
            self.outlet.emit("cooled", key=zygote.key, error=error, module=zygote.unfit)
        self.loop.unwatch(zygote.pidfd)
        self.loop.unwatch(zygote.socket.fileno())
        zygote.close()
        del self.known[zygote.key]
        self.family.helpers.discard(zygote.pid)
