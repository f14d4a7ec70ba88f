"""Python's own modules, imported when they are needed: most workers need few of them."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

__all__ = ["standard"]

_FOLDER = os.path.dirname(os.__file__) + "/"  # noqa: PTH120 - `pathlib` is one of them


def standard(name: str) -> Any:  # noqa: ANN401 - a module
    """Import one of Python's modules, also where the user's folder holds one of that name.

    Parameters
    ----------
    name : str
        The module's name, without a dot.
    """
    known = sys.modules.get(name)
    if known is not None and _is_pythons(known):
        return known
    sys.modules.pop(name, None)
    path, sys.path[:] = sys.path[:], [one for one in sys.path if f"{one}/".startswith(_FOLDER)]
    try:
        return __import__(name)
    finally:
        sys.path[:] = path
        if known is not None:
            sys.modules[name] = known


def _is_pythons(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is None or file.startswith(_FOLDER)
