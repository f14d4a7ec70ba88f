"""A connection to an agent: commands out, events in."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from typing import TYPE_CHECKING, Any

from mwmagic.errors import SupervisorError
from mwmagic.model.messages import COMMANDS, EVENTS, LIMIT, VERSION, Message, check, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Channel"]

HELLO_SECONDS = 30.0
CLOSE_SECONDS = 5.0


class Channel:
    """An agent that runs as the child of a command: itself, ``ssh`` or ``srun``.

    Parameters
    ----------
    process : asyncio.subprocess.Process
        Its standard input takes commands, its standard output gives events.
    host : str
        The name under which the other machines reach this one.

    Attributes
    ----------
    listener : callable
        Called with each event that answers no request.
    lost : callable
        Called once, when the agent is gone without having been closed.
    """

    def __init__(self, process: asyncio.subprocess.Process, host: str) -> None:
        if process.stdin is None or process.stdout is None:
            raise SupervisorError("the agent was started without pipes")
        self._input, self._output = process.stdin, process.stdout
        self.host = host
        self.listener: Callable[[Message], None] = lambda _: None
        self.lost: Callable[[], None] = lambda: None
        self.pid = process.pid
        self._process = process
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._next = 0
        self._hello: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._closing = False
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def open(
        cls,
        argv: Sequence[str],
        *,
        host: str,
        env: dict[str, str],
        parent: int | None,
        silence: float = 0.0,
        sample: float = 1.0,
    ) -> Channel:
        """Start an agent by a command and greet it.

        Parameters
        ----------
        argv, env
            The command and its environment.
        host : str
            The name under which the other machines reach this one.
        parent : int or None
            The process whose death ends the agent; None where it is on another machine.
        silence : float
            Seconds without a command after which the agent ends its workers; 0 is never.
        sample : float
            Seconds between two reports of CPU and memory.

        Raises
        ------
        SupervisorError
            The agent does not answer, or is of another version.
        """
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=env,
            limit=LIMIT,
            start_new_session=True,
        )
        channel = cls(process, host)
        channel.send("hello", version=VERSION, parent=parent, silence=silence, sample=sample)
        try:
            await asyncio.wait_for(channel._hello, HELLO_SECONDS)
        except asyncio.TimeoutError:
            await channel.close()
            raise SupervisorError(f"the agent on {host} did not answer: {argv}") from None
        except SupervisorError:
            await channel.close()
            raise
        return channel

    def send(self, kind: str, **fields: Any) -> None:  # noqa: ANN401 - JSON values
        """Tell the agent something; nothing happens when it is gone, which `lost` tells."""
        message = check({"type": kind, **fields}, COMMANDS)
        if not self._input.is_closing():
            self._input.write(encode(message))

    async def hold(self, count: int) -> list[int]:
        """Have the agent hold so many ports on its machine and return them.

        Raises
        ------
        SupervisorError
            The agent cannot, or is gone.
        """
        self._next += 1
        number = self._next
        self._answers[number] = asyncio.get_running_loop().create_future()
        self.send("hold", id=number, count=count)
        try:
            answer = await asyncio.wait_for(self._answers[number], HELLO_SECONDS)
        except asyncio.TimeoutError:
            raise SupervisorError(f"the agent on {self.host} did not answer") from None
        finally:
            del self._answers[number]
        return [int(port) for port in answer["ports"]]

    async def close(self) -> None:
        """End the agent and everything it started."""
        self._closing = True
        self.send("close")
        self._input.close()
        try:
            await asyncio.wait_for(self._process.wait(), CLOSE_SECONDS)
        except asyncio.TimeoutError:
            self._kill()
            await self._process.wait()
        await self._reader

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def _read(self) -> None:
        try:
            while line := await self._output.readline():
                self._take(check(decode(line), EVENTS))
        except Exception:  # noqa: BLE001 - an agent that nobody hears must not go on
            traceback.print_exc()
        if not self._closing:
            self._kill()  # it may have closed its output alone
            await self._process.wait()
        self._gone()

    def _take(self, event: Message) -> None:
        if event["type"] == "hello":
            self._settle(self._hello, event)
        elif event["type"] == "held":
            self._settle(self._answers.get(event["id"]), event)
        elif event["type"] == "refused":
            self._refused(event)
        else:
            self.listener(event)

    def _refused(self, event: Message) -> None:
        """Tell whoever waits for an answer."""
        error = SupervisorError(f"the agent on {self.host} refuses: {event['error']}")
        if event["command"] == "hello":
            self._settle(self._hello, error)
        elif event["command"] == "hold":
            self._settle(self._answers.get(event["id"]), error)
        else:
            self.listener(event)

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
        error = SupervisorError(f"the agent on {self.host} ended")
        for future in (self._hello, *self._answers.values()):
            self._settle(future, error)
        if not self._closing:
            self.lost()
