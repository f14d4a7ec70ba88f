"""A connection to an agent: commands out, events in."""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from typing import TYPE_CHECKING, Any

from mwmagic.errors import SupervisorError
from mwmagic.model.messages import COMMANDS, EVENTS, VERSION, Message, check, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from .engine import Host
    from .link import Link

__all__ = ["Channel"]

ANSWER_SECONDS = 30.0
CLOSE_SECONDS = 5.0

LEASE_SECONDS = 10.0
"""Without a command for so long the agent on another machine ends its workers, and itself."""

MARGIN_SECONDS = 2.0
"""How much later than that the machine counts as lost here: it has let go by then."""

PINGS = 4
"""Pings in a lease."""

CLOCK_PINGS = 5
"""Round trips by which a remote machine's clock is compared; the fastest counts."""


class Channel:
    """An agent, spoken to over a link.

    Parameters
    ----------
    link : Link
        Where its commands and events go.
    host : Host
        The machine that it runs on.

    Attributes
    ----------
    listener : callable
        Called with each event that answers no request; times in it are this process's.
    lost : callable
        Called once, when the agent is gone without having been closed.
    skew : float
        Seconds by which the machine's monotonic clock is ahead of this one's.
    """

    def __init__(self, link: Link, host: Host) -> None:
        self.host = host
        self.listener: Callable[[Message], None] = lambda _: None
        self.lost: Callable[[], None] = lambda: None
        self.skew = 0.0
        self._link = link
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._next = 0
        self._hello: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._closing = False
        self._lease: asyncio.Task[None] | None = None
        self._reader = asyncio.create_task(self._read())

    @property
    def pid(self) -> int | None:
        """The child process that carries the link, if there is one."""
        return self._link.pid

    @classmethod
    async def open(
        cls, host: Host, *, silence: float | None = None, sample: float = 1.0
    ) -> Channel:
        """Start the agent on a machine and greet it.

        Parameters
        ----------
        host : Host
            The machine.
        silence : float, optional
            Seconds without a command after which the agent ends its workers; 0 is
            never. By default `LEASE_SECONDS` on another machine, where neither side
            can be sure to notice when the link between them breaks.
        sample : float
            Seconds between two reports of CPU and memory.

        Raises
        ------
        OSError, SupervisorError
            The agent cannot be started, does not answer, or is of another version.
        """
        channel = cls(await host.connect(), host)
        parent = os.getpid() if host.here else None
        silence = (0.0 if host.here else LEASE_SECONDS) if silence is None else silence
        channel.send("hello", version=VERSION, parent=parent, silence=silence, sample=sample)
        try:
            await channel._greeted()
        except BaseException:
            await channel.close()
            raise
        if silence:
            channel._lease = asyncio.create_task(channel._renew(silence))
        return channel

    async def _renew(self, silence: float) -> None:
        """Keep the agent's lease alive, and break the link when it does not answer in time.

        There is no next ping before the last was answered: when only the way
        back is broken the agent is to let go too.
        """
        while True:
            await asyncio.sleep(silence / PINGS)
            try:
                await self.request("ping", seconds=silence + MARGIN_SECONDS)
            except SupervisorError:
                self._link.kill()
                return

    async def _greeted(self) -> None:
        """Wait for the agent's greeting, and compare clocks with another machine."""
        try:
            await asyncio.wait_for(self._hello, ANSWER_SECONDS)
        except asyncio.TimeoutError:
            raise SupervisorError(
                f"the agent on {self.host.name} did not answer: {list(self.host.command)}"
            ) from None
        if not self.host.here:
            trips = [await self._compare() for _ in range(CLOCK_PINGS)]
            self.skew = min(trips)[1]

    async def _compare(self) -> tuple[float, float]:
        """Return how long a ping took, and how far the clock is ahead by it."""
        sent = time.monotonic()
        answer = await self.request("ping")
        back = time.monotonic()
        return back - sent, float(answer["time"]) - (sent + back) / 2

    def send(self, kind: str, **fields: Any) -> None:  # noqa: ANN401 - JSON values
        """Send a command; nothing happens when the agent is gone, which `lost` reports."""
        self._link.write(encode(check({"type": kind, **fields}, COMMANDS)))

    async def request(
        self,
        kind: str,
        *,
        seconds: float | None = None,
        **fields: Any,  # noqa: ANN401 - JSON values
    ) -> Message:
        """Send a command that has an answer, and return that.

        Parameters
        ----------
        kind, **fields
            The command, but for its number.
        seconds : float, optional
            How long to wait; by default `ANSWER_SECONDS`.

        Raises
        ------
        SupervisorError
            The agent refuses, is gone, or does not answer in time.
        """
        self._next += 1
        number = self._next
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            self.send(kind, **{_NUMBERED.get(kind, "id"): number}, **fields)
            return await asyncio.wait_for(answer, seconds or ANSWER_SECONDS)
        except asyncio.TimeoutError:
            raise SupervisorError(f"the agent on {self.host.name} did not answer") from None
        finally:
            del self._answers[number]

    async def hold(self, count: int) -> list[int]:
        """Have the agent hold so many ports on its machine and return them.

        Raises
        ------
        SupervisorError
            The agent cannot, or is gone.
        """
        answer = await self.request("hold", count=count)
        return [int(port) for port in answer["ports"]]

    async def close(self) -> None:
        """End the agent and everything it started."""
        self._closing = True
        self._end_lease()
        self.send("close")
        self._link.close()
        try:
            await asyncio.wait_for(self._link.wait(), CLOSE_SECONDS)
        except asyncio.TimeoutError:
            self._link.kill()
            await self._link.wait()
        await self._reader

    def _end_lease(self) -> None:
        if self._lease is not None:
            self._lease.cancel()

    async def _read(self) -> None:
        try:
            while line := await self._link.events.readline():
                self._take(check(decode(line), EVENTS))
        except Exception:  # noqa: BLE001 - an agent that nobody hears must not go on
            traceback.print_exc()
        if not self._closing:
            self._link.kill()  # it may have closed its output alone
            await self._link.wait()
        self._gone()

    def _take(self, event: Message) -> None:
        number = event.get(_NUMBERED.get(event["type"], "id"))
        if event["type"] == "hello":
            self._settle(self._hello, event)
        elif event["type"] == "refused" and event["command"] == "hello":
            self._settle(self._hello, self._refusal(event))
        elif number is not None:
            answer = self._refusal(event) if event["type"] == "refused" else event
            self._settle(self._answers.get(number), answer)
        else:
            self.listener(self._dated(event))

    def _refusal(self, event: Message) -> SupervisorError:
        return SupervisorError(f"the agent on {self.host.name} refuses: {event['error']}")

    def _dated(self, event: Message) -> Message:
        """Return an event with this process's times."""
        for part in (event, event.get("report")):
            if self.skew and part and "time" in part:
                part["time"] -= self.skew
        return event

    def _settle(
        self, future: asyncio.Future[Message] | None, answer: Message | SupervisorError
    ) -> None:
        if future is None or future.done():
            return
        if isinstance(answer, SupervisorError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def _gone(self) -> None:
        self._end_lease()
        error = SupervisorError(f"the agent on {self.host.name} ended")
        for future in (self._hello, *self._answers.values()):
            self._settle(future, error)
        self._hello.cancelled() or self._hello.exception()  # nobody may wait for it any more
        if not self._closing:
            self.lost()


_NUMBERED = {"ping": "n", "pong": "n"}
"""The field that numbers a request and its answer, where it is not ``id``."""
