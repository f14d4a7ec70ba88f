"""A supervisor in the test's own process, and a client of it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from mwmagic.model.messages import MESSAGE_BYTES, REQUESTS, VERSION, Launch, check, decode, encode
from mwmagic.supervisor.supervisor import Supervisor


class Refused(Exception):
    """A request was refused; `message` is the supervisor's answer."""

    def __init__(self, message):
        super().__init__(message["error"])
        self.message = message


class Client:
    """A connection to a supervisor.

    Attributes
    ----------
    news : dict
        The latest snapshot.
    """

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.number = 0
        self.news = {}

    async def ask(self, kind, **fields):
        self.number += 1
        self.writer.write(encode(check({"type": kind, "id": self.number, **fields}, REQUESTS)))
        while (message := await self.next()).get("id") != self.number:
            pass
        if message["type"] == "error":
            raise Refused(message)
        return message["result"]

    async def next(self):
        line = await self.reader.readline()
        assert line, "the supervisor hung up"
        message = decode(line)
        if message["type"] != "error":
            self.news = message.get("result", message)
        return message

    async def until(self, wanted):
        """Wait for a snapshot and return it."""
        while not wanted(self.news):
            await self.next()
        return self.news

    async def launch(self, **fields):
        order = {"tasks": [], "source": "", "draft": "", "options": {}}
        order |= Launch("main.py", cwd="/").as_json()
        return (await self.ask("launch", **{**order, **fields}))["run"]

    async def placed(self, *states):
        """Wait until the cluster's placing is in one of these states and return it."""
        news = await self.until(lambda news: news["cluster"]["placing"]["state"] in states)
        return news["cluster"]["placing"]

    async def state(self, *states):
        """Wait until the run is in one of these states and return it."""
        news = await self.until(lambda news: news["run"] and news["run"]["state"] in states)
        return news["run"]


async def joined(folder, *, owner=True):
    """Return a new client of the supervisor in a folder."""
    client = Client(*await asyncio.open_unix_connection(folder / "s", limit=MESSAGE_BYTES))
    await client.ask("hello", version=VERSION, owner=owner)
    return client


@asynccontextmanager
async def served(start, folder, engine):
    """Serve a cluster, and own it."""
    one = Supervisor(start, folder / "s", engine)
    await one.open()
    serving = asyncio.create_task(one.serve())
    client = await joined(folder)
    client.engine, client.supervisor = engine, one
    try:
        yield client
    finally:
        client.writer.close()
        await serving
