"""Whose failure an exit is, which decides what the gang does next."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from mwmagic.gang import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .exit import Exit

__all__ = ["blamed", "is_consequence", "kind"]

CONSEQUENCE = re.compile(
    r"Connection (?:reset|closed) by peer"
    r"|Connection refused"
    r"|Socket closed"
    r"|Broken pipe"
    r"|failed to connect to all addresses"
    r"|Collective ops is aborted by"
    r"|stopped sending heartbeats"
    r"|JAX distributed service detected fatal errors"
    r"|CoordinationService/"
    r"|Error reported from /job:"
    r"|\bUNAVAILABLE: "
    r"|^UnavailableError: ",
    re.IGNORECASE,
)
"""What TensorFlow, Gloo and JAX say when another task is gone."""

OWN = re.compile(
    r"expected type \d+ and data_type"
    r"|Shape mismatch in the collective"
    r"|is joining a group with size"
    r"|tried to connect with a different incarnation"
    r"|expects a different device incarnation"
)
"""What they say, often in the same message, when the tasks do not fit together."""

PYTHON_ERRORS = ("BrokenPipeError", "ConnectionRefusedError", "ConnectionResetError")
"""Python's own errors with such texts: those of the user's connections."""

PORT = re.compile(r"Could not start gRPC server|Failed to add port to server")
"""What TensorFlow says when its port is taken (``add_port.cc``, ``grpc_server_lib.cc``)."""

PERMANENT = ("SyntaxError", "IndentationError", "TabError", "ImportError", "ModuleNotFoundError")
"""Exceptions of a start-up that cannot go better the next time."""

_TASK = re.compile(
    r"(?:remote target |Error reported from |^)/job:(\w+)/(?:replica:\d+/)?task:(\d+)",
    re.MULTILINE,
)
_RANKS = re.compile(r"stopped sending heartbeats\):\n((?:\d+\n)+)")
_LEADER = re.compile(r"CoordinationService/")


def _text(end: Exit) -> str:
    """Return what a task said last: its exception, or what its native code printed."""
    return end.raised or end.tail


def is_consequence(end: Exit) -> bool:
    """Whether an exit only shows that another task is gone."""
    if end.unknown or end.code == 0:
        return False
    # Who has said why it ends may be killed before it has ended.
    if end.signal not in (None, 6) and not end.report:
        return False
    if end.report and end.report.get("type") in PYTHON_ERRORS:
        return False
    text = _text(end)
    return bool(CONSEQUENCE.search(text)) and not OWN.search(text)


def kind(end: Exit) -> Failure:
    """Tell what kind of failure an exit is."""
    if end.ended:
        return Failure.CONSEQUENCE
    if end.signal is None and PORT.search(end.tail):
        return Failure.PORT
    if end.report and end.report.get("type") in PERMANENT:
        return Failure.PERMANENT
    if end.unknown and not end.lost:
        return Failure.PERMANENT
    return Failure.CONSEQUENCE if is_consequence(end) else Failure.PRIMARY


def _named(end: Exit) -> set[str]:
    """Return the tasks that an exit's own words hold responsible."""
    text = _text(end)
    named = {f"{job}:{index}" for job, index in _TASK.findall(text)}
    for ranks in _RANKS.findall(text):
        named |= {f"worker:{rank}" for rank in ranks.split()}
    return named


def blamed(hurt: Sequence[Exit], leader: str) -> str | None:
    """Return the task that those who were hurt hold responsible, if it was not hurt itself.

    Parameters
    ----------
    hurt : sequence of Exit
        Exits that are consequences.
    leader : str
        The task with the coordination service: who cannot reach that means it.
    """
    names = {end.task for end in hurt}
    votes = Counter(name for end in hurt for name in _named(end) - names)
    if votes:
        return votes.most_common(1)[0][0]
    if leader not in names and any(_LEADER.search(_text(end)) for end in hurt):
        return leader
    return None
