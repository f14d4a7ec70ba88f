"""How a warm worker differs from a plain process, and what it reports of that.

It was forked with thousands of modules. To look at each would copy the pages that they lie in,
which takes several times as long as a short program.

It reports on its line how long the imports of others take, as only the user can say that the next
workers should find a package imported: `--preload` names those. Each import is timed that no other
import makes, of a module that is neither Python's nor the user's own.

The supervisor forks a worker only if all variables that the imports have read are for its program
as they were, as far as the program's source shows what it sets. One that it sets in another way (a
helper that is installed, `exec`, a loop) would have an effect on the import that follows in a plain
process, but none here. So this looks at each one that is set: before the program has imported what
read it, one that changes what is computed is an error, and any other a line. Then the supervisor
starts the next workers of this program cold.

Only the process that workers are forked from imports this module: a cold worker does without it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from _thread import get_ident
from itertools import islice, takewhile
from types import FunctionType, ModuleType

from mwmagic.errors import ClusterError
from mwmagic.frameworks.environment import decides, is_early, is_settable
from mwmagic.hooks import Loading, found_after
from mwmagic.model.ownership import is_users
from mwmagic.model.variables import ANNOUNCED

from .line import line

TYPE_CHECKING = False  # a worker starts without `typing`
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import FrameType
    from typing import Any

__all__ = ["imported", "remember", "time_imports", "watch_variables"]

FIRST_COUNT = 64
"""How many of the newest modules are looked at first."""

_NEWEST: set[str] = set()
"""The newest module that this process had when it was forked, if it was."""


def remember_modules() -> None:
    """Take the modules that are there now for those that workers have from the beginning."""
    _NEWEST.clear()
    _NEWEST.add(next(reversed(sys.modules)))


def imported() -> dict[str, ModuleType]:
    """Return the modules that this process has imported itself, in their order."""
    count, names = 0, [""]
    while len(names) >= count and _NEWEST.isdisjoint(names):
        count = 2 * count or FIRST_COUNT
        # In one step, as other threads may import meanwhile.
        names = list(islice(reversed(sys.modules), count))
    own = [*takewhile(lambda name: name not in _NEWEST, names)]
    return {name: sys.modules[name] for name in reversed(own) if name in sys.modules}


REPORTED_SECONDS = 0.5
"""How long all these imports must have taken together before they are reported."""

LEAST_SECONDS = 0.05
"""How long one of them must have taken to be named."""


def time_imports(script: str) -> None:
    """Time imports from now on."""
    sys.meta_path.insert(0, _Finder(script))


class _Finder:
    """Wraps the loaders of the modules whose import is timed."""

    def __init__(self, script: str) -> None:
        self._script = script
        self._busy: set[int] = set()
        self._took: dict[str, float] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Let the other finders find a module; have its loader timed."""
        if get_ident() in self._busy or fullname.partition(".")[0] in sys.stdlib_module_names:
            return None
        spec = found_after(self, fullname, path, target)
        if spec is None or spec.loader is None or is_users(spec.origin or "", self._script):
            return spec
        spec.loader = Loading(spec.loader, self.load)  # type: ignore[assignment]
        return spec

    def load(self, loader: Loader, module: ModuleType) -> None:
        """Execute a module, and add up how long that takes."""
        thread, began = get_ident(), time.monotonic()
        self._busy.add(thread)
        try:
            loader.exec_module(module)
        finally:
            self._busy.discard(thread)
            self._took[module.__name__] = time.monotonic() - began
        if (
            self._took[module.__name__] >= LEAST_SECONDS
            and sum(self._took.values()) > REPORTED_SECONDS
        ):
            self._report()

    def _report(self) -> None:
        to = line()
        if to is not None:
            took = {name: one for name, one in self._took.items() if one >= LEAST_SECONDS}
            to.send(json.dumps({"kind": "imports", "seconds": took}).encode())


_SEND_SECONDS = 0.5
"""Time limit for reporting to the supervisor."""

_WHOLE = {"keras", "tensorflow", "tf_keras", "torch"}
"""The packages whose import imports all of a framework that a warm process has."""

_OPENMP = "KMP_"
"""Variables of Intel's OpenMP, which libraries set as they are imported, for themselves."""

_CELL = "<cell>"
"""The file of a live cell that no notebook has numbered."""

_READS: dict[str, set[str]] = {}
_ENV: dict[str, str] = {}
_SETS: dict[str, str] = {}


def remember(
    reads: Mapping[str, set[str]], env: Mapping[str, str], sets: Mapping[str, str]
) -> None:
    """Keep what has been imported and what that has read, in the process that forks workers."""
    remember_modules()
    _READS.update(reads)
    _ENV.update(env)
    _SETS.update(sets)


def watch_variables(script: str) -> None:
    """Look at the variables that are set from now on."""
    watched = _Watched(vars(os.environ)["_data"])
    watched.script = script
    for mapping in (os.environ, os.environb):
        vars(mapping).update(_data=watched)


class _Watched(dict):  # type: ignore[type-arg]
    """Takes the place of what `os.environ` holds.

    An audit hook would see `os.putenv` itself, but makes each `id()`, of which Keras calls
    hundreds in a step, four times as long (0.04 us, 0.18 us), and can never be removed.
    """

    script = ""

    def __setitem__(self, key: bytes, value: bytes) -> None:
        super().__setitem__(key, value)
        _changed(os.fsdecode(key), os.fsdecode(value), self.script)

    def __delitem__(self, key: bytes) -> None:
        super().__delitem__(key)
        _changed(os.fsdecode(key), None, self.script)


def _changed(name: str, value: str | None, script: str) -> None:
    """Report a variable that should have been set before the warm process imported."""
    was = _ENV.get(name)
    if value in (was, _SETS.get(name, was)) or not (is_early(name, _READS) and is_settable(name)):
        return
    if name.startswith(_OPENMP) and name not in _READS:
        return
    readers, held = _READS.get(name, {""}), _held()
    if all(one in held if one else not held.isdisjoint(_WHOLE) for one in readers):
        return
    at = _place(script)
    to = line()
    if to is not None:
        to.send(json.dumps({"kind": "late", "name": name, "at": at}).encode(), _SEND_SECONDS)
    late = f"{at} sets {name} in a way that cannot be known before it runs"
    what = ", ".join(sorted(one or "the framework" for one in readers))
    if decides(name):
        raise ClusterError(
            f"{late}, and this process has imported {what} "
            f"{'with another value' if was else 'without it'}; launch it again, and it starts cold "
            "(%mw_reset in a live session), or give the variable with --env"
        )
    sys.stderr.write(
        f"{ANNOUNCED}{late}, and this process has imported {what}, which reads it; the next run of "
        "this program starts cold\n"
    )
    _SETS[name] = value or ""  # which is reported once


def _held() -> set[str]:
    """Return the packages of which the program holds anything, so that it has imported them.

    They are in `sys.modules` in any case.
    """
    spaces = [vars(module) for module in imported().values() if _is_others(module)]
    spaces += [frame.f_locals for frame in _frames() if frame.f_code.co_name != "<module>"]
    spaces.append(vars(sys.modules.get("__main__")) if "__main__" in sys.modules else {})
    return {_package(value) for space in spaces for value in list(space.values())}


def _is_others(module: object) -> bool:
    """Return whether what `sys.modules` holds is a module, and none of this package's."""
    name = vars(module).get("__name__") if isinstance(module, ModuleType) else "mwmagic"
    return isinstance(name, str) and name.partition(".")[0] != "mwmagic"


def _package(value: Any) -> str:  # noqa: ANN401 - whatever a program holds
    """Return the package that something comes from; nothing of the program's own runs."""
    if issubclass(type(value), ModuleType):
        name = vars(value).get("__name__")
    elif issubclass(type(value), type):
        name = type.__getattribute__(value, "__dict__").get("__module__")
    elif type(value) is FunctionType:
        name = value.__module__
    else:
        name = type.__getattribute__(type(value), "__dict__").get("__module__")
    return name.partition(".")[0] if isinstance(name, str) else ""


def _frames() -> Iterator[FrameType]:
    """Yield the frames that lead here, of the program and of libraries, the innermost first."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - a function of Python's own
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] != "mwmagic":
            yield frame
        frame = frame.f_back


def _place(script: str) -> str:
    """Return the file and the line of the user's code that sets a variable."""
    for frame in _frames():
        file = frame.f_code.co_filename
        if is_users(file, script) or file == _CELL:
            return f"{file.rpartition('/')[2]}:{frame.f_lineno}"
    return "the program"
