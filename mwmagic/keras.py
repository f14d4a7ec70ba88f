"""Makes Keras 3 work under MultiWorkerMirroredStrategy, in any script.

Workers that mwmagic starts do not need this, nor does a Python that they start, unless it does not
inherit their PYTHONPATH. A script whose TF_CONFIG comes from elsewhere imports it, before or after
Keras::

    import mwmagic.keras

The environment variable MWMAGIC_KERAS chooses ``auto`` (the default),
``plain`` (no repair) or ``legacy`` (tf-keras); see docs/use/keras.md.
"""

from __future__ import annotations

import os
import sys

from mwmagic import repairs
from mwmagic.model.variables import KERAS

__all__: list[str] = []


def _announce(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


repairs.install(os.environ.get(KERAS, "auto"), _announce)
