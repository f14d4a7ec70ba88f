"""A connection to an agent: commands go out, events come in."""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mwmagic.errors import SupervisorError
from mwmagic.model.messages import COMMANDS, EVENTS, VERSION, Message, check, decode, encode

from . import code_archive
from .link import within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from . import Host
    from .link import Link

__all__ = ["Channel"]

AGENT_ANSWER_SECONDS = 30.0
AGENT_CLOSE_SECONDS = 5.0

PARTING_SECONDS = 1.0
"""How long the command may take to say why it ends, once its output has ended."""

DEAF_SECONDS = 5.0
"""How long an agent on this machine may take to answer once it was asked to end something."""

OVERDUE_SECONDS = 0.5
"""How much longer than its lease an agent may take to answer before it counts as lost."""

MARGIN_SECONDS = 2.0
"""How much later than its lease an agent has surely ended all that it had started."""

LEASE_PINGS = 20
"""The number of pings per lease, at least: a lease begins with the last one that arrives."""

PING_SECONDS = 0.5
"""The longest time between two of them, by which a loss may be reported later."""

HELD_UP_SECONDS = 1.0
"""How long an answer takes, at least, that is remembered: something holds it up."""

HELD_UP_LIMIT = 100
"""How many of them are remembered."""

CLOCK_PINGS = 5
"""The number of round trips that compare a remote machine's clock; the fastest counts."""


class Lease:
    """How long the agent on another machine lets its workers live unless pings extend that.

    Attributes
    ----------
    on_unresponsive
        Called when `unresponsive` has changed.
    unresponsive
        Whether the agent has not answered for half its lease: soon it may be lost.
    no_answer
        For how long the agent did not answer when the link was broken for that.
    fenced
        Then the time, in monotonic seconds, at which nothing that it had started lives any more.
    answered
        When the latest ping that was answered had been sent, in monotonic seconds.
    """

    # Fencing: a restart must not run beside workers of a machine that is cut off but alive. The
    # agent ends its workers, and itself, once its lease has expired, so the machine need not be
    # reached for that. Here it counts as lost a margin later, which `fenced` says.

    def __init__(
        self,
        ping: Callable[[float, float], Awaitable[object]],
        break_link: Callable[[], None],
    ) -> None:
        """Extend it with `ping`, which gets the seconds for an answer and the lease's end."""
        self.on_unresponsive: Callable[[], None] = lambda: None
        self.unresponsive = False
        self.no_answer = ""
        self.fenced = self.answered = 0.0
        self.seconds = 0.0  # an agent on this machine has none
        self._send = ping
        self._break_link = break_link
        self._pinging = asyncio.Lock()
        self._asked: float | None = None  # when the ping was sent that waits for its answer
        self._late: deque[tuple[float, float]] = deque(maxlen=HELD_UP_LIMIT)
        self._renewing: asyncio.Task[None] | None = None
        self._over = False

    def begin(self, seconds: float) -> None:
        """Extend it from now on."""
        self.seconds = seconds
        self._renewing = asyncio.create_task(self._renew())

    def end(self) -> None:
        """Extend it no more: the link ends."""
        self._over = True
        if self._renewing is not None:
            self._renewing.cancel()

    async def answers(self, since: float) -> None:
        """Return once the agent has answered a ping sent after a moment, or will not.

        To hear from a machine is no proof that it hears us: after a break, TCP may
        resume in one direction many seconds before it does in the other.
        """
        while self.seconds and self.answered < since and not (self._over or self.no_answer):
            await self._ping()

    def latest(self, since: float) -> float:
        """Return the longest time that an answer took, or takes, since a moment; 0.0 if none did.

        Only what took notably long is remembered.
        """
        waits = 0.0 if self._asked is None else time.monotonic() - self._asked
        return max([waits, *(seconds for moment, seconds in self._late if moment >= since)])

    async def _renew(self) -> None:
        while not self._over:
            await asyncio.sleep(min(self.seconds / LEASE_PINGS, PING_SECONDS))
            await self._ping()

    async def _ping(self) -> None:
        """Extend the lease, and break the link if the agent does not answer in time.

        Each ping waits for the answer to the previous one: if only the way back
        is broken, the agent's lease must expire too. The lease ends at a moment of the agent's
        clock: a ping that is delivered late does not make it longer.
        """
        async with self._pinging:
            if self._over or self.no_answer:
                return
            loop, patience = asyncio.get_running_loop(), self.seconds + OVERDUE_SECONDS
            overdue = loop.call_later(self.seconds / 2, self._set_unresponsive, True)  # noqa: FBT003 - no keywords
            self._asked = asked = time.monotonic()
            try:
                await self._send(patience, asked + self.seconds)
            except SupervisorError:
                if not self._over:
                    self.fenced = asked + self.seconds + MARGIN_SECONDS
                    self.no_answer = f"no answer for {patience:g} s"
                self._break_link()
            else:
                self._on_answer(asked)
            finally:
                overdue.cancel()

    def _on_answer(self, asked: float) -> None:
        self.answered, self._asked = asked, None
        now = time.monotonic()
        if now - asked >= HELD_UP_SECONDS:
            self._late.append((now, now - asked))
        if self.unresponsive:
            self._set_unresponsive(False)  # noqa: FBT003 - no keywords

    def _set_unresponsive(self, unresponsive: bool) -> None:
        self.unresponsive = unresponsive
        self.on_unresponsive()


class Channel:
    """A connection to an agent over a link.

    Attributes
    ----------
    listener
        Called with each event that is not an answer; times in it are on this process's clock.
    lost
        Called once, if the agent disappears without having been closed.
    skew
        Seconds by which the machine's monotonic clock is ahead of this one's.
    executable, package, folder
        The paths there of the Python that runs the agent, of this package, and of the folder for
        files that are brought.
    addresses
        The machine's IP addresses, by network interface.
    """

    def __init__(self, link: Link, host: Host) -> None:
        self.host = host
        self.listener: Callable[[Message], None] = lambda _: None
        self.lost: Callable[[], None] = lambda: None
        self.skew = 0.0
        self.executable = self.package = self.folder = ""
        self.addresses: dict[str, list[str]] = {}
        self.lease = Lease(self._compare, link.kill)
        self._link = link
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._next = 0
        self._hello: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._greeting: dict[str, float] = {}
        self._closing = False
        self._end: SupervisorError | None = None
        self._check: asyncio.Task[None] | None = None
        self._heard_all = asyncio.Event()
        self._link.events.listen(self._hear, self._heard_all.set)
        self._listening = asyncio.create_task(self._listen())

    @property
    def pid(self) -> int | None:
        """The id of the child process that carries the link, if there is one."""
        return self._link.pid

    @classmethod
    async def open(cls, host: Host, *, silence: float = 0.0, sample: float = 1.0) -> Channel:
        """Start the agent on a machine and greet it."""
        channel = cls(await host.connect(), host)
        channel._greeting = {"silence": silence, "sample": sample}
        channel._greet()
        try:
            await channel._greeted()
        except BaseException:
            await channel.close()
            raise
        if silence:
            channel.lease.begin(silence)
        return channel

    def _greet(self) -> None:
        parent = os.getpid() if self.host.here else None
        inherit = not self.host.here
        self.send("hello", version=VERSION, parent=parent, inherit=inherit, **self._greeting)

    def _bring(self) -> None:
        """Send the code to a machine that does not have it, and greet it again."""
        self._link.write(code_archive())
        self._greet()

    async def answers(self, since: float) -> None:
        """Return once the agent has answered a ping sent after a moment, or is lost."""
        await self.lease.answers(since)
        if self.lease.no_answer:
            await asyncio.wait([self._listening])

    async def _demand(self, seconds: float) -> None:
        """Break the link if the agent does not answer in time."""
        try:
            await self.request("ping", seconds=seconds, until=None)
        except SupervisorError:
            self._link.kill()

    async def _greeted(self) -> None:
        """Wait for the agent's greeting, and compare clocks with another machine."""
        try:
            hello = await within(AGENT_ANSWER_SECONDS, self._hello)
        except asyncio.TimeoutError:
            raise self._failure("did not answer") from None
        self.executable, self.package = hello["executable"], hello["package"]
        self.folder, self.addresses = hello["folder"], hello["addresses"]
        self.host.stderr.forget()  # a welcome, not why it may end
        if not self.host.here:
            trips = [await self._compare() for _ in range(CLOCK_PINGS)]
            least, most = min(trips, key=lambda bounds: bounds[1] - bounds[0])
            self.skew = (least + most) / 2

    async def _compare(
        self, seconds: float | None = None, until: float | None = None
    ) -> tuple[float, float]:
        """Ping the agent; return how far its clock is ahead, at least and at most.

        Its lease is extended until a moment of this process's clock. Clocks drift apart; `skew`
        follows once it is proved wrong, so times stay in order.
        """
        sent = time.monotonic()
        there = None if until is None else until + self.skew
        answer = await self.request("ping", seconds=seconds, until=there)
        least, most = float(answer["time"]) - time.monotonic(), float(answer["time"]) - sent
        self.skew = min(max(self.skew, least), most)
        return least, most

    def send(self, kind: str, **fields: Any) -> None:  # noqa: ANN401 - JSON values
        """Send a command; if the agent is gone nothing happens, as `lost` reports that."""
        self._link.write(encode(check({"type": kind, **fields}, COMMANDS)))

    async def request(
        self,
        kind: str,
        *,
        seconds: float | None = None,
        **fields: Any,  # noqa: ANN401 - JSON values
    ) -> Message:
        """Send a command, wait for its answer, and return that."""
        if self._end is not None:
            raise self._end
        self._next += 1
        number = self._next
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            self.send(kind, **{_NUMBERED.get(kind, "id"): number}, **fields)
            return await within(seconds or AGENT_ANSWER_SECONDS, answer)
        except asyncio.TimeoutError:
            raise SupervisorError(f"the agent on {self.host.name} did not answer") from None
        finally:
            del self._answers[number]

    async def hold(self, count: int) -> list[int]:
        """Have the agent hold `count` ports on its machine, and return them."""
        answer = await self.request("hold", count=count)
        return [int(port) for port in answer["ports"]]

    def end(self, process: str, grace: float) -> None:
        """Have the agent end a process; an agent here that does not listen is killed instead.

        One on another machine has its lease.
        """
        self.send("end", process=process, grace=grace)
        self._link.wake()
        if self.host.here and (self._check is None or self._check.done()):
            self._check = asyncio.create_task(self._demand(DEAF_SECONDS))

    async def close(self) -> None:
        """End the agent and everything it started."""
        self._closing = True
        self._rest()
        self.send("close")
        self._link.close()
        self._link.wake()
        await self._ended(AGENT_CLOSE_SECONDS)
        await self._listening

    async def _ended(self, seconds: float) -> None:
        """Wait for the link to end; break it if that takes too long."""
        try:
            await within(seconds, self._link.wait())
        except asyncio.TimeoutError:
            self._link.kill()
            await self._link.wait()

    def _rest(self) -> None:
        """Expect no more answers."""
        self.lease.end()
        if self._check is not None:
            self._check.cancel()

    def _hear(self, line: bytes) -> None:
        try:
            event = check(decode(line), EVENTS)
            number = event.get(_NUMBERED.get(event["type"], "id"))
            if event["type"] == "hello":
                self._settle(self._hello, event)
            elif event["type"] == "need":
                self._bring()
            elif event["type"] == "refused" and event["command"] == "hello":
                self._settle(self._hello, self._refusal(event))
            elif number is not None:
                answer = self._refusal(event) if event["type"] == "refused" else event
                self._settle(self._answers.get(number), answer)
            else:
                self.listener(self._dated(event))
        except Exception as error:  # noqa: BLE001 - an agent that nobody hears must not continue
            traceback.print_exc()
            self.host.stderr.feed(f"\n{error}".encode(errors="replace"))
            self._link.events.mute()
            self._link.kill()
            self._heard_all.set()

    async def _listen(self) -> None:
        """Wait for the agent's end."""
        await self._heard_all.wait()
        if not self._closing:
            await self._ended(PARTING_SECONDS)  # it may have closed only its output
        self._gone()

    def _failure(self, what: str) -> SupervisorError:
        """Return an error with the command's own words, and the next step if it never worked."""
        parts = [f"the agent on {self.host.name} {what}", self.host.stderr.last]
        error = ": ".join(filter(None, parts))
        greeted = self._hello.done() and not self._hello.cancelled()
        return SupervisorError(
            error if greeted or not self.host.hint else f"{error}. {self.host.hint}"
        )

    def _refusal(self, event: Message) -> SupervisorError:
        return SupervisorError(f"the agent on {self.host.name} refuses: {event['error']}")

    def _dated(self, event: Message) -> Message:
        """Return an event with its times on this process's clock.

        Any code in a worker may have written its report, whose time need not be a number.
        """
        for part in (event, event.get("report")):
            if self.skew and part:
                with suppress(KeyError, TypeError, OverflowError):
                    part["time"] -= self.skew
        return event

    def _settle(
        self, future: asyncio.Future[Message] | None, answer: Message | SupervisorError
    ) -> None:
        if future is None or future.done():
            return
        if isinstance(answer, SupervisorError):
            future.set_exception(answer)
            future.exception()  # marks it as retrieved: who asked may have been cancelled
        else:
            future.set_result(answer)

    def _gone(self) -> None:
        self._rest()
        self._end = self._failure("ended")
        for future in (self._hello, *self._answers.values()):
            self._settle(future, self._end)
        if not self._closing:
            self.lost()


_NUMBERED = {"ping": "n", "pong": "n"}
"""The field with the number of a request and of its answer, if it is not ``id``."""
