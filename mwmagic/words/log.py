"""What a log leaves out where it is shown, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.model.text import counted

if TYPE_CHECKING:
    from mwmagic.model.fault import Fault

__all__ = ["earlier_words", "fault_words", "hidden_words", "left_out_words"]


def fault_words(fault: Fault) -> str:
    """Say that a parser failed."""
    return f"mwmagic's {fault.parser} parser failed and left something out: {fault.error}"


def hidden_words(count: int) -> str:
    """Say that some lines are not shown because they mean nothing to a user."""
    return f"{counted(count, 'line')} of framework notices hidden, `--raw` shows them"


def left_out_words(count: int) -> str:
    """Say that some lines are not shown because a page could not keep up with them."""
    return f"{counted(count, 'line')} left out here; the file has the whole log"


def earlier_words(count: int | None) -> str:
    """Say that some lines are not shown because they come before the last ones."""
    what = "earlier lines" if count is None else counted(count, "earlier line")
    return f"... {what} not shown, `--tail 0` shows them"
