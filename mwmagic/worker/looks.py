"""Looks at this process while steps are measured: where its threads are, and who holds them up.

Nothing is added to what the framework runs. If the process's CPU clock stands still, the main
thread has called the framework, and no thread waits for a CPU, then the step waits for others: in a
collective, as long as no GPU computes. The looks cost CPU time in proportion to how often they are
made, so they are rarer if there are many threads. The counts that the kernel, Python and TensorFlow
keep all the time are read now and then.
"""

from __future__ import annotations

import gc
import os
import resource
import socket
import struct
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mwmagic.model.ownership import is_users

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["Collections", "ThreadLooks", "has_accelerator", "links", "used"]

LOOK_PAUSE_SECONDS = 0.002
"""The pause between two looks."""

LOOKS_RATIO = 0.02
"""The largest part of a CPU that looks take while steps are measured."""

IDLE_RATIO = 0.3
"""In a longer part of a pause than this the process did not compute; less is a look's own cost."""

STANDSTILL_SECONDS = 0.02
"""If a pause is this much too long, and takes no CPU time, the process was not allowed to run."""

LINES_EVERY = 5
"""In how many looks the lines of all threads are looked up once."""

SEEN_RATIO = 0.25
"""In how many of the looks a line is seen that takes a noticeable part of the time."""

FRAMES_LIMIT = 80
"""The frames of a thread that one look goes through."""

INPUT_FRAMES_LIMIT = 30
"""The frames below the innermost one of the main thread that may belong to an iterator."""

FRAMEWORK_FOLDERS = ("/tensorflow/", "/keras/", "/tf_keras/", "/jax/", "/torch/")
"""The folders of what calls the user's input pipeline and callbacks, and computes."""

ITERATOR_FILES = (
    "/tensorflow/python/distribute/input_lib.py",
    "/tensorflow/python/data/ops/iterator_ops.py",
    "/torch/utils/data/dataloader.py",
    "/grain/",
)
"""The files that a loop is in while it gets its next batch."""

FUTEX_CALL = {"x86_64": b"202", "aarch64": b"98"}.get(os.uname().machine, b"")
"""The system call in which threads wait for each other."""

PLACE_CHARACTERS = 200
"""The longest description of a line."""


class ThreadLooks:
    """What was seen of this process's threads since this was made, in seconds.

    `waits` is the time in which it waited for nothing of its own, `queued` that in which other
    programs had the CPUs that it wanted, `held` that in which all of it stood still, `own` that in
    which the user's code slept or read something, `slept` the part of that in the main thread, and
    `input` that in which the main thread got its next batch. `aside` leaves out what follows.
    """

    def __init__(self) -> None:
        self.aside = False
        self.waits = self.queued = self.held = self.own = self.slept = 0.0
        self.input = self.took = 0.0
        self._main = threading.get_ident()
        self._main_file = f"/proc/self/task/{threading.get_native_id()}/syscall"
        self._seen: dict[str, Counter[str]] = {"at_input": Counter(), "at_main": Counter()}
        self._seen["at_own"] = Counter()
        self._looks = 0
        self._states: list[int] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mwmagic-steps", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop looking."""
        self._over.set()

    def lines(self) -> dict[str, str]:
        """Return the user's lines that were seen most often."""
        found = {}
        for name, every in (("at_input", LINES_EVERY), ("at_main", LINES_EVERY), ("at_own", 1)):
            seen = dict(self._seen[name])  # in one go: the other thread may just add to it
            line = max(seen, key=seen.__getitem__, default="")
            if line and seen[line] * every >= SEEN_RATIO * self._looks:
                found[name] = line
        return found

    def _run(self) -> None:
        own = str(threading.get_native_id())
        before, used, delayed = time.monotonic(), time.process_time(), _delay()
        began, pause = time.thread_time(), LOOK_PAUSE_SECONDS
        self._states = _states(own)
        while not self._over.wait(pause):
            now, cpu, delay = time.monotonic(), time.process_time(), _delay()
            late = now - before - pause > STANDSTILL_SECONDS
            self._look(now - before, cpu - used, delay - delayed if late else None)
            before, used, delayed = now, cpu, delay
            self.took = time.thread_time() - began
            pause = max(LOOK_PAUSE_SECONDS, self.took / self._looks / LOOKS_RATIO)
        for descriptor in self._states:
            os.close(descriptor)

    def _look(self, span: float, ran: float, delayed: float | None) -> None:
        """Take in what happened since the last look.

        If it came late, `delayed` says for how long it had to wait for a CPU.
        """
        frames = sys._current_frames()  # noqa: SLF001 - there is no other
        # This method's own frame would be in a circle with them, and keep those of the main thread,
        # with the iterator of a `fit` that is over, until garbage is collected: as the interpreter
        # ends, where TensorFlow waits for ever for threads that run Python for the iterator.
        del frames[threading.get_ident()]
        if self._looks % LINES_EVERY == 0:
            self._find_lines(frames)
        self._looks += 1
        main = frames.get(self._main)
        gets = not self.aside and _gets_batch(main)
        if gets:
            self.input += span
        idle = span - ran
        if idle < IDLE_RATIO * span or self.aside:
            return
        line = "" if gets else self._waiting_line(frames)
        if delayed is not None and delayed < span / 2:
            self.held += idle
        elif delayed is not None or any(map(_is_ready, self._states)):
            self.queued += idle
        elif line:
            self.own += idle
            self.slept += 0.0 if self._in_framework(main) else idle
            self._seen["at_own"][line] += 1
        elif not gets:
            self.waits += idle

    def _waiting_line(self, frames: dict[int, FrameType]) -> str:
        """Return the user's line that waits for something, in any thread; nothing without one."""
        main = frames.get(self._main)
        if not self._in_framework(main):
            return _users_line(main)
        others = (frame for thread, frame in frames.items() if thread != self._main)
        return next(filter(None, map(_called_line, others)), "")

    def _in_framework(self, main: FrameType | None) -> bool:
        """Return whether the main thread waits for the framework's threads."""
        if main is None or _kind(main.f_code.co_filename) == "framework":
            return True
        # A function in C has no frame: one of a framework waits for other threads, `sleep` and
        # what reads files do not.
        return _contents(self._main_file).partition(b" ")[0] in (FUTEX_CALL, b"")

    def _find_lines(self, frames: dict[int, FrameType]) -> None:
        for thread, frame in frames.items():
            line = _called_line(frame)
            if line:
                beside = thread == self._main and not _gets_batch(frame)
                self._seen["at_main" if beside else "at_input"][line] += 1


def _contents(path: str) -> bytes:
    """Return the beginning of one of the kernel's files; nothing if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 200)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _delay() -> float:
    """Return for how long this thread has waited for a CPU, in seconds; 0 if that is not known."""
    fields = _contents("/proc/thread-self/schedstat").split()
    return int(fields[1]) / 1e9 if len(fields) > 1 else 0.0


def _states(own: str) -> list[int]:
    """Open the kernel's account of each thread's state, other than this one's."""
    found = []
    with suppress(OSError):  # there may be no more descriptors
        for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - a look has to be short
            if thread != own:
                one = os.open(f"/proc/self/task/{thread}/stat", os.O_RDONLY)
                found.append(one)  # a list of all would be lost with an error
    return found


def _is_ready(descriptor: int) -> bool:
    """Return whether a thread runs or could run."""
    with suppress(OSError):  # it has ended
        return os.pread(descriptor, 64, 0).rpartition(b") ")[2][:1] == b"R"
    return False


def _gets_batch(frame: FrameType | None) -> bool:
    """Return whether a thread is in an iterator over batches."""
    for _ in range(INPUT_FRAMES_LIMIT):
        if frame is None:
            return False
        if _kind(frame.f_code.co_filename) == "framework" and _is_iterator(frame):
            return True
        frame = frame.f_back
    return False


def _is_iterator(frame: FrameType) -> bool:
    named = frame.f_code.co_name in ("__next__", "get_next")
    return named and any(file in frame.f_code.co_filename for file in ITERATOR_FILES)


def _called_line(frame: FrameType | None) -> str:
    """Return the user's line that a framework has called in a thread; nothing without one."""
    found = ""
    for _ in range(FRAMES_LIMIT):
        if frame is None:
            break
        code = frame.f_code
        kind = _kind(code.co_filename)
        if kind == "framework" and found:
            return found
        if kind == "user" and not found:
            found = _place(frame)
        frame = frame.f_back
    return ""


def _users_line(frame: FrameType | None) -> str:
    """Return the innermost line of the user's that a thread is in; nothing without one."""
    for _ in range(FRAMES_LIMIT):
        if frame is None:
            return ""
        if _kind(frame.f_code.co_filename) == "user":
            return _place(frame)
        frame = frame.f_back
    return ""


def _place(frame: FrameType) -> str:
    name = frame.f_code.co_filename.rpartition("/")[2]
    return f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"[:PLACE_CHARACTERS]


@lru_cache(maxsize=1000)
def _kind(file: str) -> str:
    """Return whose code a file is."""
    if any(folder in file for folder in FRAMEWORK_FOLDERS):
        return "framework"
    main = getattr(sys.modules.get("__main__"), "__file__", "") or ""
    return "user" if is_users(file, main) else ""


TCP_INFO_BYTES = 184
"""The part of `tcp_info` that is read."""

BYTES_ACKED_AT, BUSY_AT, FULL_AT = 120, 168, 176
"""Where it has the bytes that arrived at the other end, the microseconds in which some were on
their way, and those of them in which the other end had no room for more."""

MEMBERSHIP, GROUPS = Path("/proc/self/cgroup"), "/sys/fs/cgroup"
"""The file that says in which control groups this process is, and the folder of all of them."""

ACCELERATORS = ("/dev/nvidia", "/dev/kfd", "/dev/accel", "/dev/vfio")
"""How the files of accelerators begin, which compute while this process's CPU time stands still."""


def used() -> dict[str, float]:
    """Return what this process has used so far, by the names of the fields of `Window`."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu": usage.ru_utime + usage.ru_stime,
        "faults": usage.ru_majflt,
        "throttled": _throttled(),
        "traced": _traced(),
    }


class Collections:
    """How long Python's garbage collector runs, from now until the `end`.

    It is called back by the collector only that long: the program's interpreter is to end without
    anything of ours in its way.
    """

    def __init__(self) -> None:
        self.seconds = self._began = 0.0
        gc.callbacks.append(self._noted)

    def _noted(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.monotonic()
        elif self._began:
            self.seconds += time.monotonic() - self._began

    def end(self) -> None:
        """Count no more."""
        with suppress(ValueError):  # it is over, or the program has emptied the list
            gc.callbacks.remove(self._noted)


def _traced() -> float:
    """Return for how long TensorFlow has traced functions."""
    module = sys.modules.get(
        "tensorflow.python.eager.polymorphic_function.tracing_compilation", None
    )
    with suppress(Exception):  # another version may not count it
        return float(module._graph_building_time_counter.get_cell().value()) / 1e6  # type: ignore[union-attr]  # noqa: SLF001
    return 0.0


def _throttled() -> float:
    """Return for how long this process's control group was not allowed to run."""
    file = _cpu_account()
    if file is None:
        return 0.0
    with suppress(OSError, ValueError):
        rows = dict(line.split() for line in file.read_text().splitlines())
        if "throttled_usec" in rows:
            return int(rows["throttled_usec"]) / 1e6
        return int(rows.get("throttled_time", 0)) / 1e9
    return 0.0


@cache
def _cpu_account() -> Path | None:
    """Return the file that counts that; a container sees its own group as the top one."""
    with suppress(OSError):
        for line in MEMBERSHIP.read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds and "cpu" not in kinds.split(","):
                continue
            for top in (GROUPS, f"{GROUPS}/cpu"):
                for group in (f"{top}{path}", top):
                    file = Path(group, "cpu.stat")
                    if file.is_file() and "throttled" in file.read_text():
                        return file
    return None


class Traffic(NamedTuple):
    """What a connection has sent: bytes that arrived, and for how long some were underway.

    The time in which the other end did not take them is not the link's.
    """

    sent: int
    seconds: float


def links() -> dict[tuple[str, int, int], Traffic]:
    """Return what this process's open connections have sent.

    A connection is known by the address of the other end, and by both ports.
    """
    found: dict[tuple[str, int, int], Traffic] = {}
    if socket.getdefaulttimeout() is not None:
        return found  # Python would make the program's own sockets non-blocking
    for descriptor in _sockets():
        with suppress(OSError, struct.error), socket.socket(fileno=os.dup(descriptor)) as one:
            if one.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            peer, own = one.getpeername(), one.getsockname()
            info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
            places = (BYTES_ACKED_AT, BUSY_AT, FULL_AT)
            sent, busy, full = (struct.unpack_from("=Q", info, at)[0] for at in places)
            address = peer[0].removeprefix("::ffff:")
            found[address, peer[1], own[1]] = Traffic(sent, (busy - full) / 1e6)
    return found


def _sockets() -> list[int]:
    return [number for number, target in _files() if target.startswith("socket:")]


def has_accelerator() -> bool:
    """Return whether this process has opened an accelerator."""
    return any(target.startswith(ACCELERATORS) for _, target in _files())


def _files() -> list[tuple[int, str]]:
    """Return the open files of this process."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - this is read often
        with suppress(OSError):
            found.append((int(name), os.readlink(f"/proc/self/fd/{name}")))  # noqa: PTH115
    return found
