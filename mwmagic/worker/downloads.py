"""Downloads that several workers of one machine start at once.

Keras writes a download straight to its place in the cache. A worker that looks
there in the meantime mistakes a part for the whole, or writes into the same file.
"""

from __future__ import annotations

import functools
import os

from mwmagic.repairs.imports import after_import

TYPE_CHECKING = False  # a worker starts without `typing` and `pathlib`
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

__all__ = ["install", "whole"]

_MODULES = {"keras": "keras.src.utils.file_utils", "tf_keras": "tf_keras.src.utils.data_utils"}


def install(keras: str) -> None:
    """Make Keras's downloads appear in the cache only when they are complete.

    Call it before the user's code uses Keras. It imports nothing.
    """
    after_import(_MODULES[keras], _repair)


def _repair(module: ModuleType) -> None:
    retrieve = getattr(module, "urlretrieve", None)
    if retrieve is not None:
        vars(module)["urlretrieve"] = whole(retrieve)


def whole(retrieve: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that downloads to a private file, and then renames it."""

    @functools.wraps(retrieve)
    def retrieve_whole(url: str, filename: str, *args: Any, **options: Any) -> tuple[str, Any]:  # noqa: ANN401 - urllib's
        from pathlib import Path

        part = Path(f"{filename}.{os.getpid()}.part")
        try:
            _, headers = retrieve(url, str(part), *args, **options)
            part.replace(filename)
        finally:
            part.unlink(missing_ok=True)
        return filename, headers

    return retrieve_whole
