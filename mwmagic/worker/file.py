"""Files of the record that a worker writes: as a whole or not at all, and for their owner alone."""

from __future__ import annotations

import os

__all__ = ["replace", "save"]


def replace(path: str, text: str) -> None:
    """Write a text in place of what a file holds."""
    draft = f"{path}.draft"
    save(draft, text.encode(errors="backslashreplace"))
    os.replace(draft, path)  # noqa: PTH105 - both are strings


def save(path: str, data: bytes) -> None:
    """Write a file that nobody reads before this has returned."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
