"""What a fetch brought, in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .host import size_words

if TYPE_CHECKING:
    from mwmagic.model.fetch import Fetch

__all__ = ["fetch_words"]


def fetch_words(fetch: Fetch) -> str:
    """Return what was fetched, and where it is."""
    if fetch.state == "here":
        return f"{fetch.to} is here already: {fetch.task} shares this disk"
    files = f"{fetch.files} files, " if fetch.files != 1 else ""
    return f"fetched {fetch.path} of {fetch.task} to {fetch.to} ({files}{size_words(fetch.size)})"
