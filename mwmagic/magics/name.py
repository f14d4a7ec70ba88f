"""The name of a cluster for which the notebook gives none."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.model.options import OPTIONS
from mwmagic.model.values import encodable
from mwmagic.model.variables import SESSION

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["names"]


def names() -> Iterator[str]:
    """Yield this notebook's own name for a cluster, and others for where that is taken."""
    path = Path(os.environ.get(SESSION, ""))
    own = encodable(path.stem) if path.suffix == ".ipynb" else str(OPTIONS["name"].default)
    yield own
    for number in count(2):
        yield f"{own}-{number}"
