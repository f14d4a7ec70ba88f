"""All that can be measured, in the order of the table."""

from __future__ import annotations

from . import (
    chaos,
    dashboard,
    declare,
    first,
    flood,
    gang,
    keras,
    launch,
    live,
    report,
    rest,
    restart,
    scale,
    threads,
    throughput,
)
from .peers import cases as peers

TRAINING = (declare, restart, launch, first, throughput, keras, threads)
SHOWING = (live, report, flood, dashboard)
GROWING = (rest, scale, gang, chaos, peers)
CASES = [case for module in (*TRAINING, *SHOWING, *GROWING) for case in module.CASES]
