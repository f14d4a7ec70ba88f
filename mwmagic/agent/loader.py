"""Starts the agent on another machine: ``python -I -S -c THIS DIGEST FOLDER``.

The supervisor's code is either there already, in the same folder of a shared disk or in the cache
of an earlier visit, or it is asked for with the event ``need`` and arrives on standard input as a
line with a size and an archive of that size. Anything written before that line is discarded: the
supervisor says it again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tempfile
import zipfile
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OLDEST = (3, 10)
"""The oldest Python that the agent and the workers run on."""


def digest_of(folder: Path) -> str:
    """Return the digest of the Python files below a folder."""
    found = hashlib.sha256()
    for name, path in sorted((str(path.relative_to(folder)), path) for path in sources(folder)):
        found.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def sources(folder: Path) -> list[Path]:
    """Return the Python files below a folder."""
    return [*folder.glob("**/*.py")]


def has(folder: Path, digest: str) -> bool:
    """Return whether a folder holds the code; one that cannot be read does not."""
    try:
        return folder.is_dir() and digest_of(folder) == digest
    except OSError:
        return False


def cache() -> Path:
    """Return the folder in the user's cache for the files of this package."""
    own = os.environ.get("XDG_CACHE_HOME")
    return Path(own or os.path.expanduser("~/.cache"), "mwmagic")  # noqa: PTH111 - raises nothing


def fresh() -> Path:
    """Make a private folder in the cache, or elsewhere if that cannot be written to."""
    home = cache()
    try:
        home.mkdir(0o700, parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="new-", dir=home))
    except OSError:
        return Path(tempfile.mkdtemp(prefix="mwmagic-"))


def say(**event: Any) -> None:  # noqa: ANN401 - JSON values
    """Send the supervisor an event."""
    os.write(1, json.dumps(event).encode() + b"\n")


def read_exactly(size: int) -> bytes:
    """Read exactly so many bytes: the agent reads the rest."""
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            sys.exit("the supervisor is gone")
        data += piece
    return data


def line() -> bytes:
    """Read a line and not a byte more."""
    found = read_exactly(1)
    while not found.endswith(b"\n"):
        found += read_exactly(1)
    return found


def receive() -> bytes:
    """Ask for the code and return it."""
    say(type="need")
    words = line().split()
    while words[:1] != [b"code"]:
        words = line().split()
    return read_exactly(int(words[1]))


def fetched(digest: str) -> Path:
    """Return the package's folder in this machine's cache, which has it or gets it."""
    new = fresh()
    there = new.with_name(f"code-{digest}")
    if has(there / "mwmagic", digest):
        new.rmdir()
        return there / "mwmagic"
    with zipfile.ZipFile(io.BytesIO(receive())) as archive:
        archive.extractall(new / "mwmagic")
    try:
        if there.is_dir() and not has(there / "mwmagic", digest):
            there.rename(new.with_name(f"damaged-{new.name}"))
        return new.rename(there) / "mwmagic"
    except OSError:  # another agent was faster
        return new / "mwmagic"


def main(digest: str, folder: str) -> None:
    """Find the code and become the agent."""
    if sys.version_info < OLDEST:
        error = f"{sys.executable} is Python {sys.version.split()[0]}; mwmagic needs 3.10 or later"
        say(type="refused", command="hello", reason=None, error=error)
        sys.exit(1)
    package = Path(folder) if has(Path(folder), digest) else fetched(digest)
    agent = package / "agent" / "__main__.py"
    os.execv(sys.executable, [sys.executable, "-I", "-S", str(agent), str(cache() / "work")])  # noqa: S606 - no shell


if __name__ == "__main__":
    main(*sys.argv[1:])
