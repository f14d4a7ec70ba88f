"""What a log leaves out where it is shown, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mwmagic.model.fault import Fault

__all__ = ["earlier_words", "fault_words", "hidden_words", "left_out_words"]


def fault_words(fault: Fault) -> str:
    """Say that a parser failed."""
    return f"mwmagic's {fault.parser} parser failed and left something out: {fault.error}"


def hidden_words(count: int) -> str:
    """Say that some lines are not shown because they mean nothing to a user."""
    lines = "line" if count == 1 else "lines"
    return f"{count} {lines} of framework notices hidden, `--raw` shows them"


def left_out_words(count: int) -> str:
    """Say that some lines are not shown because a page could not keep up with them."""
    return f"{count:,} lines left out here; the file has them all"


def earlier_words(count: int | None) -> str:
    """Say that some lines are not shown because they come before the last ones."""
    what = "earlier lines" if count is None else f"{count} earlier lines"
    return f"... {what} not shown, `--tail 0` shows them"
