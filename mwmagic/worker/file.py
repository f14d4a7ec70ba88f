"""Files of the record that a worker writes: as a whole or not at all, and for their owner alone."""

from __future__ import annotations

import os

__all__ = ["replace"]


def replace(path: str, text: str) -> None:
    """Write a text in place of what a file holds."""
    draft = f"{path}.draft"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    os.replace(draft, path)  # noqa: PTH105 - both are strings
