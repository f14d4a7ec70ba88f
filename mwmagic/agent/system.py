"""Kernel services for which Python has no concise interface, the event loop, and processes."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import select
import signal
import struct
import time
from contextlib import suppress

from .wire import CHUNK_BYTES, as_bytes, encode

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn


PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_MM, PR_SET_MM_MAP = 35, 14
MEMORY_MAP = "=12QIi"
"""The kernel's `prctl_mm_map`."""
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.malloc.restype = LIBC.sbrk.restype = ctypes.c_void_p


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process in the kernel."""
    if LIBC.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl failed")


def tag_process(tag: int) -> None:
    """Give this process a number that its descendants inherit, even with another environment.

    If limits cannot be set, there is no tag.
    """
    # A worker's helpers have to be found even if they have left its process group and session, have
    # cleared their environment and are no longer its descendants. Only a process's resource limits,
    # which it inherits and others can read, survive all of that. RLIMIT_RTTIME is one that nothing
    # uses: how many microseconds a process with a real-time priority may compute without a pause.
    # Its soft limit holds the number; /proc/PID/limits shows it, also of a zombie.
    with suppress(ValueError, OSError):
        hard = resource.getrlimit(resource.RLIMIT_RTTIME)[1]
        resource.setrlimit(resource.RLIMIT_RTTIME, (tag, hard))


def show_command(words: list[str]) -> None:
    """Have the kernel show a command as that of this process, as in ``/proc/self/cmdline``.

    If it cannot, it shows the same as before.
    """
    text = b"".join(as_bytes(word) + b"\0" for word in words)
    numbers = [
        int(one) for one in (contents("/proc/self/stat") or b"").rpartition(b")")[2].split()[1:]
    ]
    at = LIBC.malloc(len(text))  # never freed: the kernel reads it until the process ends
    if len(numbers) < 48 or at is None:  # noqa: PLR2004 - the end of the environment is the last
        return
    ctypes.memmove(at, text, len(text))
    code, stack, heap, environment = numbers[22:24], numbers[24], numbers[41:44], numbers[46:48]
    # No capability is needed to give all of these at once. The heap must not grow meanwhile.
    layout = (*code, *heap, LIBC.sbrk(0), stack, at, at + len(text), *environment, 0, 0, -1)
    size = ctypes.c_ulong(struct.calcsize(MEMORY_MAP))
    LIBC.prctl(PR_SET_MM, PR_SET_MM_MAP, struct.pack(MEMORY_MAP, *layout), size, ctypes.c_ulong())


def inherit(attributes: dict[str, Any]) -> None:
    """Give this process attributes of another one, as if that had started it.

    A limit above what this process may have stays as it is.
    """
    if "umask" in attributes:
        os.umask(attributes["umask"])
    for name, limits in attributes.get("limits", {}).items():
        with suppress(ValueError, OSError, AttributeError):
            resource.setrlimit(getattr(resource, name), tuple(limits))
    if "nice" in attributes:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, attributes["nice"])


def tag_of(pid: int) -> int | None:
    """Return the number that a process, which may be a zombie, got from `tag_process`."""
    for line in (contents(f"/proc/{pid}/limits") or b"").splitlines():
        if line.startswith(b"Max realtime timeout"):
            soft = line.split()[3]
            return int(soft) if soft.isdigit() else None
    return None


def contents(path: str, limit: int = CHUNK_BYTES) -> bytes | None:
    """Return the first bytes of a file, or None if it cannot be read."""
    try:
        descriptor = os.open(as_bytes(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return os.read(descriptor, limit)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal and lets it run, as the kernel knows."""
    status = contents(f"/proc/{pid}/status") or b""
    rows = dict(line.split(b":", 1) for line in status.splitlines())
    caught, blocked = (int(rows.get(name, b"0"), 16) for name in (b"SigCgt", b"SigBlk"))
    return bool((caught & ~blocked) >> (number - 1) & 1)


# pause(2), which a signal's handler ends and Python does not begin again, is a call of its own on
# x86-64 and poll(2) of nothing elsewhere; sigsuspend(2) follows.
_WAITS_FOR_SIGNALS = {
    "x86_64": (b"34 ", b"130 "),
    "aarch64": (b"73 0x0 0x0 0x0 ", b"133 "),
}.get(os.uname().machine, ())


def waits_for_signals(pid: int) -> bool:
    """Return whether a process's main thread waits until any signal is handled."""
    return (contents(f"/proc/{pid}/syscall") or b"").startswith(_WAITS_FOR_SIGNALS)


def has_open(pid: int, path: str) -> bool:
    """Return whether a process has a file open."""
    try:
        file = os.stat(as_bytes(path))  # noqa: PTH116 - pathlib costs a third of the start-up
        numbers = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - the same
    except OSError:
        return False
    return any(same(file, f"/proc/{pid}/fd/{number}") for number in numbers)


def same(file: os.stat_result, path: str) -> bool:
    """Return whether a path leads to a file."""
    try:
        return os.path.samestat(file, os.stat(path))  # noqa: PTH116 - the same
    except OSError:  # it was closed in the meantime
        return False


def waiting_in(descriptor: int) -> bytes:
    """Return the current contents of a pipe."""
    try:
        return os.read(descriptor, CHUNK_BYTES)
    except BlockingIOError:
        return b""


def clocks() -> dict[str, Any]:
    """Return the current time on both clocks."""
    return {"time": time.monotonic(), "wall": time.time()}


def number_of(error: BaseException) -> int | None:
    """Return the system's number for an error, if it is one of the system's."""
    return getattr(error, "errno", None)


def reason_of(error: BaseException) -> str:
    """Return the message of an error, without its number."""
    return getattr(error, "strerror", None) or str(error)


WORD_BYTES = 128 << 10
"""The most that the kernel takes of one argument or variable: MAX_ARG_STRLEN of execve(2)."""

SIGNALS = tuple(map(int, signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
"""The signals that can be blocked or handled; `signal` takes long to list them."""

# Python itself ignores two signals, which the agent's parent need not have done.
IGNORED = frozenset(
    number
    for number in SIGNALS
    if signal.getsignal(number) is signal.SIG_IGN
    and number not in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)
)
"""The signals that this process was started to ignore, as by nohup; what it starts does too."""


def spawn(
    argv: list[str],
    env: dict[str, str],
    cwd: str,
    ends: tuple[int, int],
    worker: tuple[int, int, dict[str, Any]] | None = None,
) -> tuple[int, int]:
    """Fork and execute a command in a session of its own that dies with this process.

    Its standard input and its output are the `ends`. A `worker` has a line, a tag and
    another process's attributes too.
    """
    reply, answer = os.pipe2(os.O_CLOEXEC)
    agent = os.getpid()
    # Until its signal handlers are reset, the child would handle signals as the agent does.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        pid = os.fork()
        if not pid:
            if worker is not None:
                os.set_inheritable(worker[0], True)  # noqa: FBT003 - it has no keywords
                tag_process(worker[1])
                inherit(worker[2])
            execute(argv, env, cwd, (*ends, answer, agent))
    except OSError:
        os.close(reply)
        raise
    finally:
        os.close(answer)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.set_blocking(reply, False)
    return pid, reply


def execute(
    argv: list[str], env: dict[str, str], cwd: str, ends: tuple[int, int, int, int]
) -> NoReturn:
    """Turn a fresh fork into a command, or say why not and exit."""
    stdin, stdout, answer, agent = ends
    stage = "cannot start a process"
    try:
        adopt(agent, stdin, stdout)
        stage = f"cannot enter {cwd}"
        os.chdir(as_bytes(cwd))
        stage = f"cannot run {argv[0]}"
        variables = {as_bytes(key): as_bytes(value) for key, value in env.items()}
        os.execvpe(as_bytes(argv[0]), [as_bytes(word) for word in argv], variables)  # noqa: S606 - no shell is wanted
    except (OSError, ValueError, IndexError) as error:
        full = getattr(error, "errno", None) == errno.E2BIG
        more = too_long(argv, env) if full else ""
        os.write(answer, as_bytes(f"{stage}: {reason_of(error)}{more}")[:4096])
    finally:
        os._exit(127)


def too_long(argv: list[str], env: dict[str, str]) -> str:
    """Name the arguments and variables that are too long for the kernel, or their size in all."""
    words = {f"argument {at}": word for at, word in enumerate(argv)}
    words.update({f"variable {name}": f"{name}={value}" for name, value in env.items()})
    sizes = {name: len(as_bytes(word)) + 1 for name, word in words.items()}
    over = [f"{name} has {size} bytes" for name, size in sizes.items() if size > WORD_BYTES]
    if over:
        return f" ({', '.join(over)}; {WORD_BYTES} are the most)"
    return f" (in all {sum(sizes.values())} bytes of arguments and variables)"


def adopt(agent: int, stdin: int, stdout: int) -> None:
    """Tie a fresh fork to the agent's life, and give it its own session, streams and signals."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != agent:
        os._exit(127)
    os.setsid()
    for target, source in enumerate((stdin, stdout, stdout)):
        os.dup2(source, target)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN if number in IGNORED else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


class Loop:
    """Calls back when descriptors are ready, in the order in which they became so.

    The kernel's ready list keeps that order, so exits are seen in the order in which they happened,
    even if this process could not run in the meantime.
    """

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.callbacks: dict[int, Callable[[], None]] = {}

    def watch(
        self, descriptor: int, callback: Callable[[], None], events: int = select.EPOLLIN
    ) -> None:
        """Call back whenever a descriptor is ready for one of the events."""
        self.epoll.register(descriptor, events)
        self.callbacks[descriptor] = callback

    def unwatch(self, descriptor: int) -> None:
        """Stop watching a descriptor that is still open."""
        if self.callbacks.pop(descriptor, None):
            self.epoll.unregister(descriptor)

    def turn(self, pause: float) -> None:
        """Wait for ready descriptors, at most `pause` seconds, and call back."""
        ready = [(one, self.callbacks.get(one)) for one, _ in self.epoll.poll(pause)]
        for descriptor, callback in ready:
            # An earlier callback may have closed it and opened another with the same number.
            if callback and callback is self.callbacks.get(descriptor):
                callback()


QUEUE_BYTES = 256 << 10
"""Backpressure: while this much waits on standard output, no logs or packets are queued."""


class EventWriter:
    """Standard output, written without ever waiting for its reader."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.waiting = bytearray()
        self.broken = False
        os.set_blocking(descriptor, False)

    @property
    def full(self) -> bool:
        """Whether logs and workers' packets have to wait; exits and answers never do."""
        return len(self.waiting) >= QUEUE_BYTES

    def emit(self, kind: str, **fields: object) -> None:
        """Queue an event."""
        self.waiting += encode({"type": kind, **fields})

    def flush(self) -> None:
        """Write as much as the reader takes now."""
        try:
            while self.waiting and not self.broken:
                del self.waiting[: os.write(self.descriptor, self.waiting[:CHUNK_BYTES])]
        except BlockingIOError:
            pass
        except OSError:
            self.broken = True
