"""Starts a cluster: checks its declaration, and starts a supervisor with what this process has.

With a coordinator, this process becomes the chief of its own cluster.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import secrets
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from mwmagic import errors
from mwmagic.errors import ClusterEnding, ClusterError, SupervisorError, SupervisorLost
from mwmagic.frameworks import framework_for, frameworks
from mwmagic.frameworks.environment import meeting_environment, set_by_user
from mwmagic.logs.tracebacks import FRAME
from mwmagic.model.cluster import CHIEF
from mwmagic.model.messages import Start
from mwmagic.model.options import ClusterOptions
from mwmagic.model.ownership import package_of
from mwmagic.model.values import encodable
from mwmagic.record.paths import expanded

from .connection import CLOSE_SECONDS, Connection, error_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mwmagic.model.cluster import ClusterSpec

__all__ = [
    "Coordinator",
    "attributes",
    "connections",
    "declared",
    "discard",
    "existing_sockets",
    "inherited",
    "new_socket",
    "remove_socket",
    "server_of",
    "socket_directory",
    "start_supervisor",
]


PATH_BYTES = 100
"""The longest path of a socket; the kernel takes 107 (``sun_path``)."""

NAME_BYTES = 40
"""The longest last part of such a path."""


def socket_directory() -> Path:
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


def new_socket(name: str, root: Path) -> Path:
    """Return the path for a new socket of the cluster `name` below `root`."""
    return socket_directory() / _pattern(name, root).replace("?" * 8, secrets.token_hex(4))


def existing_sockets(name: str | None = None, root: Path | None = None) -> Iterator[Path]:
    """Yield the existing sockets: all, those of a name, or those of one cluster."""
    yield from sorted(socket_directory().glob("*.sock" if name is None else _pattern(name, root)))


def remove_socket(path: Path) -> None:
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
        remove_socket(path)
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


START_SECONDS = 60.0
"""Time limit for a new supervisor to listen."""

_LIMITS = tuple(
    name
    for name in dir(resource)
    if name.startswith("RLIMIT_") and name not in ("RLIMIT_OFILE", "RLIMIT_RTTIME")
)
"""The limits that a worker gets: not two names of one, nor the one that agents tell workers by."""

_PROGRAM = """\
import os, sys
library, own = os.path.dirname(os.__file__), sys.argv.pop()
def rank(path):
    return 0 if path.startswith(library) and "site-packages" not in path else 1 + (path != own)
sys.path = sorted([*sys.path, own], key=rank)
from mwmagic.supervisor.__main__ import main
main()
"""
"""Starts a supervisor; its last argument is where this package is.

The folders of PYTHONPATH come after Python's own modules, whose names they may have, and after this
package, of which they may hold another version.
"""


def declared(**options: Any) -> Start:  # noqa: ANN401 - see ClusterOptions
    """Check a declaration, and add what only this process knows."""
    directory = expanded(options.get("directory") or ".").resolve()
    wanted = ClusterOptions.declare(**{**options, "directory": str(directory)})
    framework = framework_for(wanted.framework)
    if wanted.coordinator:
        server_of(wanted.framework)
    framework.check(wanted.members)
    framework.check_devices(wanted.devices)
    _check_keras(wanted.keras)
    _check_files(wanted)
    _check_modules(wanted)
    warm = wanted.warm and find_spec(framework.module) is not None
    return Start(wanted, env={**inherited(), **wanted.env}, warm=warm)


def _check_modules(options: ClusterOptions) -> None:
    """Refuse to import ahead what is not installed; other machines may have other packages."""
    for name in options.preload:
        top = package_of(name)
        if options.engine == "local" and not _is_installed(top):
            raise errors.NotInstalled(
                f"--preload: {top} is not installed here; install it, or leave it out"
            )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # it was made, not imported, as a notebook's `__main__`
        return False


def _check_files(options: ClusterOptions) -> None:
    """Refuse files that cannot be brought to a machine."""
    for name in options.files:
        path = expanded(options.root / name).resolve()
        if not path.exists() or not path.is_relative_to(options.root):
            raise errors.ClusterError(
                f"--files: {name} does not exist in {options.root}; name files and directories "
                "below that"
            )


def _check_keras(mode: str) -> None:
    if mode == "legacy" and find_spec("tf_keras") is None:
        raise errors.NotInstalled('Keras 2 is not installed: pip install "tf-keras"')


def inherited() -> dict[str, str]:
    """Return this process's environment, without what the import of a framework set."""
    return set_by_user(os.environ)


def attributes() -> dict[str, Any]:
    """Return what else a process has from the one that starts it."""
    status = Path("/proc/self/status").read_text()  # to ask the system is to change it
    umask = next((one.split()[1] for one in status.splitlines() if one.startswith("Umask:")), None)
    limits = {name: list(resource.getrlimit(getattr(resource, name))) for name in _LIMITS}
    found: dict[str, Any] = {"limits": limits, "nice": os.getpriority(os.PRIO_PROCESS, os.getpid())}
    return found if umask is None else {**found, "umask": int(umask, 8)}


class _Newborn:
    """A supervisor's process that waits for its input, and what it prints before it has a log."""

    def __init__(self) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(Path(__file__).parents[2])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            # Elsewhere a file of the user's, named like a standard module, would be imported.
            cwd="/",
            start_new_session=True,
        )

    def words(self) -> str:
        """Return what it printed before it had a log."""
        self.errors.seek(0)
        return self.errors.read().decode("utf-8", "replace")

    def close(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            if file is not None:
                file.close()


def start_supervisor(
    start: Start, path: Path, while_starting: Callable[[], None] | None = None
) -> subprocess.Popen[bytes]:
    """Start a cluster's supervisor and wait until it listens."""
    born = _Newborn()
    try:
        line = json.dumps(str(path)).encode() + b"\n" + start.as_line().encode() + b"\n"
        answer = _first_line(born.process, line, while_starting)
        _check_ready(answer, born, path)
    except BaseException:  # Ctrl-C too
        born.close()
        remove_socket(path)
        raise
    born.errors.close()
    return born.process


def _check_ready(answer: dict[str, Any], born: _Newborn, path: Path) -> None:
    """Raise the error that a supervisor raised before it listened, if it did."""
    if "ready" in answer:
        return
    log = path.with_suffix(".log")
    printed = log.read_text(errors="replace") if log.exists() else ""
    said = answer.get("error") or _last_words(born.words() + printed)
    kind = answer.get("kind", "")
    if kind in ("", errors.SupervisorError.__name__):
        raise errors.SupervisorError(f"the supervisor did not start: {said}")
    raise error_named(kind, said)


def discard(process: subprocess.Popen[bytes], path: Path) -> None:
    """Kill a supervisor that is of no use, and remove what it left beside its socket."""
    process.kill()
    process.wait()
    remove_socket(path)


def _last_words(log: str) -> str:
    """Return why a supervisor died; where a module of the user's raised, that and no traceback."""
    frames = [found for found in map(FRAME.match, log.splitlines()) if found]
    file, line = frames[-1].group(1, 2) if frames else ("", "")
    folders = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    own = {Path(folder).resolve() for folder in folders} - {Path(__file__).parents[2]}
    if not any(Path(file).is_relative_to(folder) for folder in own):
        return log[-2000:]
    return (
        f"{log.rstrip().splitlines()[-1]} ({file}, line {line}); PYTHONPATH leads to this file: "
        "repair or rename it, or change PYTHONPATH"
    )


def _first_line(
    process: subprocess.Popen[bytes], start: bytes, while_starting: Callable[[], None] | None
) -> dict[str, Any]:
    """Read a new supervisor's answer; it is killed if none comes in time."""
    if process.stdin is None or process.stdout is None:
        raise errors.SupervisorError("the supervisor was started without pipes")
    timer = threading.Timer(START_SECONDS, process.kill)
    timer.start()
    try:
        with suppress(BrokenPipeError), process.stdin as stdin:  # gone: its log says why
            stdin.write(start)
        if while_starting is not None:
            while_starting()
        with process.stdout as stdout:
            line = stdout.readline()
    finally:
        timer.cancel()
    try:
        return dict(json.loads(line))
    except ValueError:
        return {}


def server_of(framework: str) -> Path:
    """Return the program that a coordinator's other tasks run."""
    name = framework_for(framework).server
    if name is None:
        having = ", ".join(one.name for one in frameworks() if one.server is not None)
        raise errors.ClusterError(f"{framework} has no coordinator; use --framework {having}")
    return Path(__file__).parents[1] / "worker" / name


class Coordinator:
    """Sets the environment variables that make this process the chief of a cluster."""

    def __init__(self, framework: str) -> None:
        self._framework = framework
        self._before: dict[str, str | None] = {}
        self._set: dict[str, str] = {}
        self._lock = threading.Lock()

    def meet(self, spec: ClusterSpec) -> None:
        """Set the variables by which TensorFlow finds the cluster, unless they are set."""
        with self._lock:
            wanted = meeting_environment(self._framework, spec, CHIEF, self._inherited())
            if wanted == self._set:
                return
            self._before = {name: os.environ.get(name) for name in wanted} | self._before
            self._set = wanted
            os.environ.update(wanted)

    def _inherited(self) -> dict[str, str]:
        """Return the environment as it would be without this cluster."""
        before = {name: value for name, value in self._before.items() if value is not None}
        return {name: value for name, value in os.environ.items() if name not in self._set} | before

    def leave(self) -> None:
        """Restore the previous values, except of variables that were changed since."""
        with self._lock:
            for name, value in self._set.items():
                if os.environ.get(name) != value:
                    continue
                before = self._before[name]
                if before is None:
                    del os.environ[name]
                else:
                    os.environ[name] = before
            self._before, self._set = {}, {}
