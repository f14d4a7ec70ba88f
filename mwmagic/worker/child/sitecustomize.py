# ruff: noqa: INP001 - a folder for PYTHONPATH is no package
"""Makes a Python that a worker starts what `python train.py` is under mwmagic.

A worker has this folder at the head of PYTHONPATH, so Python imports this file before it runs
anything. Any Python may be started, with any packages or none.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # a short program starts without `typing`
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - `pathlib` takes a while to import
_FRAMEWORKS = ("tensorflow", "keras", "tf_keras")


class _Preparing:
    """Waits for the program's own import of a framework, and prepares that as a worker does."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _FRAMEWORKS or cls not in sys.meta_path:
            return None
        sys.meta_path.remove(cls)
        _prepare()
        specs = (one.find_spec(name, path, target) for one in list(sys.meta_path))
        return next((spec for spec in specs if spec is not None), None)


def _prepare() -> None:
    home = os.path.dirname(os.path.dirname(os.path.dirname(_FOLDER)))  # noqa: PTH120 - as above
    theirs = {one: sys.modules.pop(one) for one in [*sys.modules] if one.split(".")[0] == "mwmagic"}
    sys.path.insert(0, home)
    try:
        from mwmagic.worker import preparation
    finally:
        sys.path.remove(home)
    preparation.prepare_child()
    preparation.leave_name(sys.path[0])
    sys.modules.update({name: theirs[name] for name in theirs.keys() - sys.modules.keys()})


def _hide() -> None:
    """Let this program see `sys.path` and PYTHONPATH as without mwmagic; children inherit both."""
    inherited = os.environ.get("PYTHONPATH", "")
    others = [one for one in inherited.split(os.pathsep) if one != _FOLDER]
    if others:
        os.environ["PYTHONPATH"] = os.pathsep.join(others)
    else:
        os.environ.pop("PYTHONPATH", None)
    os.putenv("PYTHONPATH", inherited)  # which `os.environ` does not notice
    sys.path[:] = [one for one in sys.path if one != _FOLDER]


_hide()
if "TF_CONFIG" in os.environ and sys.version_info >= (3, 10):
    sys.meta_path.insert(0, _Preparing)
del sys.modules["sitecustomize"]
__import__("sitecustomize")  # the next one; that there is none is for `site` to see
