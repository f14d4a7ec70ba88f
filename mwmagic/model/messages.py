"""The messages that mwmagic's processes send each other.

Every message is a JSON object on a line of its own, with a ``type``. The
kernel and the command line send `REQUESTS` to the supervisor and receive
`REPLIES`; the supervisor sends `COMMANDS` to an agent and receives `EVENTS`.
The agent defines the latter two, since it runs anywhere and cannot import this
package.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic.agent import wire
from mwmagic.agent.wire import COMMANDS, EVENTS, MESSAGE_BYTES, VERSION, LineBuffer, encode
from mwmagic.errors import MessageError

from .options import ClusterOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mwmagic.agent.wire import Fields

__all__ = [
    "COMMANDS",
    "EVENTS",
    "MESSAGE_BYTES",
    "REPLIES",
    "REQUESTS",
    "VERSION",
    "Launch",
    "LineBuffer",
    "Message",
    "Start",
    "check",
    "decode",
    "encode",
]

Message = dict[str, Any]


@dataclass(frozen=True)
class Launch:
    """What is launched on a task."""

    script: str = ""
    """The file as the user names it; ``sys.argv[0]`` and tracebacks show it."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    """The environment that the process inherits, and those of its variables that were given with
    the launch itself."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """The umask, niceness and limits of the process that launched it."""
    cwd: str = ""
    cell: str = ""
    """The notebook cell that the code comes from, if it comes from one."""
    notebook: tuple[str, ...] = ()
    """The names that the code uses and that only the notebook defines."""
    live: bool = False
    """Whether it is the program that takes cells."""
    keep: bool = False
    """Whether the process stays when its program is over, and takes cells."""
    answered: bool = False
    """Whether what the program asks, by `input` or a debugger, can be answered."""
    trial: str = ""
    """The sweep and the trial that it is for, as ``2/17``; empty if it is for none."""

    @property
    def stays(self) -> bool:
        """Whether the process stays until it is stopped, so that its end is always a failure."""
        return self.live or self.keep

    @property
    def path(self) -> Path:
        """The path of the script."""
        return Path(self.cwd, self.script)

    def as_json(self) -> Message:
        """Return the fields as a request has them."""
        return {name: _LAUNCH[name](value) for name, value in vars(self).items()}

    @classmethod
    def read(cls, message: Message) -> Launch:
        """Return what a request says, which was checked."""
        own = {name: message[name] for name in _LAUNCH}
        return cls(**{**own, "args": tuple(own["args"]), "notebook": tuple(own["notebook"])})


_JSON: dict[type, type] = {tuple: list}
"""What JSON has in place of a type."""

_LAUNCH = {name: _JSON.get(type(value), type(value)) for name, value in vars(Launch()).items()}
"""The fields of a `Launch` in a request, and their types."""


_MAYBE_NUMBER = (*wire.NUMBER, type(None))

_REQUESTS: dict[str, Fields] = {
    "hello": {"version": int, "owner": bool},
    "launch": {"tasks": list, "source": str, "draft": str, "options": dict, **_LAUNCH},
    "cell": {"tasks": list, "name": str, "source": str, "alone": bool},
    "look": {"tasks": list, "wanted": str, "text": str},
    "interrupt": {"cell": int},
    "reply": {"task": str, "text": wire.MAYBE_STR},
    "carry": {"tasks": list, "path": str, "back": bool},
    "stop": {"task": wire.MAYBE_STR, "grace": _MAYBE_NUMBER},
    "restart": {},
    "signal": {"task": str, "signal": int},
    "stacks": {},
    "fetch": {
        "key": str,
        "task": str,
        "path": str,
        "to": wire.MAYBE_STR,
        "overwrite": bool,
    },
    "forget": {"key": str},
    "snapshot": {},
    "update": {"options": dict},
    "detach": {},
    "leave": {},
    "close": {},
}

REQUESTS: dict[str, Fields] = {kind: {"id": int, **own} for kind, own in _REQUESTS.items()}
"""What a client may request of a supervisor; every request carries an ``id``."""

REPLIES: dict[str, Fields] = {
    "reply": {"id": int, "result": dict},
    "error": {"id": int, "kind": str, "error": str},
    "snapshot": {"cluster": dict, "run": (dict, type(None))},
    "cell": {"id": int, "news": list},
}
"""What a supervisor sends: an answer with the request's ``id``, or an update.

A ``cell`` is answered by what happens to it, as `mwmagic.model.live` says, unless it is refused; a
``carry`` by its end. ``news`` is a list of pairs, a `CellNews` and its fields.
"""


def decode(line: bytes) -> Message:
    """Parse one line."""
    try:
        message = wire.parsed(line)
    except ValueError as error:
        raise MessageError(f"not a message: {line[:80]!r} ({error})") from error
    if not isinstance(message.get("type"), str):
        raise MessageError(f"not a message: {line[:80]!r} (expected an object with a type)")
    return message


def check(message: Message, table: dict[str, Fields]) -> Message:
    """Check a message against a table of the schema, and return it."""
    fault = wire.fault(message, table)
    if fault:
        raise MessageError(fault)
    return message


@dataclass(frozen=True)
class Start:
    """A cluster's declaration, and what only its owner can know.

    `env` is the environment that workers inherit: the owner's, with the declared variables. `warm`
    says whether to keep a warm process: the user wants one, and the framework is installed.
    """

    options: ClusterOptions
    env: dict[str, str] = field(default_factory=dict)
    warm: bool = False

    def as_line(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Start:
        """Parse what `as_line` returned."""
        values = json.loads(line)
        return cls(**{**values, "options": ClusterOptions.from_json(values["options"])})
