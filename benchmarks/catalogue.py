"""All that can be measured, in the order of the table."""

from __future__ import annotations

from . import (
    beside,
    dashboard,
    declare,
    first,
    flood,
    restart,
    runs,
    scale,
    slowness,
    sweep,
    throughput,
)

TRAINING = (declare, restart, first, throughput, slowness)
SHOWING = (flood, dashboard, runs)
GROWING = (scale, sweep, beside)
CASES = [case for module in (*TRAINING, *SHOWING, *GROWING) for case in module.CASES]
