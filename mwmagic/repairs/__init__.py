"""Keras 3 under MultiWorkerMirroredStrategy, repaired from outside.

Each module here holds the repairs for one part of Keras, one small function per defect,
written like a patch to send upstream: what it replaces, why, where the defect is reported,
and by what signs the installed Keras is known to have it. A function that is known to be sound is
left alone, and one that is neither is refused under several replicas: if only some programs use it,
in those; otherwise in every training.

`repairs` lists them, `repair` says what one is, by what signs its defect is known and when a
program comes to need it, and `parts` finds what they need of Keras by what it is. `fit` (with
models made outside the scope, and how steps run), `agreement`, `gradients` (losses too), `data`,
`saving`, `callbacks` (those that write, stop or are refused) and `backup` (resuming too) hold them;
`metrics` lets metrics that are not sums see the whole batch, and `step` is the step that is
computed: it points out what a model's own step computes of a share instead of the batch.
"""

from __future__ import annotations

import os

from mwmagic.errors import MwmagicError, NotInstalled
from mwmagic.hooks import after_import
from mwmagic.model.variables import KERAS_MODES

TYPE_CHECKING = False  # a worker starts without `typing`
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

__all__ = ["install"]


def install(mode: str, announce: Callable[[str], None]) -> None:
    """Make Keras work under a multi-worker strategy, once it is imported.

    Call it before the user's code runs. It imports neither Keras nor
    TensorFlow; the repairs follow the user's own import.
    """
    if mode not in KERAS_MODES:
        known = ", ".join(KERAS_MODES)
        raise MwmagicError(f"unknown Keras mode {mode!r}; the modes are {known}")
    if mode == "legacy":
        _choose_legacy()
    elif mode == "auto":
        after_import("keras", lambda keras: _repair(keras, announce))


def _concerns(keras: ModuleType) -> bool:
    """Return whether this is a Keras 3 on TensorFlow."""
    return keras.__version__.startswith("3.") and bool(keras.backend.backend() == "tensorflow")


def _choose_legacy() -> None:
    from importlib.util import find_spec

    if find_spec("tf_keras") is None:
        raise NotInstalled(
            "--keras legacy needs tf-keras, which is not installed here. "
            "Install the release that matches TensorFlow's: pip install tf-keras"
        )
    os.environ["TF_USE_LEGACY_KERAS"] = "1"


def _repair(keras: ModuleType, announce: Callable[[str], None]) -> None:
    """Repair what is defective in a Keras that runs on TensorFlow."""
    if not _concerns(keras):
        return
    from . import repair as known

    version = keras.__version__
    ways = known.ways_in(keras.Model, keras.optimizers.Optimizer)
    if known.is_older(version):
        known.refuse(ways, known.says_older(version))
        return
    try:
        from . import repairs

        repaired, unlike = repairs.apply()
    except (ImportError, known.UnknownKeras) as what:
        known.refuse(ways, known.says_unlike(version, what))
        return
    if repaired:
        features = [repair.feature for repair in unlike]
        known.announce(ways, known.says_repaired(version, features), announce)
    for repair in unlike:
        known.refuse(repair.uses, known.says_unlike_in_part(version, repair.unlike))
