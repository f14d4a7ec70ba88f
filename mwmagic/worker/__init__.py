"""What runs inside a worker process, and what user code may import there.

Public are `task`, which has the parameters and layouts too, and `reports`, which profiles the
process too. `bootstrap` finds this package; `program` runs the user's file, also in a child, and
`exit` reports what was raised and ends the process. `warm` watches what a forked worker imports and
sets itself; `preparation` prepares frameworks, also in a Python that a worker
starts (`sitecustomize`, in `child`), keeps figures, and imports Python's own modules, with
`runtime` for TensorFlow; `watch` reports what Keras computes, on the `line` to the supervisor, and
`steps` where the time of steps goes, from `looks` at the threads and at what the kernel counts;
`server` is what a coordinator's tasks run. `live` runs live cells.
"""

from __future__ import annotations

TYPE_CHECKING = False  # a worker starts without `typing`
if TYPE_CHECKING:
    from .reports import report
    from .task import (
        LayoutReport,
        cluster_size,
        is_chief,
        layout_report,
        params,
        this_task,
        write_path,
    )

__all__ = [
    "LayoutReport",
    "cluster_size",
    "is_chief",
    "layout_report",
    "params",
    "report",
    "this_task",
    "write_path",
]

_HOMES = dict.fromkeys(__all__, "task") | {"report": "reports"}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: every worker imports this package."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
