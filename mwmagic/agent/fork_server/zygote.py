"""The zygote: a process that has imported a framework and forks workers, which need not import it.

The agent starts it as ``python DIR/__main__.py zygote BOOTSTRAP MODULE ... -- AHEAD ...``, where
AHEAD are modules that it can do without, with a socket as standard input. It writes one line of
JSON when the imports are done. Then each byte on the socket asks for one worker and comes with four
descriptors: a file with the request, the worker's output, a pipe on which the worker answers with
its process id or with the reason why it could not be started, and the worker's end of its line.

It runs no operation of the framework and has a single thread, because a fork copies only one.
OpenBLAS ends its threads before a fork, and starts as many when a worker first needs them.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..system import LIBC, PR_SET_PDEATHSIG, inherit, show_command, tag_process
from ..wire import LABEL, LINE, REQUEST_DESCRIPTORS, as_bytes
from .imports import (
    Basis,
    Unfit,
    check_forkable,
    flush,
    import_ahead,
    import_all,
    release,
    uncollected,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any, NoReturn

LIBC.getenv.restype = ctypes.c_void_p


def take_socket() -> socket.socket:
    """Move the socket away from standard input, which imported code might read."""
    channel = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return channel


def hide_folder() -> None:
    """Remove the agent's folder from the import path, where the interpreter has put it."""
    if sys.path and sys.path[0] == str(Path(__file__).resolve().parents[1]):
        del sys.path[0]


def load(path: str) -> ModuleType:
    """Load the workers' bootstrap module from a file."""
    spec = importlib.util.spec_from_file_location("mwmagic_bootstrap", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def prepare(
    bootstrap: str, names: list[str], ahead: list[str], basis: Basis
) -> tuple[ModuleType, list[str]]:
    """Do what all workers have in common; raise RuntimeError if that would be useless.

    Returns the workers' bootstrap module, and why modules to be imported ahead are not there.
    """
    # pandas imports pyarrow, whose allocator would start a thread to give memory back.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    module = load(bootstrap)
    with uncollected():
        with basis.importing():
            missing = import_all(names)
            if len(missing) == len(names):
                raise RuntimeError("; ".join(missing))
        left = import_ahead(ahead, basis.importing)
        module.preload()
    return module, left


def settle() -> None:
    """Leave nothing buffered that a worker would print, and no garbage that it would touch.

    Nor are there modules of this program left, which a worker of it would have to drop, or pages
    of files.
    """
    package = (__package__ or "").partition(".")[0]
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]
    flush()
    gc.collect()
    gc.freeze()
    release()


def say(channel: socket.socket, **fields: object) -> None:
    """Send the agent a message."""
    channel.sendall(json.dumps(fields).encode("ascii") + b"\n")


def serve(channel: socket.socket, agent: int, basis: Basis) -> list[str]:
    """Fork workers until the agent is gone; return only in a worker, with its argv."""
    while True:
        requests = gathered(channel)
        reader, writer = os.pipe()
        intermediate, own = forked(requests, partial(confirm, basis, writer, len(requests)))
        os.close(writer)
        for descriptor in (one for other in requests if other is not own for one in other):
            os.close(descriptor)
        if own:
            os.setsid()  # before it has a tag, by which the agent may kill its process group
            reseed()
            channel.close()
            request = read_request(own[0])
            changed = None if os.read(reader, 1) else basis.changed()
            why = changed or basis.differs(request["cwd"], request["argv"][2])
            if why is not None:
                refuse(own[2], json.dumps({"why": why[0], "what": why[1]}))
            request["env"] = {**basis.sets, **request["env"]}
            os.close(reader)
            return become(request, own, agent, intermediate)
        os.close(reader)


def confirm(basis: Basis, writer: int, count: int) -> None:
    """Write a byte for each worker if all is as it was; if nothing comes, they look themselves."""
    if basis.changed() is None:
        os.write(writer, b"=" * count)


def gathered(channel: socket.socket) -> list[list[int]]:
    """Wait for requests, and read all that have come; return the descriptors of each."""
    requests = [received(channel)]
    while select.select([channel], [], [], 0)[0] and channel.recv(1, socket.MSG_PEEK):
        requests.append(received(channel))
    return requests


def received(channel: socket.socket) -> list[int]:
    """Read one request; return its descriptors, or end if no more are to come."""
    asked, descriptors, _, _ = socket.recv_fds(channel, 1, REQUEST_DESCRIPTORS)
    if not asked:
        os._exit(0)
    return descriptors


def forked(requests: list[list[int]], in_parent: Callable[[], None]) -> tuple[int, list[int]]:
    """Fork processes that become children of the agent, and do something in the meantime."""
    # Only a parent can wait for a process and learn its exit code and its use of memory, and the
    # agent is not the one that forks. So an intermediate process forks the workers and exits at
    # once: as the agent is a subreaper (PR_SET_CHILD_SUBREAPER), the kernel makes these orphans its
    # children. One intermediate process forks all of them, because each fork of this process
    # copies the page tables of everything that it has imported.
    try:
        child = os.fork()
    except OSError as error:
        for descriptors in requests:
            decline(descriptors, error)
        return 0, []
    if child:
        in_parent()
        os.waitpid(child, 0)
        return 0, []
    intermediate = os.getpid()
    for descriptors in requests:
        try:
            if not os.fork():
                return intermediate, descriptors
        except OSError as error:  # noqa: PERF203 - each request gets its own answer
            decline(descriptors, error)
    os._exit(0)


def decline(descriptors: list[int], error: OSError) -> None:
    """Say that a worker cannot be forked."""
    os.write(descriptors[2], f"cannot fork: {error.strerror}".encode())


def refuse(answer: int, reason: str) -> NoReturn:
    """Say why the worker cannot be started, or is not to be forked from this process."""
    os.write(answer, as_bytes(reason)[:4096])
    os._exit(127)


def read_request(file: int) -> dict[str, Any]:
    """Read the request for a worker."""
    found: dict[str, Any] = json.loads(os.pread(file, os.fstat(file).st_size, 0))
    return found


def become(
    request: dict[str, Any], descriptors: list[int], agent: int, intermediate: int
) -> list[str]:
    """Turn a fresh fork into the requested process, and return its argv."""
    file, output, answer, line = descriptors
    tag_process(request["tag"])
    python, _, *rest = request["argv"]  # without the bootstrap module
    show_command([python, *rest])
    inherit(request["attributes"])
    for target in (1, 2):
        os.dup2(output, target)
    try:
        os.chdir(as_bytes(request["cwd"]))
        os.set_inheritable(line, False)  # noqa: FBT003 - it has no keywords
        request["env"][LINE] = str(line)
        set_environment({as_bytes(key): as_bytes(value) for key, value in request["env"].items()})
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        refuse(answer, f"cannot enter {request['cwd']}: {reason}")
    introduce(answer, agent, intermediate)
    for descriptor in (file, output):
        os.close(descriptor)
    return list(request["argv"])


def introduce(answer: int, agent: int, intermediate: int) -> None:
    """Write the process id to the agent, once that is the parent."""
    join(agent, intermediate)
    os.write(answer, str(os.getpid()).encode())
    os.close(answer)


def join(agent: int, intermediate: int) -> None:
    """Wait until the agent is the parent, and die with it."""
    # PR_SET_PDEATHSIG concerns the parent that a process has when it is set, so it has to be set
    # after the adoption. If the agent died before that, nothing would end this process: a look at
    # the parent afterwards finds it out.
    while os.getppid() == intermediate:
        time.sleep(0.0002)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != agent:
        os._exit(127)


def set_environment(env: dict[bytes, bytes]) -> None:
    """Make this the environment, including the label where the agent reads it in /proc."""
    # The agent recognises descendants by the label in /proc/PID/environ, which shows the memory
    # that the kernel filled when this process was executed: `setenv` changes only libc's own list.
    # So the new label is written over the old one, which has room for it, and libc's list follows.
    label = env[LABEL.encode()]
    start, room = LIBC.getenv(LABEL.encode()), len(os.environ[LABEL])
    ctypes.memmove(start, label.ljust(room, b"\0")[:room], room)
    for key in [key for key in os.environb if key not in env]:
        del os.environb[key]
    for key, value in env.items():
        if os.environb.get(key) != value:
            os.environb[key] = value


def reseed() -> None:
    """Give the worker its own random numbers of NumPy's; Python's own generator sees to itself.

    TensorFlow and Keras draw their seeds from these generators when they are first used. NumPy may
    import its own only then; importing it here would take longer than the rest of a launch.
    """
    generators = sys.modules.get("numpy.random")
    if generators is not None:
        generators.seed()


def prepared(
    channel: socket.socket, basis: Basis, imports: Callable[[Basis], tuple[ModuleType, list[str]]]
) -> ModuleType:
    """Import, and tell the agent that this process can be forked, or why not, and end.

    The imports return what `prepare` does.
    """
    try:
        bootstrap, left = imports(basis)
        check_forkable()
        bootstrap.remember(basis.reads, basis.env, basis.sets)
        basis.note()
    except Exception as error:  # noqa: BLE001 - imported code may raise anything
        unfit = error.module if isinstance(error, Unfit) else None
        kind = "" if unfit else f"{type(error).__name__}: "
        say(channel, error=f"{kind}{error}"[:5000], module=unfit)
        flush()
        os._exit(1)
    settle()
    known = {"reads": sorted(basis.reads), "sets": basis.sets, "left": left}
    say(channel, error=None, module=None, basis=known)
    return bootstrap


def run(started: frozenset[str]) -> None:
    """Import and fork; in a worker, do what ``python BOOTSTRAP ...`` would do."""
    basis = Basis(started)  # never freed: that would copy the pages of thousands of strings
    agent = os.getppid()
    channel = take_socket()
    hide_folder()
    _, _, path, *names = sys.argv
    at = names.index("--") if "--" in names else len(names)
    bootstrap = prepared(channel, basis, partial(prepare, path, names[:at], names[at + 1 :]))
    argv = serve(channel, agent, basis)
    sys.modules["__main__"] = bootstrap
    sys.argv = argv[1:]
    sys.path.insert(0, os.path.dirname(os.path.realpath(argv[1])))  # noqa: PTH120 - `pathlib` is slow
    bootstrap.main(argv[2:])
