"""Which task runs which live cell, and which waits for which.

`machine` is the state machine, and `events` its input and output, with those of a recovery. It does
no input or output, and is tested by simulation.
"""

from __future__ import annotations

from mwmagic.recovery import plan
from mwmagic.recovery.plan import *  # noqa: F403 - a recovery is asked for and reported as cells are

from . import events
from .events import *  # noqa: F403 - every event and action is a word of this room
from .machine import Cells

__all__ = ["Cells"]
__all__ += events.__all__
__all__ += plan.__all__
