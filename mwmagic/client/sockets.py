"""Where supervisors listen, a private directory of unix sockets, and connections to them."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.errors import ClusterEnding, ClusterError, SupervisorError, SupervisorLost
from mwmagic.model.options import ClusterOptions
from mwmagic.model.values import encodable

from .connection import CLOSE_SECONDS, Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["connections", "directory", "existing", "fresh", "remove"]

PATH_BYTES = 100
"""The longest path of a socket; the kernel takes 107 (``sun_path``)."""

NAME_BYTES = 40
"""The longest last part of such a path."""


def directory() -> Path:
    """Return the directory of this user's sockets, created if necessary.

    It is the same for a kernel and a shell of the same user, unlike
    ``XDG_RUNTIME_DIR``, and is not removed when the user logs out.
    """
    name = f"mwmagic-{os.getuid()}"
    path = Path(tempfile.gettempdir()) / name
    if len(os.fsencode(path)) > PATH_BYTES - NAME_BYTES:
        path = Path("/tmp") / name  # noqa: S108 - checked below
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    _check_private(path)
    return path


def _check_private(path: Path) -> None:
    status = path.lstat()
    mine = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not mine or stat.S_IMODE(status.st_mode) & 0o077:
        raise SupervisorError(
            f"{path} must be a directory of yours with mode 0700, since anyone who can write "
            "there can run code as you; remove it, or set TMPDIR to a private directory"
        )


def _pattern(name: str, root: Path | None) -> str:
    """Return how the sockets of a cluster are named; with no root, of clusters anywhere."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", name)[:16]
    digest = "?" * 8
    if root is not None:
        try:
            key = f"{name}\0{root.resolve()}".encode()
        except UnicodeEncodeError as error:  # frameworks and JSON have no such paths
            raise ClusterError(
                f"the path of the directory {encodable(str(root))} is not UTF-8, so no cluster can "
                "be kept in it; rename the directory, or use another"
            ) from error
        digest = hashlib.sha256(key).hexdigest()[:8]
    return f"{slug}-{digest}-{'?' * 8}.sock"


def fresh(name: str, root: Path) -> Path:
    """Return the path for a new socket of the cluster `name` below `root`."""
    return directory() / _pattern(name, root).replace("?" * 8, secrets.token_hex(4))


def existing(name: str | None = None, root: Path | None = None) -> Iterator[Path]:
    """Yield the existing sockets: all, those of a name, or those of one cluster."""
    yield from sorted(directory().glob("*.sock" if name is None else _pattern(name, root)))


def remove(path: Path) -> None:
    """Remove a dead supervisor's socket, even an unfinished one, and its log beside it."""
    for suffix in (".log", ".new", ".sock"):
        with suppress(OSError):
            path.with_suffix(suffix).unlink()


def connections(
    paths: Iterable[Path],
    refusals: list[SupervisorError],
    *,
    owner: bool,
    wake: bool = False,
    waits: Callable[[], None] = lambda: None,
) -> Iterator[Connection]:
    """Connect to the supervisor behind each socket; wait for the end of one that is ending."""
    for path in paths:
        connection = _connection(path, refusals, waits, owner=owner, wake=wake)
        if connection is not None:
            yield connection


def _connection(
    path: Path,
    refusals: list[SupervisorError],
    waits: Callable[[], None],
    *,
    owner: bool,
    wake: bool,
) -> Connection | None:
    try:
        return Connection(path, owner=owner, wake=wake)
    except SupervisorLost:
        remove(path)
    except ClusterEnding as error:
        waits()
        if not _ends(path):
            refusals.append(error)
    except SupervisorError as error:
        refusals.append(error)
    return None


def _ends(path: Path) -> bool:
    """Wait for the end of a cluster for as long as it may take; return whether it has come."""
    try:
        connection = Connection(path, owner=False)
    except SupervisorLost:
        return True
    options = ClusterOptions.from_json(connection.news["cluster"]["options"])
    try:
        return connection.wait(lambda _: False, options.grace + CLOSE_SECONDS)
    except SupervisorLost:
        return True
    finally:
        connection.close()
