"""Runs a function right after a module is imported, without importing it.

A worker's bootstrap has to prepare TensorFlow and Keras, but it is up to the user's code
whether and when they are imported, and importing them takes seconds. So a finder at the
head of `sys.meta_path` waits for the module's name and lets the ordinary finders do the
work.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock

TYPE_CHECKING = False  # a worker starts without `typing`
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Action = Callable[[ModuleType], None]

__all__ = ["Loading", "after_import", "found_after"]

_LOCK = RLock()

_PACKAGES = ("jax", "keras", "matplotlib", "tensorflow", "tf_keras", "torch")
"""What is only waited for where it is a package; a file of that name is the user's."""


def after_import(name: str, action: Callable[[ModuleType], None]) -> None:
    """Call `action` with a module as soon as that module is imported.

    A module whose body is still running counts as imported, so register before the
    user's code runs.
    """
    with _LOCK:
        module = sys.modules.get(name)
        if module is None:
            _waiting().add(name, action)
            return
    action(module)


def _waiting() -> _Finder:
    """Return this process's finder, installing it first if necessary."""
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            return finder
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    return finder


def found_after(
    finder: object, fullname: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    """Return what the finders behind another one in `sys.meta_path` find.

    Those before it have been asked, or are asking it: two that each ask all others would never
    come to an end.
    """
    finders = list(sys.meta_path)
    place = next((i for i, one in enumerate(finders) if one is finder), -1)
    for one in finders[place + 1 :]:
        spec = one.find_spec(fullname, path, target)
        if spec is not None:
            return spec
    return None


class _Finder:
    """Wraps the loader of each module that an action waits for.

    The bases in `importlib.abc` would cost each worker half of its start.
    """

    def __init__(self) -> None:
        self._actions: dict[str, list[Action]] = {}

    def add(self, name: str, action: Action) -> None:
        self._actions.setdefault(name, []).append(action)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._actions:
            return None
        spec = found_after(self, fullname, path, target)
        if spec is not None and spec.loader is not None and _is_meant(spec):
            spec.loader = Loading(spec.loader, self._load)  # type: ignore[assignment]
        return spec

    def _load(self, loader: Loader, module: ModuleType) -> None:
        loader.exec_module(module)
        self.imported(sys.modules.get(module.__name__, module))

    def imported(self, module: ModuleType) -> None:
        """Run the actions for `module`, and leave `sys.meta_path` after the last."""
        with _LOCK:
            actions = self._actions.pop(module.__name__, [])
            if not self._actions and self in sys.meta_path:
                sys.meta_path.remove(self)
        for action in actions:
            action(module)


def _is_meant(spec: ModuleSpec) -> bool:
    """Return whether a module is the one that is waited for, and not one of the user's own."""
    if spec.name in _PACKAGES:
        return spec.submodule_search_locations is not None
    folder = os.__file__.rpartition("/")[0]
    return spec.name not in sys.stdlib_module_names or spec.origin == f"{folder}/{spec.name}.py"


class Loading:
    """A module's own loader, with something done around or after it."""

    def __init__(self, loader: Loader, load: Callable[[Loader, ModuleType], None]) -> None:
        self._loader = loader
        self._load = load

    def __getattr__(self, name: str) -> object:
        # `importlib.util.find_spec` hands the spec to code that asks its
        # loader for source, resources and more.
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Make the module, as its loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module."""
        # The module keeps no trace of the detour: `inspect`, `pickle` and
        # `importlib.resources` look at these two.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._load(self._loader, module)
