"""What a warm worker's program imports besides what its process was forked with.

It was forked with thousands of modules. To look at each would copy the pages that they lie in,
which takes several times as long as a short program.

A warm worker reports on its line how long the others take, as only the user can say that the next
workers should find a package imported: `--preload` names those. Each import is timed that no other
import makes, of a module that is neither Python's nor the user's own.
"""

from __future__ import annotations

import sys
import time
from _thread import get_ident
from itertools import islice, takewhile

from mwmagic.hooks.imports import Loading, found_after
from mwmagic.model.ownership import is_users

from .line import line

TYPE_CHECKING = False  # a worker starts without `typing`
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["forked", "imported", "remember", "watch"]

FIRST_COUNT = 64
"""How many of the newest modules are looked at first."""

_NEWEST: set[str] = set()
"""The newest module that this process had when it was forked, if it was."""


def remember() -> None:
    """Take the modules that are there now for those that workers have from the beginning."""
    _NEWEST.clear()
    _NEWEST.add(next(reversed(sys.modules)))


def forked() -> bool:
    """Return whether this process was forked from one that had imported modules."""
    return bool(_NEWEST)


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


def watch(script: str) -> None:
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
            import json

            took = {name: one for name, one in self._took.items() if one >= LEAST_SECONDS}
            to.send(json.dumps({"kind": "imports", "seconds": took}).encode())
