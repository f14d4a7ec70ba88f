"""The supervisor: owns a cluster, its ports and its run, and sends their status."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic.engines.link import within
from mwmagic.errors import (
    ClusterEnding,
    ClusterError,
    ClusterPending,
    FileTrouble,
    MwmagicError,
    NoRun,
    RunActive,
)
from mwmagic.frameworks import framework_for
from mwmagic.model.cluster import Task, find_task
from mwmagic.model.messages import Launch
from mwmagic.model.ownership import package_of
from mwmagic.model.status import RunState
from mwmagic.model.values import as_json
from mwmagic.record import RunDirectory
from mwmagic.words.file import file_words, present_words, surrogate_words
from mwmagic.words.live import kept_words
from mwmagic.words.run import words

from .files import Fetches, destination
from .pool import MachinePool
from .program import Assigned, TaskProgram, Unknown, assigned
from .server import Client, Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mwmagic.engines import Engine
    from mwmagic.model.messages import Message, Start
    from mwmagic.model.options import ClusterOptions

    from .pool import Loss
    from .run import ActiveRun

__all__ = ["Supervisor"]

NEWS_SECONDS = 0.1
"""The shortest time between two snapshots."""

NEWS_RATIO = 4.0
"""How many times as long as a snapshot took the next one waits: with 1,000 tasks it takes long."""

OWNER_SECONDS = 20.0
"""Time limit for an owner to connect."""

SIGNAL_SECONDS = 0.3
"""How long a signal to all processes of a job may take from the first of them to the last."""

LATE_SECONDS = 5.0
"""Seconds after its grace at which a run that is being closed is no longer waited for."""

BEGINNINGS = frozenset({"launch", "restart", "update", "detach"})
"""The requests that a cluster refuses once it is ending."""

PLACED = frozenset({"launch", "restart", "fetch"})
"""The requests that need machines."""

ANSWERED_LATER = frozenset({"cell", "look", "carry"})
"""The requests that are answered by what happens to what they ask for."""


@contextmanager
def _troubles(what: str, path: Path | None = None) -> Iterator[None]:
    """Put into words why a file cannot be written, or code not be encoded."""
    try:
        yield
    except OSError as error:
        raise FileTrouble(f"{what}: {file_words(error, path)}") from error
    except UnicodeEncodeError as error:
        raise ClusterError(surrogate_words(error)) from error


def _accept(draft: str, script: Path) -> None:
    """Put a launch's draft in its place: it is accepted, and nothing that could read it runs."""
    if draft:
        target = script.resolve()
        with _troubles("the cell cannot be written", target):
            Path(draft).replace(target)


def _active_run() -> type[ActiveRun]:
    """Return the class of runs, whose import takes long: no declaration waits for it."""
    from .run import ActiveRun

    return ActiveRun


class Supervisor:
    """The process that owns one cluster's gang."""

    def __init__(self, start: Start, socket: Path, engine: Engine | None = None) -> None:
        self._own: dict[str, Any] = {}
        self.run: ActiveRun | None = None
        self._pool = MachinePool(start, self._on_event, self._lost, self._changed, engine)
        self._fetches = Fetches(self._send_news_soon)
        self._late: dict[int, list[Unknown]] = {}
        self._server = Server(socket, self._answer, self._abandoned)
        self._closed = asyncio.Event()
        self._reservation = _Reservation(self._begin_end)
        self._left = False
        self._hurried = False
        self._stirred = asyncio.Event()
        self._news_timer: asyncio.TimerHandle | None = None
        self._news_at = self._news_seconds = 0.0
        self._news_stage: object = None
        self._requests: dict[str, Callable[[Client, Message], None]] = {
            "hello": self._meet,
            "snapshot": self._look,
            "launch": self._launch,
            "stop": self._stop,
            "restart": self._restart,
            "signal": self._signal,
            "stacks": self._stacks,
            "cell": self._cell,
            "look": self._look_up,
            "interrupt": self._interrupt,
            "reply": self._reply,
            "carry": self._carry,
            "fetch": self._fetch,
            "forget": self._forget,
            "update": self._update,
            "detach": self._detach,
            "leave": self._leave,
            "close": self._close,
        }

    @property
    def options(self) -> ClusterOptions:
        """The declaration as it is now: some of it can be updated."""
        return self._pool.options

    async def open(self) -> None:
        """Start to listen, and to get the machines: a scheduler may take hours."""
        await self._server.open()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as it is under nohup
                loop.add_signal_handler(number, self._asked)
        loop.call_later(OWNER_SECONDS, self._expect_owner)
        self._settling = asyncio.create_task(self._settle())

    async def _settle(self) -> None:
        """Get the machines, or end soon: the owner, which may not have come yet, learns why."""
        try:
            await self._pool.open()
        except (MwmagicError, OSError):
            asyncio.get_running_loop().call_later(OWNER_SECONDS, self._begin_end)
        self._changed()
        self._send_news()  # the client that declared the cluster waits for just this
        _active_run()

    async def serve(self) -> None:
        """Serve until a client closes the cluster or its owner is gone."""
        await self._closed.wait()
        self._settling.cancel()
        await asyncio.gather(self._settling, return_exceptions=True)
        await self._fetches.close()
        if self.run is not None and not self.run.over:
            await self._end(self.run)
        await self._pool.close()
        if self.run is not None and not self.run.over:
            self.run.abandoned()
        self._send_news()
        if self.run is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self.run.flush)
        await self._server.close()

    async def _end(self, run: ActiveRun) -> None:
        """Stop a run: with its grace, unless the owner vanished without a word."""
        if not self._hurried:
            run.stop(None, None)
            with suppress(asyncio.TimeoutError):
                await within(run.options.grace + LATE_SECONDS, self._quiet(run))
        if not run.over:
            run.stop(None, 0.0)

    async def _quiet(self, run: ActiveRun) -> None:
        """Wait until a run is over, or need not be waited for any longer."""
        while not run.over and not self._hurried:
            self._stirred.clear()
            await self._stirred.wait()

    def _asked(self) -> None:
        """Close because a signal asks for it; the second one does not wait."""
        if self._closed.is_set():
            self._hurry()
        self._begin_end()

    def _begin_end(self) -> None:
        """Begin to close; from now on there is no new owner, and nothing else begins."""
        self._reservation.end()
        self._server.ending = True
        self._closed.set()

    def _hurry(self) -> None:
        self._hurried = True
        self._stirred.set()

    def _expect_owner(self) -> None:
        if not self._server.owned:
            self._abandoned()

    def _abandoned(self) -> None:
        """Close soon: the owner's end may be the first of a signal to all processes of a job."""
        asyncio.get_running_loop().call_later(SIGNAL_SECONDS, self._close_at_once)

    def _close_at_once(self) -> None:
        """Close without grace, unless it was asked for or there is a new owner in the meantime."""
        if self._server.owned or self._closed.is_set():
            return
        if self.options.detach or self.options.hold:
            self._part()
        else:
            self._hurry()
            self._begin_end()

    def _part(self) -> None:
        """Continue without an owner: stop the run, unless it is detached, and keep the machines."""
        self._left = True
        if self.run is not None and not self.run.over and not self.options.detach:
            self.run.stop(None, None)
        self._changed()

    def _reserve(self) -> None:
        """Reserve the machines for another owner, but only for some time while nothing runs."""
        idle = self._left and (self.run is None or self.run.over)
        waits = self.options.hold or (self._pool.settled and self.options.idle)
        if not idle or not waits:
            self._reservation.end()
        elif self._reservation.until is None and not self._closed.is_set():
            self._reservation.begin(waits)

    # Agents.

    def _on_event(self, event: Message) -> None:
        if event["type"] in ("warmed", "cooled", "stale", "warming"):
            self._changed()
        elif self.run is not None and event["type"] == "usage":
            self.run.usage(event)
        elif self.run is not None and "process" in event:
            self.run.on_event(event)

    def _lost(self, loss: Loss) -> None:
        if self.run is not None and not self.run.over:
            self.run.lost(loss)
        if self._reservation.until is not None and all(one.lost for one in self._pool.machines):
            self._begin_end()  # nothing is left to reserve
        self._changed()

    # News.

    def _changed(self) -> None:
        self._stirred.set()
        self._reserve()
        if self.run is not None and self.run.over:
            self._pool.renew()
            self._send_news()
        elif self._stage == self._news_stage:
            self._send_news_soon()
        else:
            self._send_news_soon(urgent=True)

    @property
    def _stage(self) -> object:
        """How far the run is; a change is sent without the pause that other news wait for."""
        return None if self.run is None else (self.run.gang.state, self.run.gang.attempt)

    def _send_news_soon(self, *, urgent: bool = False) -> None:
        loop = asyncio.get_running_loop()
        pause = NEWS_SECONDS if urgent else max(NEWS_SECONDS, NEWS_RATIO * self._news_seconds)
        when = (self._news_at if urgent else loop.time()) + pause
        if self._news_timer is not None and self._news_timer.when() > when:
            self._news_timer.cancel()
            self._news_timer = None
        if self._news_timer is None:
            self._news_timer = loop.call_at(when, self._send_news)

    def _send_news(self) -> None:
        if self._news_timer is not None:
            self._news_timer.cancel()
            self._news_timer = None
        began, self._news_stage = time.monotonic(), self._stage
        news = self.snapshot()
        if self.run is not None:
            known = self.run.directory.trouble
            self.run.write(news["run"])
            if self.run.directory.trouble != known:  # no other news would say so
                news = self.snapshot()
        self._server.broadcast({"type": "snapshot", **news})
        self._news_at = time.monotonic()
        self._news_seconds = self._news_at - began

    def snapshot(self) -> dict[str, Any]:
        """Return the cluster and its latest run as JSON values."""
        cluster = {
            "options": self.options.as_json(),
            "pid": os.getpid(),
            "placing": asdict(self._pool.placing),
            "addresses": self._addresses(),
            "shares": self._pool.shares,
            "machines": [as_json(machine) for machine in self._pool.machines],
            "fetches": self._fetches.as_json(),
            "idle": self._reservation.since,
            "reserved": self._reservation.until,
        }
        return {"cluster": cluster, "run": self.run.status().as_json() if self.run else None}

    def _addresses(self) -> dict[str, str]:
        """Return where the tasks are; there are none before the cluster is placed."""
        placed = self._pool.spec.placed if self._pool.settled else ()
        return {str(task): address for task, address in placed}

    # Requests.

    def _answer(self, client: Client, message: Message) -> dict[str, Any] | None:
        if self._closed.is_set() and message["type"] in BEGINNINGS:
            raise ClusterEnding(
                "the cluster is ending; `%mw_cluster` with its options declares it again"
            )
        if message["type"] in PLACED and not self._pool.settled:
            said = self._pool.placing.message
            raise ClusterPending(f"the cluster waits for its machines{said and f' ({said})'}")
        self._requests[message["type"]](client, message)
        return None if message["type"] in ANSWERED_LATER else self.snapshot()

    def _look(self, _client: Client, _message: Message) -> None:
        """Save what a client may read next; the answer to every request is a snapshot."""
        if self.run is not None:
            self.run.directory.save_cells()

    def _meet(self, client: Client, _message: Message) -> None:
        if client.owner:
            self._left = False
            self._reserve()

    def _close(self, _client: Client, _message: Message) -> None:
        self._begin_end()

    def _detach(self, client: Client, _message: Message) -> None:
        self._adopt({"detach": True})
        self._server.disown(client)
        self._part()

    def _leave(self, client: Client, _message: Message) -> None:
        """Let an owner go: unlike one that vanishes, it leaves time for the run's end."""
        if not client.owner:
            return
        self._server.disown(client)
        if self.options.detach or self.options.hold:
            self._part()
        else:
            self._begin_end()

    def _update(self, _client: Client, message: Message) -> None:
        self._adopt(message["options"])
        self._changed()

    def _adopt(self, changes: Mapping[str, Any]) -> None:
        """Update the declaration, for everything that reads it from now on."""
        options = self.options.updated(changes)
        self._pool.declared = replace(self._pool.declared, options=options)

    def _active(self) -> ActiveRun:
        if self.run is None or self.run.over:
            raise NoRun("nothing is running on this cluster")
        return self.run

    def _task(self, name: str) -> Task:
        return find_task(name, self.options.members)

    def _launch(self, _client: Client, message: Message) -> None:
        members = self.options.members
        tasks = [self._task(name) for name in message["tasks"]] or list(members)
        alone = tasks[0] if len(tasks) == 1 and len(members) > 1 else None
        launch = Launch.read(message)
        run = self._forming(message["options"], keep=launch.keep)
        options = self.options.updated(message["options"])
        with self._recorded(run, launch.script) as directory:
            source = directory.save_source(launch.script, alone, message["source"])
            directory.save_modules(source, launch.path)
            _accept(message["draft"], launch.path)
        found = self._assigned(launch, source) if self.options.warm else Assigned()
        programs = dict.fromkeys(tasks, TaskProgram(launch, source, found))
        if run is None:
            self._begin(directory, options, message["options"], programs)
        else:
            run.launch(programs)

    def _assigned(self, launch: Launch, source: Path) -> Assigned:
        """Read which variables a program sets before it imports."""
        readers = (*framework_for(self.options.framework).warm, *self.options.preload)
        code = source.read_bytes()
        found = assigned(code, launch.path.parent, [*map(package_of, readers)])
        found.late = self._late.setdefault(hash(code), found.late)
        return found

    def _forming(self, own: dict[str, Any], *, keep: bool) -> ActiveRun | None:
        """Return the run that waits for tasks, if one does; `own` are a launch's options."""
        if self.run is not None and self.run.gang.state is RunState.FORMING:
            self._check_own(self.run, own)
            self._check_keep(self.run, keep=keep)
            return self.run
        if self.run is not None and not self.run.over:
            number, state = self.run.directory.number, words(self.run.status())
            if self.run.live:
                raise RunActive(
                    f"run {number} is a live session; `%mw_stop` (in Python `run.stop()`) ends it "
                    "with its variables, which --replace does not"
                )
            if self.run.gang.state is RunState.KEPT:
                raise RunActive(f"run {number} is kept: {kept_words(self.run.status())}")
            raise RunActive(
                f"run {number} is still going ({state}); wait for it, stop it, or launch this with "
                "--replace (in Python replace=True), which stops it first"
            )
        return None

    def _check_own(self, run: ActiveRun, own: dict[str, Any]) -> None:
        """Refuse options that a later launch of a run gives otherwise than the first did."""
        for name, value in own.items():
            first = getattr(run.options, name)
            if value != first:
                raise ClusterError(
                    f"run {run.directory.number} waits for its other tasks, and its first launch "
                    f"had {name} {first}: leave out {name} {value} here, or give it in the first "
                    "launch too"
                )

    def _check_keep(self, run: ActiveRun, *, keep: bool) -> None:
        """Refuse a launch that keeps its process in a run that does not, or the reverse."""
        if keep != run.keep:
            raise ClusterError(
                f"run {run.directory.number} waits for its other tasks, and its first launch had "
                f"{'' if run.keep else 'no '}--keep: "
                + ("add it here too" if run.keep else "leave it out here too")
            )

    @contextmanager
    def _recorded(self, run: ActiveRun | None, script: str) -> Iterator[RunDirectory]:
        """Yield a run's directory for its code, or a new one, which is removed on an error."""
        name = script.rpartition("/")[2].partition(".")[0]
        with _troubles("the run cannot be recorded"):
            directory = run.directory if run else RunDirectory.create(self.options.root, name)
            try:
                yield directory
            except BaseException:
                if run is None:
                    directory.discard()
                raise

    def _begin(
        self,
        directory: RunDirectory,
        options: ClusterOptions,
        own: dict[str, Any],
        programs: Mapping[Task, TaskProgram],
    ) -> None:
        """Begin a run with its first programs; `own` are the options that are not the cluster's."""
        start, first = replace(self._pool.declared, options=options), next(iter(programs.values()))
        self._own = own
        self.run = run = _active_run()(directory, self._pool, start, self._changed, first)
        run.launch(programs)
        run.write()  # while the processes start
        directory.flush()  # its owner may ask for a log as soon as it knows of the run

    def _stop(self, _client: Client, message: Message) -> None:
        task = None if message["task"] is None else self._task(message["task"])
        self._active().stop(task, message["grace"])

    def _restart(self, _client: Client, _message: Message) -> None:
        if self.run is None or not self.run.programs:
            raise NoRun("nothing ran on this cluster yet, so there is nothing to restart")
        if not self.run.over:
            self._start_again(self.run)
            return
        old = self.run
        if not all(one.source.is_file() for one in old.programs.values()):
            raise NoRun(
                f"the code of run {old.directory.number} is gone from {old.directory.path}; "
                "launch it again from its cell or file"
            )
        options = self.options.updated(self._own)
        with self._recorded(None, old.status().script) as directory:
            scripts = {one.source: one.launch.path for one in old.programs.values()}
            copies = {source: directory.copy_source(source) for source in scripts}
            for source, script in scripts.items():
                directory.save_modules(copies[source], script)
            programs = {
                task: replace(one, source=copies[one.source]) for task, one in old.programs.items()
            }
        self._begin(directory, options, self._own, programs)

    @staticmethod
    def _start_again(run: ActiveRun) -> None:
        if run.gang.stopping:
            raise RunActive(
                f"run {run.directory.number} is being stopped; restart it when it is over"
            )
        run.restart()

    def _signal(self, _client: Client, message: Message) -> None:
        self._active().signal(self._task(message["task"]), message["signal"])

    def _stacks(self, _client: Client, _message: Message) -> None:
        self._active().examine()

    def _cell(self, client: Client, message: Message) -> None:
        run = self._active()
        names = self._names(message["tasks"])
        report = partial(client.report, message["id"])
        cell = message["name"], message["source"]
        run.session.submit(names, *cell, report, alone=message["alone"])
        self._changed()

    def _names(self, tasks: list[str]) -> list[str]:
        """Return the names of these tasks, or of all where there are none."""
        return [str(task) for task in map(self._task, tasks)] or list(
            map(str, self.options.members)
        )

    def _look_up(self, client: Client, message: Message) -> None:
        report = partial(client.report, message["id"])
        names = self._names(message["tasks"])
        self._active().session.look(names, message["wanted"], message["text"], report)

    def _interrupt(self, _client: Client, message: Message) -> None:
        self._active().session.interrupt(message["cell"])

    def _reply(self, _client: Client, message: Message) -> None:
        self._active().session.reply(str(self._task(message["task"])), message["text"])

    def _carry(self, client: Client, message: Message) -> None:
        tasks = [self._task(name) for name in message["tasks"]] or list(self.options.members)
        session = self._active().session
        carrying = session.carry(tasks, Path(message["path"]), back=message["back"])
        self._server.answer_later(client, message["id"], carrying)

    def _fetch(self, _client: Client, message: Message) -> None:
        task, path = self._task(message["task"]), message["path"]
        program = None if self.run is None else self.run.programs.get(task)
        cwd = self.options.directory if program is None else program.launch.cwd
        to = destination(cwd, path, message["to"])
        fetch = self._pool.fetch(task, cwd, path, to)
        if fetch.state != "here" and to.exists() and not message["overwrite"]:
            raise FileTrouble(present_words(to, "`--to` names another place"))
        self._fetches.begin(message["key"], fetch, self._pool.node(task).channel)

    def _forget(self, _client: Client, message: Message) -> None:
        self._fetches.forget(message["key"])


class _Reservation:
    """A timer that runs while a cluster is reserved for a next owner.

    `since` and `until` are seconds of the wall clock, and None unless it runs.
    """

    def __init__(self, expired: Callable[[], None]) -> None:
        self._expired = expired
        self._timer: asyncio.TimerHandle | None = None
        self.since: float | None = None
        self.until: float | None = None

    def begin(self, seconds: float) -> None:
        """Begin to wait for an owner."""
        self.end()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expired)
        self.since = time.time()
        self.until = self.since + seconds

    def end(self) -> None:
        """Wait no longer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.since = self.until = None
