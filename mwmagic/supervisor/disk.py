"""A machine's disk: this machine's too, or one of its own, to which files are brought."""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from mwmagic.agent.wire import CHUNK_BYTES, packed
from mwmagic.errors import ClusterError, SupervisorError
from mwmagic.record.paths import FOLDER
from mwmagic.words.file import file_words

from .window import in_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mwmagic.engines import Host
    from mwmagic.engines.channel import Channel

__all__ = ["Disk"]

ID_CHARACTERS = 12


class Disk:
    """A machine's disk.

    Attributes
    ----------
    shared : bool
        The same.
    """

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

        What is unchanged since it was last brought stays.
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
            async with aclosing(in_order(puts)) as stored:
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
