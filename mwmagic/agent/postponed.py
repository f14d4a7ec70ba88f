"""Imports that a framework makes for few programs, and that wait for one that needs them.

Keras imports scikit-learn to derive classes from its own, and TensorFlow Lite imports JAX to
convert its functions. Together they take a third of the time and memory of the whole import. So the
zygote, which imports a framework for every program, gives the framework's modules placeholders
instead. A placeholder imports what it stands for when it is first used, in the worker that uses it.

It stands only where the framework's own module would have the imported one: nothing is left in
``sys.modules``, and a program's own import is a usual one. A package that would have one of its own
modules gets it when it is asked for it.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any


class Placeholder(ModuleType):
    """Stands for a module, or for what is in one.

    Parameters
    ----------
    name : str
        The module, or the module and a name in it.
    postponed : Postponed
        Until it is closed, whatever the module is asked for is a placeholder, too.
    """

    def __init__(self, name: str, postponed: Postponed) -> None:
        super().__init__(name)
        self.__dict__.clear()  # of `__spec__` and others, which are those of the module
        self.__dict__.update(__name__=name, _postponed=postponed)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the module has
        if not self._postponed.open:
            return getattr(meant(self.__name__), name)
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder(f"{self.__name__}.{name}", self._postponed)

    def __call__(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - the function's
        """Call the function that this stands for."""
        return meant(self.__name__)(*arguments, **named)

    def __dir__(self) -> list[str]:
        return dir(meant(self.__name__))


def meant(name: str) -> Any:  # noqa: ANN401 - a module or what it has
    """Return what a dotted name stands for; import its module."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name or "." not in name:
            raise
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


class Postponed:
    """Takes the place of ``__import__`` and postpones some of the imports, until it is closed.

    Parameters
    ----------
    words : iterable of str
        Each ``IMPORTER=MODULE``: where a module of that name imports the other one, that is
        postponed. With ``IMPORTER=PACKAGE:MODULE.NAME`` it is only if that module of the package
        has the name, as otherwise the importer adds it.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.open = True
        self._wanted = dict(word.split("=", 1) for word in words)
        self._usual, builtins.__import__ = builtins.__import__, self

    def close(self) -> None:
        """Let placeholders import what they stand for, and packages their own modules."""
        builtins.__import__ = self._usual
        self.open = False
        for importer, word in self._wanted.items():
            holder, module = sys.modules.get(importer), word.partition(":")[0]
            own = getattr(holder, "__dict__", {}).get(module.rpartition(".")[2])
            if holder is not None and "." in module and isinstance(own, Placeholder):
                offer(holder, module)

    def __call__(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002 - Python's names for them
        locals: Mapping[str, object] | None = None,  # noqa: A002 - the same
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:  # noqa: ANN401 - a module
        """Import a module as ``__import__`` does, or return a placeholder."""
        found = self._found(globals, name, fromlist or (), level)
        return self._usual(name, globals, locals, fromlist, level) if found is None else found

    def _found(
        self, importer: Mapping[str, object] | None, name: str, wanted: Sequence[str], level: int
    ) -> ModuleType | None:
        """Return what takes the module's place, if its import is postponed."""
        word = self._wanted.get(str((importer or {}).get("__name__")))
        if word is None or level:
            return None
        module, _, needed = word.partition(":")
        package, _, last = module.rpartition(".")
        if f"{name}.".startswith(f"{module}.") and has(module, needed):
            return Placeholder(name if wanted else module.partition(".")[0], self)
        return self._within(package, last, wanted) if name == package and last in wanted else None

    def _within(self, package: str, last: str, wanted: Sequence[str]) -> ModuleType:
        """Import what else is wanted of a package, which gets a placeholder for one module."""
        others = [one for one in wanted if one != last]
        # Without any name, the topmost package would be returned.
        found: ModuleType = self._usual(package, None, None, [*others, "__name__"], 0)
        if not hasattr(found, last):
            setattr(found, last, Placeholder(f"{package}.{last}", self))
        return found


def offer(holder: ModuleType, module: str) -> None:
    """Have a package import a module when that is asked for as one of its names."""
    own, name = vars(holder), module.rpartition(".")[2]
    del own[name]
    usual, added = own.get("__getattr__"), {"__getattr__", "__dir__"} - {*own}

    def find(asked: str) -> Any:  # noqa: ANN401 - whatever the package has
        if asked == name:
            return importlib.import_module(module)
        if usual is not None:
            return usual(asked)
        raise AttributeError(f"module {holder.__name__!r} has no attribute {asked!r}")

    own["__getattr__"] = find
    own.setdefault("__dir__", lambda: sorted({*own, name} - added))


def has(package: str, needed: str) -> bool:
    """Return whether a package is installed, and its source has a name; it is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or not needed:
        return spec is not None
    module, _, name = needed.partition(".")
    try:
        return name in Path(spec.origin or "").with_name(f"{module}.py").read_text("utf-8")
    except (OSError, ValueError):
        return False


@contextmanager
def postponed(words: Sequence[str]) -> Iterator[None]:
    """Postpone imports meanwhile; see `Postponed` for the words."""
    if not words:
        yield
        return
    importing = Postponed(words)
    try:
        yield
    finally:
        importing.close()
