"""The modules that a worker has imported itself, told apart from those it was forked with.

It was forked with thousands, if its process is warm. To look at each would copy the pages that they
lie in, which takes several times as long as a short program.
"""

from __future__ import annotations

import sys
from itertools import islice, takewhile

TYPE_CHECKING = False  # a worker starts without `typing`
if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["forked", "imported", "remember"]

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
