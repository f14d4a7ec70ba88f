"""Which task failed first and why.

`first` finds it from how each process ended and, of living tasks, from what is observed in logs and
stacks (`observation`). `known` says what an entry of the known failures is and recognises it;
`table` and `migration` (Keras's) have those that end a run, `running` the others.
"""

from __future__ import annotations

from .first import Exit, diagnose, involves_others, kind
from .observation import Observation, is_notable, remarks, why_stalled

__all__ = [
    "Exit",
    "Observation",
    "diagnose",
    "involves_others",
    "is_notable",
    "kind",
    "remarks",
    "why_stalled",
]
