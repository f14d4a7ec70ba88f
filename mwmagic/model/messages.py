"""The messages that mwmagic's processes send each other.

Every message is a JSON object on a line of its own, with a ``type``. The
kernel and the command line send `REQUESTS` to the supervisor and receive
`REPLIES`; the supervisor sends `COMMANDS` to an agent and receives `EVENTS`.
The agent is one file that imports nothing of this package; a test holds it to
these tables.
"""

from __future__ import annotations

import json
from typing import Any

from mwmagic.errors import MessageError

__all__ = [
    "COMMANDS",
    "EVENTS",
    "LIMIT",
    "REPLIES",
    "REQUESTS",
    "VERSION",
    "Message",
    "check",
    "decode",
    "encode",
]

VERSION = 1
"""Both sides of a connection must have the same."""

LIMIT = 64 * 2**20
"""Bytes in a line at the most: a launch carries the code and an environment."""

Message = dict[str, Any]

_NUMBER = (int, float)
_MAYBE_INT = (int, type(None))
_MAYBE_STR = (str, type(None))
_MAYBE_NUMBER = (int, float, type(None))
_Fields = dict[str, "type | tuple[type, ...]"]

REQUESTS: dict[str, _Fields] = {
    "hello": {"version": int, "owner": bool},
    "launch": {"tasks": list, "script": str, "source": str, "args": list, "env": dict, "cwd": str},
    "stop": {"task": _MAYBE_STR, "grace": _MAYBE_NUMBER},
    "restart": {},
    "signal": {"task": str, "signal": int},
    "stacks": {},
    "snapshot": {},
    "detach": {},
    "close": {},
}
"""What a client may ask of a supervisor; every request carries an ``id``."""

REPLIES: dict[str, _Fields] = {
    "reply": {"id": int, "result": dict},
    "error": {"id": int, "kind": str, "error": str},
    "snapshot": {"cluster": dict, "run": (dict, type(None))},
}
"""What a supervisor sends: an answer with the request's ``id``, or news."""

COMMANDS: dict[str, _Fields] = {
    "hello": {"version": int, "parent": _MAYBE_INT, "silence": _NUMBER, "sample": _NUMBER},
    "hold": {"id": int, "count": int},
    "release": {"ports": list},
    "warm": {"key": str, "argv": list, "env": dict, "cwd": str},
    "start": {
        "process": str,
        "argv": list,
        "env": dict,
        "cwd": str,
        "log": str,
        "report": _MAYBE_STR,
        "zygote": _MAYBE_STR,
        "credit": int,
    },
    "end": {"process": _MAYBE_STR, "grace": _NUMBER},
    "signal": {"process": str, "signal": int},
    "credit": {"process": str, "bytes": int},
    "ping": {"n": int},
    "close": {},
}
"""What a supervisor may tell an agent."""

EVENTS: dict[str, _Fields] = {
    "hello": {"version": int, "pid": int, "host": str, "python": str, "time": _NUMBER},
    "held": {"id": int, "ports": list},
    "warmed": {"key": str, "pid": int, "seconds": _NUMBER},
    "cooled": {"key": str, "error": str},
    "started": {"process": str, "pid": int, "time": _NUMBER, "wall": _NUMBER, "warm": bool},
    "output": {"process": str, "offset": int, "data": str},
    "exited": {
        "process": str,
        "code": _MAYBE_INT,
        "signal": _MAYBE_INT,
        "time": _NUMBER,
        "wall": _NUMBER,
        "size": int,
        "report": (dict, type(None)),
        "oom": (bool, type(None)),
        "usage": dict,
        "error": _MAYBE_STR,
    },
    "usage": {"time": _NUMBER, "processes": dict},
    "pong": {"n": int, "time": _NUMBER},
    "refused": {"command": _MAYBE_STR, "error": str},
}
"""What an agent reports."""


def encode(message: Message) -> bytes:
    """Return a message as one line."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def decode(line: bytes) -> Message:
    """Read one line.

    Raises
    ------
    MessageError
        It is not a JSON object with a ``type``.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"not a message: {line[:80]!r} ({error})") from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise MessageError(f"not a message: {line[:80]!r} (an object with a type is needed)")
    return message


def check(message: Message, table: dict[str, _Fields]) -> Message:
    """Hold a message to a table of the schema and return it.

    Raises
    ------
    MessageError
        Its type is unknown, or a field is missing or of the wrong type.
    """
    kind = message["type"]
    if kind not in table:
        raise MessageError(f"unknown message {kind!r}; known are {', '.join(table)}")
    for name, types in table[kind].items():
        if name not in message:
            raise MessageError(f"message {kind!r} lacks {name!r}")
        if not isinstance(message[name], types):
            raise MessageError(f"message {kind!r} has {name} = {message[name]!r}")
    return message
