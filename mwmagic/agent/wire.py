"""What both ends of the agent's pipe share: messages, limits and environment variables.

The agent imports this as its sibling, the supervisor as ``mwmagic.agent.wire``. A message is a JSON
object on a line of its own, with a ``type``: `COMMANDS` go to an agent, `EVENTS` come from it.
"""

from __future__ import annotations

import json
import math
from binascii import a2b_base64, b2a_base64

TYPE_CHECKING = False  # importing typing would cost as much as everything else here
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

    Fields = dict[str, "type | tuple[type, ...]"]

VERSION = 1
"""The version of the protocol; both ends must have the same."""

MESSAGE_BYTES = 64 << 20
"""The longest message: a launch carries the code and an environment."""

CHUNK_BYTES = 64 << 10
"""The most bytes of a log, or of a file that was asked for, that one event carries."""

PACKET_BYTES = 64 << 10
"""The longest packet that a worker may send on its line."""

REST_BYTES = 64 << 20
"""The most output of a worker that is held in memory after its log could not be written."""

REST_SECONDS = 60.0
"""How long what a full disk could not take of a log can be read after its worker's exit."""

REQUEST_DESCRIPTORS = 4
"""A zygote gets these with each order: the request, the output, the answer's pipe, the line."""

LABEL = "MWMAGIC_PROCESS"
"""The variable by which a worker's descendants are recognised: the agent's pid and a name."""

LABEL_BYTES = 256
"""The room for a label in a zygote's environment, which its workers overwrite."""

LINE = "MWMAGIC_LINE"
"""The variable with the descriptor of the worker's end of its line."""

SCRATCH = "MWMAGIC_SCRATCH"
"""The variable with a folder for temporary files, which the agent removes after the worker."""

COLD_INSTALLED = "cold-installed"
COLD_FILE = "cold-file"
COLD_MODULE = "cold-module"
COLD_STOPPED = "cold-stopped"
"""Why a worker is not forked: other packages are installed than when the zygote began; a file has
changed that it has read; a module beside the program has the name of one that it has imported; a
signal has stopped the zygote."""

AGENT_LOST = "agent-lost"
NOT_STARTED = "not-started"
ENDED_EARLY = "ended-early"
LOG_LOST = "log-lost"
REMAINS = "remains"
"""Why `exited` has an ``error``: the agent ended, and the process with it; the process could not be
started; it was ended before it had started; bytes of its log are lost; a process that it left
behind could not be ended."""

UNRESOLVED = "unresolved"
SILENT = "silent"
REFUSED = "refused"
UNROUTABLE = "unroutable"
STRANGER = "stranger"
FAILED = "failed"
OBSTACLES = (UNRESOLVED, SILENT, REFUSED, UNROUTABLE, STRANGER, FAILED)
"""Why an address is not reached: its name is unknown; nothing answers in time; the connection is
refused; no route leads there; what answers is not the agent that listens; another error."""

NUMBER = (int, float)
MAYBE_INT = (int, type(None))
MAYBE_NUMBER = (int, float, type(None))
MAYBE_STR = (str, type(None))

COMMANDS: dict[str, Fields] = {
    "hello": {
        "version": int,
        "parent": MAYBE_INT,
        "silence": NUMBER,
        "sample": NUMBER,
        "inherit": bool,
    },
    "look": {"id": int},
    "find": {"id": int, "names": list, "env": dict},
    "hold": {"id": int, "count": int},
    "release": {"ports": list},
    "listen": {"id": int, "port": int, "word": str},
    "unlisten": {},
    "reach": {"id": int, "targets": list, "within": NUMBER},
    "warm": {"key": str, "argv": list, "env": dict, "cwd": str},
    "cool": {"key": str},
    "start": {
        "process": str,
        "argv": list,
        "env": dict,
        "cwd": str,
        "attributes": dict,
        "log": str,
        "report": MAYBE_STR,
        "zygote": MAYBE_STR,
        "credit": int,
        "grace": NUMBER,
    },
    "end": {"process": MAYBE_STR, "grace": NUMBER},
    "signal": {"process": str, "signal": int},
    "ask": {"process": str, "signal": int, "file": str},
    "credit": {"process": str, "bytes": int},
    "tell": {"processes": list, "data": str, "cell": int},
    "fetch": {"id": int, "path": str, "offset": int, "bytes": int},
    "list": {"id": int, "path": str},
    "put": {"id": int, "path": str, "offset": int, "data": str},
    "ping": {"n": int, "until": MAYBE_NUMBER},
    "close": {},
}
"""What a supervisor sends to an agent.

``hello`` says whether workers inherit the agent's environment, which what is sent adds to.
``warm`` asks for a zygote, which is known by its ``key``. ``cool`` lets one end, and nothing
reports that.
``start`` says how long a worker may take to end if the agent is asked to end, and which
``attributes`` (``umask``, ``nice``, ``limits``) it has as another process would hand them down.
``ping`` asks for an answer, and says ``until`` when, by the agent's own clock, the agent may
continue if no other comes. ``look`` asks what the machine has, ``find`` which versions of packages
the workers' Python has. ``listen`` has the agent listen at a held port until ``unlisten``, and tell
all that connect a ``word``; ``reach`` asks which ``targets``, each an address and a word, can be
reached ``within`` some seconds. ``fetch`` asks for a piece of a file, ``put`` brings one, ``list``
asks which files are below a directory, and ``tell`` sends a packet to a worker on its line; what
refuses it names the number of the ``cell`` that waits for it, or 0. ``ask`` sends a signal only to
a process that catches it and has the ``file`` open which the right handler writes to, so that the
signal cannot end the process, and to none that waits for any signal. Pieces of files travel as
`packed` text.
"""

EVENTS: dict[str, Fields] = {
    "need": {},
    "hello": {
        "version": int,
        "pid": int,
        "host": str,
        "python": str,
        "executable": str,
        "package": str,
        "folder": str,
        "addresses": dict,
        "time": NUMBER,
    },
    "looked": {"id": int, "machine": dict},
    "found": {"id": int, "versions": dict},
    "held": {"id": int, "ports": list},
    "listening": {"id": int},
    "reached": {"id": int, "results": list},
    "warmed": {
        "key": str,
        "pid": int,
        "seconds": NUMBER,
        "reads": list,
        "sets": dict,
        "left": list,
    },
    "cooled": {"key": str, "error": str, "module": (str, type(None))},
    "stale": {"key": str},
    "started": {
        "process": str,
        "pid": int,
        "time": NUMBER,
        "wall": NUMBER,
        "warm": bool,
        "cold": (dict, type(None)),
    },
    "output": {"process": str, "offset": int, "data": str},
    "unwritten": {"process": str, "size": int, "path": str, "error": str},
    "packet": {"process": str, "time": NUMBER, "size": int, "data": str},
    "exited": {
        "process": str,
        "code": MAYBE_INT,
        "signal": MAYBE_INT,
        "time": NUMBER,
        "wall": NUMBER,
        "size": int,
        "report": (dict, type(None)),
        "oom": (bool, type(None)),
        "usage": dict,
        "dropped": int,
        "reason": MAYBE_STR,
        "error": MAYBE_STR,
        "errno": MAYBE_INT,
    },
    "usage": {"time": NUMBER, "machine": dict, "processes": dict},
    "fetched": {"id": int, "offset": int, "data": str, "size": int},
    "listed": {"id": int, "files": list},
    "stored": {"id": int},
    "pong": {"n": int, "time": NUMBER},
    "refused": {"command": MAYBE_STR, "reason": MAYBE_STR, "error": str},
}
"""What an agent sends to its supervisor.

``need`` comes from the agent's loader, which lacks the code. ``hello`` says which interpreter and
which copy of this package are there, for the commands that use them, a ``folder`` for files that
are brought, and the machine's IP addresses by network interface.
``warmed`` says which variables a zygote's imports have read, and which they have set, and what is
``left`` out, and why, of what it could do without.
``cooled`` says that there is no zygote, and which module is the reason if one is; ``stale`` that a
zygote ends because what it has read is not as it was. ``started`` says ``why`` a worker was not
forked from the zygote that was named, and ``what`` differs.
``found`` has None for a package that is not there, and no text for one without a version.
``reached`` has None for each target that was reached; otherwise ``why`` not (one of `OBSTACLES`),
the IP addresses ``at`` which it was sought, and the ``error``.
``unwritten`` says why a log cannot be written any more, how many bytes it has, and which file of
the agent's has what follows, at the same offsets.
``output``, ``packet`` and ``fetched`` carry bytes as text (see `as_text`). ``packet`` has what came
on a worker's line at a time, and the size of the log then. ``exited`` counts the packets that
were too long to be forwarded; ``errno`` is the system's number for its ``error``, if it has one.
Its ``usage`` has the process's state when it was asked to end.
``usage`` has the ``load`` of the whole machine over a minute, the bytes of its ``memory`` that are
in use, and how many its network has carried so far, beside what each process uses: seconds of
``cpu``, bytes of ``memory``, bytes ``read`` from disks and ``written`` so far, and of each of its
``gpus`` the percentage of the time that it computes, and bytes of memory.
"""


def as_text(data: bytes) -> str:
    """Return bytes as text that JSON can carry and that `as_bytes` turns back."""
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    """Return the bytes of a text, independently of the locale."""
    return text.encode("utf-8", "surrogateescape")


def packed(data: bytes) -> str:
    """Return bytes of any kind as text, which is shorter than `as_text` where they are no text."""
    return b2a_base64(data, newline=False).decode()


def unpacked(text: str) -> bytes:
    """Return the bytes that `packed` made a text of; raise ValueError if it is none."""
    return a2b_base64(text)


def parsed(line: bytes | str) -> dict[str, Any]:
    """Return the JSON object in a line, or raise ValueError."""
    try:
        value = json.loads(line, parse_constant=refused_constant, parse_float=finite_number)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - one error for all bad lines
    return value


def refused_constant(name: str) -> NoReturn:
    """Refuse NaN and the infinities, which Python's parser accepts but JSON does not."""
    raise ValueError(f"{name} is not a number")


def finite_number(text: str) -> float:
    """Return a number, but refuse one that is too large: Python makes an infinity of it."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text:.20} is too large")
    return number


class LineBuffer:
    """Makes lines of the pieces in which a stream brings them.

    `rest` is what has come of a line that has not ended.
    """

    def __init__(self) -> None:
        self.rest = bytearray()

    def lines(self, data: bytes) -> list[bytes]:
        """Take a piece, and return the lines that end in it, without their ends."""
        self.rest += data
        if b"\n" not in data:
            return []
        *lines, self.rest = self.rest.split(b"\n")
        return list(map(bytes, lines))


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as one line; raise ValueError if a number in it is not finite."""
    text = json.dumps(message, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii") + b"\n"


def fault(message: Mapping[str, Any], table: Mapping[str, Fields]) -> str | None:
    """Return what is wrong with a message according to a table of the schema, if anything."""
    kind = message.get("type")
    if not isinstance(kind, str) or kind not in table:
        return f"unknown message {kind!r}; known are {', '.join(table)}"
    for name, types in table[kind].items():
        if name not in message:
            return f"message {kind!r} lacks {name!r}"
        if not isinstance(message[name], types):
            return f"message {kind!r} has {name} = {message[name]!r}"
    return None
