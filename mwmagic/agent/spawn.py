"""Forks a process and executes a command in it."""

from __future__ import annotations

import errno
import os
import signal

from .system import PR_SET_PDEATHSIG, inherit, prctl, reason_of, wear
from .wire import as_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


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

    Its standard input and its output are the `ends`. A `worker` has a line, a badge and
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
                wear(worker[1])
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
