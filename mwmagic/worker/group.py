"""The text of an exception in a line: with its notes and, of a group, its exceptions."""

from __future__ import annotations

__all__ = ["MEMBERS_LIMIT", "grouped", "members", "notes_of", "summary"]

MEMBERS_LIMIT = 5
"""Maximum number of a group's exceptions in its message."""


def members(error: BaseException) -> list[BaseException]:
    """Return the exceptions in a group, those of groups in it instead of these; else none."""
    left, found = [error], list[BaseException]()
    while left and len(found) <= MEMBERS_LIMIT:
        one = left.pop(0)
        inner = getattr(one, "exceptions", None)  # which `exceptiongroup` gives Python 3.10
        if isinstance(inner, tuple) and inner and all(isinstance(e, BaseException) for e in inner):
            left[:0] = inner
        elif one is not error:
            found.append(one)
    return found


def notes_of(error: BaseException) -> list[str]:
    """Return what `add_note` added to an error."""
    notes = getattr(error, "__notes__", ())
    return [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []


def summary(error: BaseException) -> str:
    """Return an error's text in a line, with its notes and, of a group, its exceptions."""
    text = str(error.msg if isinstance(error, SyntaxError) else error)
    first = grouped(error, text.strip().partition("\n")[0])
    notes = "; ".join(note.strip().partition("\n")[0] for note in notes_of(error))
    return f"{first} ({notes})" if notes else first


def grouped(error: BaseException, text: str) -> str:
    """Return a group's text with its exceptions; another error's as it is."""
    inner = members(error)
    told = [f"{type(one).__name__}: {summary(one)}".strip(": ") for one in inner[:MEMBERS_LIMIT]]
    more = ["..."] if len(inner) > MEMBERS_LIMIT else []
    return f"{text}: {'; '.join(told + more)}" if told else text
