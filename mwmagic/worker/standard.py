"""Modules of Python's own and of this package, where the user's folder holds some of their names.

Python's own are imported when they are needed: most workers need few of them.
"""

from __future__ import annotations

import os
import sys

from mwmagic.model.variables import ANNOUNCED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

__all__ = ["leave_name", "standard"]

_FOLDER = os.path.dirname(os.__file__) + "/"  # noqa: PTH120 - `pathlib` is one of them

_ROOMS = ("agent", "errors", "frameworks", "hooks", "model", "recovery", "repairs", "worker")
"""The parts of this package that a worker may import more of."""


def standard(name: str) -> Any:  # noqa: ANN401 - a module
    """Import one of Python's modules, also where the user's folder holds one of that name."""
    known = sys.modules.get(name)
    if known is not None and _is_pythons(known):
        return known
    sys.modules.pop(name, None)
    try:
        _import(name)
        return sys.modules[name]
    finally:
        if known is not None:
            sys.modules[name] = known


def _import(*names: str) -> None:
    """Import modules that find no others than Python's."""
    path, sys.path[:] = sys.path[:], [one for one in sys.path if f"{one}/".startswith(_FOLDER)]
    try:
        for name in names:
            __import__(name)
    finally:
        sys.path[:] = path


def leave_name(folder: str) -> None:
    """Have `import mwmagic` find a module of the user's with that name, if there is one.

    This package still imports parts of itself: those below the rooms, which keep their names. A
    line says so if the user's package has one of these names too.
    """
    own = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 - as above
    ends = (".py", "/__init__.py")
    beside = any(os.path.exists(f"{folder}/mwmagic{end}") for end in ends)  # noqa: PTH110 - as above
    if beside and os.path.realpath(f"{folder}/mwmagic") != own:
        _import(*(f"mwmagic.{room}" for room in _ROOMS))
        del sys.modules["mwmagic"]
        for room in _ROOMS:
            if any(os.path.exists(f"{folder}/mwmagic/{room}{end}") for end in ends):  # noqa: PTH110 - as above
                sys.stderr.write(
                    f"{ANNOUNCED}a worker imports its own mwmagic.{room}, not yours; rename the "
                    "folder mwmagic beside the program\n"
                )


def _is_pythons(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is None or file.startswith(_FOLDER)
