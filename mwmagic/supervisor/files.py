"""Files and other machines' disks: brought there, and copied from there as they grow."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import math
import os
import secrets
import shutil
import time
import uuid
from collections import deque
from contextlib import aclosing, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from mwmagic.agent.machine import write_piece
from mwmagic.agent.wire import (
    CHUNK_BYTES,
    LOG_LOST,
    REST_BYTES,
    REST_SECONDS,
    as_bytes,
    packed,
    unpacked,
)
from mwmagic.errors import ClusterError, FileTrouble, MwmagicError, SupervisorError
from mwmagic.record.paths import FOLDER
from mwmagic.words.file import file_words

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator

    from mwmagic.engines import Host
    from mwmagic.engines.channel import Channel
    from mwmagic.model.machine import Fetch
    from mwmagic.model.messages import Message

__all__ = ["PIECES", "Copy", "Disk", "Fetches", "LogCopy", "Logs", "destination"]

PIECES = 8
"""How many pieces of a file are under way at the same time: half a megabyte."""

T = TypeVar("T")

ID_CHARACTERS = 12


class Disk:
    """A machine's disk, which `shared` says to be this one's too."""

    def __init__(self, channel: Channel, root: Path, *, shared: bool) -> None:
        self.shared = shared
        self._channel = channel
        self._root = root
        own = hashlib.sha256(f"{os.uname().nodename}:{root}".encode()).hexdigest()[:ID_CHARACTERS]
        self._base = f"{channel.folder}/{root.name or 'root'}-{own}"
        self._brought: dict[Path, tuple[int, int]] = {}

    @classmethod
    async def of(cls, host: Host, channel: Channel, root: Path) -> Disk:
        """Return a machine's disk, which is looked at unless the engine knows it."""
        shared = await _sees(channel, root) if host.shared is None else host.shared
        disk = cls(channel, root, shared=shared)
        if not shared:
            owner = f"{os.uname().nodename}:{root}\n".encode()
            await disk._put(f"{disk._base}/{FOLDER}/belongs-to", 0, owner)
        return disk

    def there(self, path: str) -> str:
        """Return the path there of a file below the cluster's directory; others keep theirs."""
        if self.shared or not Path(path).is_relative_to(self._root):
            return path
        below = Path(path).relative_to(self._root)
        return self._base if below == Path() else f"{self._base}/{below}"

    def folder(self, path: str) -> str:
        """Return the directory there in which a program runs that is to run in `path`."""
        found = self.there(path)
        return self._base if found == path and not self.shared else found

    async def bring(self, paths: Iterable[Path]) -> None:
        """Bring files below the cluster's directory, and directories with all their files.

        A file that has not changed since it was last brought stays.
        """
        for path in _files(paths) if not self.shared else ():
            try:
                status = path.stat()
                state = (status.st_mtime_ns, status.st_size)
                if self._brought.get(path) != state:
                    await self._bring(path)
            except OSError as error:
                raise ClusterError(
                    f"a file for {self._channel.host.name}: {file_words(error, path)}"
                ) from error
            self._brought[path] = state

    async def _bring(self, path: Path) -> None:
        there = self.there(str(path))
        with path.open("rb") as file:
            puts = (self._put(there, offset, data) for offset, data in _pieces(file))
            async with aclosing(_in_order(puts)) as stored:
                async for _ in stored:
                    pass

    async def _put(self, path: str, offset: int, data: bytes) -> None:
        await self._channel.request("put", path=path, offset=offset, data=packed(data))


def _pieces(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the pieces of a file and their offsets; an empty file has one that is empty."""
    offset = 0
    while (data := file.read(CHUNK_BYTES)) or not offset:
        yield offset, data
        offset += len(data) or 1


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    """Return the files among the paths, and those below the directories among them."""
    for path in paths:
        if path.is_dir():
            yield from (one for one in sorted(path.rglob("*")) if one.is_file())
        else:
            yield path


async def _sees(channel: Channel, root: Path) -> bool:
    """Return whether a machine sees a new file of this one."""
    word = secrets.token_hex()
    probe = root / FOLDER / f"seen-by-{word[:ID_CHARACTERS]}"
    try:
        probe.parent.mkdir(0o700, exist_ok=True)
        probe.touch(0o600)
        probe.write_text(word)
        answer = await channel.request("fetch", path=str(probe), offset=0, bytes=len(word))
    except (OSError, SupervisorError):
        return False
    finally:
        probe.unlink(missing_ok=True)
    return bool(answer["data"] == packed(word.encode()))


class Copy:
    """A local copy, up to `size` bytes so far, of a file on another machine."""

    def __init__(self, channel: Channel, path: str, there: str) -> None:
        self.path = path
        self._there = there
        self.size = 0
        self._channel = channel
        self._holes: list[tuple[int, int]] = []

    def put(self, offset: int, data: bytes) -> None:
        """Write a piece that the agent sent; `fill` fetches the gap that it may leave before it."""
        if offset > self.size:
            self._holes.append((self.size, offset))
        self.size = max(self.size, offset + len(data))
        try:
            self._write(offset, data)
        except OSError:
            self._holes.append((offset, offset + len(data)))
            raise

    def lacks(self, size: int) -> int:
        """Return how many of the file's first bytes are missing."""
        return sum(end - start for start, end in self._holes) + max(0, size - self.size)

    async def fill(self, size: int) -> None:
        """Fetch what is missing of the file's first bytes."""
        if size > self.size:
            self._holes.append((self.size, size))
            self.size = size
        while self._holes:
            start, end = self._holes[0]
            async with aclosing(self._pieces(start, end)) as pieces:
                async for offset, data in pieces:
                    if offset != start:
                        break  # the piece before was shorter, as the file was then
                    if not data:
                        raise SupervisorError(f"{self.path} ends at {start} bytes, not at {end}")
                    self._write(start, data)
                    start += len(data)
                    self._holes[0] = (start, end)
            if start == end:
                del self._holes[0]

    def _write(self, offset: int, data: bytes) -> None:
        """Write a piece of the copy."""
        write_piece(self.path, offset, data)

    async def pull(self) -> None:
        """Fetch what was appended to the file since the last call, if the file exists."""
        with suppress(SupervisorError):  # the file does not exist yet, or the agent is gone
            await self.fill(self.size)
            while True:
                data, size = await self._fetch(self.size, CHUNK_BYTES)
                write_piece(self.path, self.size, data)  # even if empty, since the file exists
                self.size += len(data)
                if self.size >= size:
                    return
                await self.fill(size)

    def _pieces(self, start: int, end: int) -> AsyncGenerator[tuple[int, bytes], None]:
        """Fetch a part of the file in pieces; yield each and where it begins."""

        async def piece(offset: int) -> tuple[int, bytes]:
            data, _ = await self._fetch(offset, end - offset)
            return offset, data

        return _in_order(map(piece, range(start, end, CHUNK_BYTES)))

    async def _fetch(self, offset: int, count: int) -> tuple[bytes, int]:
        """Return a piece of the file, and the size of the file."""
        path, piece = self._source(offset, min(count, CHUNK_BYTES))
        answer = await self._channel.request("fetch", path=path, offset=offset, bytes=piece)
        return unpacked(answer["data"]), int(answer["size"])

    def _source(self, _offset: int, count: int) -> tuple[str, int]:
        """Return the file there that has a piece, and how much of the piece it may have."""
        return self._there, count


class LogCopy(Copy):
    """A copy of a log, which lacks nothing although a disk is full, here or there.

    Output that the disk here cannot take is in a file in memory, at the same offsets, as an agent
    keeps a log that it cannot write.

    Attributes
    ----------
    there
        The path of the log there.
    start, errno
        How many bytes are in the file, if the others are in memory, and the system's number of why.
    """

    def __init__(self, channel: Channel, path: str, there: str) -> None:
        super().__init__(channel, path, there)
        self.there = there
        self.start: int | None = None
        self.errno: int | None = None
        self._rest = -1
        self._there_until = math.inf
        self._there_rest = ""

    @property
    def error(self) -> str:
        """Why the file has no more bytes."""
        return f"the log ends after {self.start or 0:,} bytes: {os.strerror(self.errno or 0)}"

    @property
    def rest(self) -> str:
        """The file in memory, as other processes open it."""
        return f"/proc/{os.getpid()}/fd/{self._rest}"

    def rest_there(self, start: int, path: str) -> None:
        """Note that another file there has what follows the first bytes."""
        self._there_until, self._there_rest = start, path

    def hold(self, start: int) -> None:
        """Have everything after the first bytes in memory from now on."""
        self._rest, self.start = os.memfd_create("mwmagic-log"), start
        self.size = max(self.size, start)

    def put(self, offset: int, data: bytes) -> None:
        """Write a piece that the agent sent, or the part of it that the file does not have."""
        known = max(0, (self.start or 0) - offset)
        if known < len(data):
            super().put(offset + known, data[known:])

    def covers(self, size: int) -> bool:
        """Return whether it has all that was printed, though the disk there is full."""
        whole = size < self._there_until + REST_BYTES and not self.lacks(size)
        return whole and self._there_until < math.inf

    def close(self) -> None:
        """Forget what is in memory."""
        if self._rest >= 0:
            os.close(self._rest)
            self._rest = -1

    def _write(self, offset: int, data: bytes) -> None:
        if self.start is None:
            try:
                return super()._write(offset, data)
            except OSError as error:
                self.errno = error.errno
                self._overflow(offset)
        if offset + len(data) > (self.start or 0) + REST_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.pwrite(self._rest, data, offset)
        return None

    def _overflow(self, offset: int) -> None:
        """Have in memory what follows the first byte that the file lacks."""
        size, start = self.size, min([offset, *(start for start, _ in self._holes)])
        self.hold(start)
        with suppress(OSError):  # it was never made
            with Path(self.path).open("rb") as file:
                file.seek(start)
                os.pwrite(self._rest, file.read(min(size - start, REST_BYTES)), start)
            os.truncate(self.path, start)

    def _source(self, offset: int, count: int) -> tuple[str, int]:
        if offset >= self._there_until:
            return self._there_rest, count
        return self._there, int(min(count, self._there_until - offset))


class Logs:
    """Copies the logs of another machine's processes; holds exits back until a log is complete.

    From a shared disk only what that has no space for is copied, into memory here. An event whose
    bytes cannot be written here says why, as its ``trouble``.
    """

    def __init__(
        self,
        channel: Channel,
        there: Callable[[str], str],
        listener: Callable[[Message], None],
        *,
        shared: bool = False,
    ) -> None:
        self._channel = channel
        self._there = there
        self._listener = listener
        self._shared = shared
        self._copies: dict[str, LogCopy] = {}
        self._reports: dict[str, Copy | None] = {}
        self._over: deque[tuple[float, LogCopy]] = deque()
        self._filling: dict[str, tuple[asyncio.Task[None], Message]] = {}

    def begin(self, process: str, log: str, report: str | None) -> None:
        """Start to copy the log of a process, and the report that it may leave."""
        while self._over and self._over[0][0] < time.monotonic() - REST_SECONDS:
            self._over.popleft()[1].close()
        if not self._shared:
            self._copies[process] = LogCopy(self._channel, log, self._there(log))
            there = self._there(report or "")
            self._reports[process] = Copy(self._channel, report, there) if report else None

    def on_event(self, event: Message) -> None:
        """Pass an event on, or hold it back."""
        copy = self._copies.get(event.get("process", ""))
        match event["type"]:
            case "unwritten":
                event = self._unwritten(event, copy)
            case "output" if copy is not None:
                with _noting(event, copy.path), self._overflowing(event, copy):
                    copy.put(event["offset"], as_bytes(event["data"]))
            case "exited" if copy is not None:
                del self._copies[event["process"]]
                self._over.append((time.monotonic(), copy))
                report = self._reports.pop(event["process"], None)
                if copy.lacks(event["size"]) or event["report"]:
                    filling = asyncio.create_task(self._fill(copy, report, event))
                    self._filling[event["process"]] = filling, event
                    return
                _weigh(copy, event)
        self._listener(event)

    def _unwritten(self, event: Message, copy: LogCopy | None) -> Message:
        """Have what a full disk there cannot take come here all the same; say where it is."""
        start, there = event["size"], event["path"]
        if copy is not None:
            copy.rest_there(start, there)
            return {**event, "path": None, "file": copy.there}
        copy = self._copies[event["process"]] = LogCopy(self._channel, there, there)
        copy.hold(start)
        return {**event, "path": copy.rest}

    @contextmanager
    def _overflowing(self, event: Message, copy: LogCopy) -> Iterator[None]:
        """Report it if a log can be written no more here."""
        before = copy.start
        try:
            yield
        finally:
            if copy.start is not None and before is None:
                about = {"process": event["process"], "size": copy.start, "path": copy.rest}
                self._listener({"type": "unwritten", **about, "error": copy.error})

    def flush(self) -> None:
        """Report the exits held back: the agent is gone, and with it what is missing."""
        filling, self._filling = self._filling, {}
        for task, event in filling.values():
            task.cancel()
            self._listener(event)

    def close(self) -> None:
        """Forget what is in memory."""
        for copy in (*self._copies.values(), *(copy for _, copy in self._over)):
            copy.close()

    async def _fill(self, copy: LogCopy, report: Copy | None, event: Message) -> None:
        with _noting(event, copy.path), self._overflowing(event, copy):
            await self._complete(copy, event)
        _weigh(copy, event)
        if report is not None and event["report"]:
            with _noting(event, report.path):
                await report.pull()
        if self._filling.pop(event["process"], None) is not None:
            self._listener(event)

    async def _complete(self, copy: Copy, event: Message) -> None:
        """Fetch what a log lacks at its process's exit, and say there what could not be."""
        lacks = copy.lacks(event["size"])
        try:
            await copy.fill(event["size"])
        except SupervisorError as error:
            _lost(event, f"{lacks} bytes of the log could not be fetched: {error}")
        except OSError as error:
            why = file_words(error, copy.path)
            left = copy.lacks(event["size"])
            _lost(event, f"{left} bytes of the log are lost: {why}", error.errno)
            raise


def _weigh(copy: LogCopy, event: Message) -> None:
    """Say in an exit whether the log is in its file here, whatever the disk there lacks."""
    if event.get("reason") == LOG_LOST and copy.covers(event["size"]):
        event["reason"] = event["error"] = event["errno"] = None
    if copy.start is not None:
        _lost(event, copy.error, copy.errno)


def _lost(event: Message, error: str, number: int | None = None) -> None:
    """Say in an exit, unless it says something else, that bytes of the log are lost."""
    if event["error"] is None:
        event["reason"], event["error"], event["errno"] = LOG_LOST, error, number


@contextmanager
def _noting(event: Message, path: str) -> Iterator[None]:
    """Note in an event why a file cannot be written here, and continue."""
    try:
        yield
    except OSError as error:
        event["trouble"] = file_words(error, path)


async def _in_order(requests: Iterable[Coroutine[None, None, T]]) -> AsyncGenerator[T, None]:
    """Yield what requests return, in their order; at the first error none is sent any more."""
    waiting: deque[asyncio.Task[T]] = deque()
    try:
        for request in requests:
            waiting.append(asyncio.create_task(request))
            if len(waiting) == PIECES:
                yield await _first(waiting)
        while waiting:
            yield await _first(waiting)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _first(waiting: deque[asyncio.Task[T]]) -> T:
    # Without a shield, `wait_for` in a request that has just been answered swallows that its
    # caller is cancelled.
    answer = await asyncio.shield(waiting[0])
    waiting.popleft()
    return answer


STEP_BYTES = 2 * PIECES * CHUNK_BYTES
"""After how many bytes the progress is reported."""

REMEMBERED_COUNT = 16
"""How many fetches are reported whose clients have not said that they know of the end."""


class Fetches:
    """The files that are being fetched.

    A file is written beside its place and moved there as a whole.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._known: dict[str, Fetch] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def as_json(self) -> dict[str, Any]:
        """Return what is known of each by its key."""
        return {key: asdict(one) for key, one in self._known.items()}

    def begin(self, key: str, fetch: Fetch, channel: Channel) -> None:
        """Begin to fetch a file or a directory; `fetch` says which."""
        for old in [key for key in self._known if key not in self._tasks][:-REMEMBERED_COUNT]:
            del self._known[old]
        self._known[key] = fetch
        if fetch.state == "going":
            task = self._tasks[key] = asyncio.create_task(self._fetch(key, channel))
            task.add_done_callback(lambda _: self._tasks.pop(key, None))

    def forget(self, key: str) -> None:
        """End a fetch, of which what has arrived is removed, or the news of it."""
        if key in self._tasks:
            self._tasks[key].cancel()
        self._known.pop(key, None)

    async def close(self) -> None:
        """End all."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _note(self, key: str, **news: Any) -> None:  # noqa: ANN401 - the fields of Fetch
        if key in self._known:
            self._known[key] = replace(self._known[key], **news)
            self._changed()

    async def _fetch(self, key: str, channel: Channel) -> None:
        target = Path(self._known[key].to)
        draft = target.with_name(f".{target.name[:64]}.{uuid.uuid4().hex}")
        try:
            await self._copy(key, channel, draft)
            _move(draft, target)
            self._note(key, state="done")
        except OSError as error:
            self._fail(key, FileTrouble(file_words(error, target)))
        except MwmagicError as error:
            self._fail(key, error)
        finally:
            _remove(draft)

    def _fail(self, key: str, error: MwmagicError) -> None:
        self._note(key, state="failed", kind=type(error).__name__, error=str(error))

    async def _copy(self, key: str, channel: Channel, draft: Path) -> None:
        """Fetch all the files."""
        path = self._known[key].path
        files = await _listed(channel, self._known[key])
        self._note(key, files=len(files), size=sum(size for _, size in files))
        if [name for name, _ in files] != [""]:
            _make(draft / "any")
        for name, size in files:
            there, here = (f"{path}/{name}", draft / name) if name else (path, draft)
            _make(here)
            here.touch()
            await self._file(key, Copy(channel, str(here), there), size)

    async def _file(self, key: str, copy: Copy, size: int) -> None:
        """Fetch a file; each `STEP_BYTES` are reported."""
        before = self._known[key].done
        while copy.size < size:
            await copy.fill(min(copy.size + STEP_BYTES, size))
            self._note(key, done=before + copy.size)


async def _listed(channel: Channel, fetch: Fetch) -> list[tuple[str, int]]:
    """Return the files that are to be fetched, and their sizes."""
    try:
        answer = await channel.request("list", path=fetch.path)
    except SupervisorError as error:
        raise SupervisorError(
            f"{fetch.path} of {fetch.task} cannot be fetched: {error}; name a file or a directory "
            "that it wrote, as it does, or with its whole path"
        ) from None
    return [(_inside(str(name)), int(size)) for name, size in answer["files"]]


def destination(cwd: str, path: str, to: str | None) -> Path:
    """Return where what is fetched goes."""
    plain = PurePosixPath(os.path.normpath(path))
    if plain.name in ("", ".."):
        raise FileTrouble(f"{path} has no name to keep it under; name a file or a directory")
    if to is None:
        return Path(os.path.normpath(Path(cwd, plain.name if plain.is_absolute() else plain)))
    target = Path(os.path.normpath(Path(cwd, to)))
    return target / plain.name if target.is_dir() else target


def _inside(name: str) -> str:
    """Return a path that another machine says, which must lead below its directory."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise SupervisorError(f"the agent names a file that is not below its directory: {name!r}")
    return name


def _make(path: Path) -> None:
    """Make the directory that a file goes into."""
    path.parent.mkdir(parents=True, exist_ok=True)


def _move(draft: Path, target: Path) -> None:
    """Move what has arrived to its place, also where a directory was."""
    if target.is_dir() and not target.is_symlink():
        old = target.with_name(f"{draft.name}.old")
        target.rename(old)
        draft.rename(target)
        shutil.rmtree(old)
    else:
        draft.replace(target)


def _remove(draft: Path) -> None:
    with suppress(OSError):
        if draft.is_dir():
            shutil.rmtree(draft)
        else:
            draft.unlink()
