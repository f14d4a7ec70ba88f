"""What each task's exit means for the others."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mwmagic.model.cluster import Task

__all__ = ["Role", "roles"]


class Role(Enum):
    """What a task's exit means for the others."""

    PEER = "trains; its failure fails the run, and the run is done when all peers are"
    SERVANT = "serves until the peers are done; its exit fails the run"
    REPLACEABLE = "serves; it is restarted without the others and rejoins"
    AUXILIARY = "its failure does not affect the others"


def roles(tasks: Sequence[Task]) -> dict[Task, Role]:
    """Return each task's role.

    With parameter servers, ``ParameterServerStrategy`` tolerates the loss of a
    worker but not of a ps; without them, every task is in every collective.
    """
    served = any(task.type == "ps" for task in tasks)
    table = {
        "chief": Role.PEER,
        "worker": Role.REPLACEABLE if served else Role.PEER,
        "ps": Role.SERVANT,
        "evaluator": Role.AUXILIARY,
    }
    return {task: table[task.type] for task in tasks}
