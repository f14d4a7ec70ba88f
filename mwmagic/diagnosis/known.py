"""What is known of one failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mwmagic.model.symptom import Finding

__all__ = ["Known"]


@dataclass(frozen=True)
class Known:
    """A failure that is known.

    Parameters
    ----------
    name : str
        Its id, as the documentation, the record and the tests have it.
    title : str
        What it is, in a few words.
    meaning : str
        What it means, in a sentence or two.
    remedy : str
        What to try.
    link : str
        Where to read on.
    symptoms : tuple of Finding
        What mwmagic itself observes of it. A finding matches if it has the same
        symptom and every field that is set here.
    signs : tuple of str
        What TensorFlow, Keras, Python or the system print, with ``...`` for what
        varies. mwmagic prints none of it.
    """

    name: str
    title: str
    meaning: str
    remedy: str
    link: str
    symptoms: tuple[Finding, ...] = ()
    signs: tuple[str, ...] = ()
