"""Files on their way from the machines of tasks, such as a model that a worker saved."""

from __future__ import annotations

import asyncio
import os
import shutil
import uuid
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from mwmagic.agent.wire import CHUNK_BYTES
from mwmagic.errors import FileTrouble, MwmagicError, SupervisorError
from mwmagic.words.file import file_words

from .files import PIECES, Copy

if TYPE_CHECKING:
    from collections.abc import Callable

    from mwmagic.engines.channel import Channel
    from mwmagic.model.machine import Fetch

__all__ = ["Fetches", "destination"]

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
