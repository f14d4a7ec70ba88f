"""Which versions of Keras the repairs are for, and what is said of them and of the others."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mwmagic.model.variables import ANNOUNCED

from .repair import READ

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["is_older", "says_older", "says_repaired", "says_unlike", "says_unlike_in_part"]

# Keras 3's minor versions that the tests run with.
FIRST_COVERED, LAST_COVERED = 13, 15
TESTED = f"Keras 3.{FIRST_COVERED} to 3.{LAST_COVERED}"
OTHERWISE = "or use tf-keras with --keras legacy. --keras plain leaves it as it is."


def is_older(version: str) -> bool:
    """Return whether a Keras 3 is older than those that the tests cover."""
    return _minor(version) < FIRST_COVERED


def _is_newer(version: str) -> bool:
    return _minor(version) > LAST_COVERED


def _minor(version: str) -> int:
    return int(version.split(".")[1])


def says_repaired(version: str, unlike: Sequence[str] = ()) -> str:
    """Return the announcement of the repairs, without those of parts that are not as known."""
    line = f"{ANNOUNCED}repaired Keras {version} for several workers, as docs/keras.md describes"
    if _is_newer(version):
        line += f"; tested up to 3.{LAST_COVERED}, this one is newer"
    if unlike:
        line += f"; not known, and refused: {', '.join(unlike)}"
    return f"{line}; --keras plain turns this off"


def says_older(version: str) -> str:
    """Return why a Keras is refused that is too old.

    It has some of the defects in other places, and repairing only the rest would give
    numbers that look right but are not.
    """
    python = "" if sys.version_info >= (3, 11) else "it needs Python 3.11 or later; "
    return (
        f"Keras {version} does not work under MultiWorkerMirroredStrategy, and mwmagic repairs "
        f"Keras 3.{FIRST_COVERED} and later: pip install -U keras ({python}it runs with TensorFlow "
        f"2.16 and later), {OTHERWISE}"
    )


def says_unlike(version: str, what: object) -> str:
    """Return why a Keras is refused whose defects are not the known ones."""
    return (
        f"mwmagic repairs {TESTED} under MultiWorkerMirroredStrategy, and this Keras {version} is "
        f"different: {what}. Numbers could be wrong without a sign of it. {_install(version)}, "
        f"{OTHERWISE}"
    )


def says_unlike_in_part(version: str, what: str) -> str:
    """Return why something is refused whose defect is not the known one."""
    return (
        f"mwmagic repairs {TESTED} under MultiWorkerMirroredStrategy, and this Keras {version} is "
        f"different in something that this program uses: {what}. Do without it, "
        f"{_install(version)}, {OTHERWISE}"
    )


def _install(version: str) -> str:
    covered = f"'keras<3.{LAST_COVERED + 1}'"
    return f"pip install {covered if _is_newer(version) else f'--force-reinstall keras=={READ}'}"
