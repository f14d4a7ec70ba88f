"""A known failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mwmagic.model.symptom import Finding

__all__ = ["Known"]


@dataclass(frozen=True)
class Known:
    """A known failure.

    Parameters
    ----------
    name : str
        Its id in the documentation, the record and the tests.
    title : str
        What it is, in a few words.
    meaning : str
        What it means, in one or two sentences.
    remedy : str
        What to try.
    link : str
        Where to read more.
    symptoms : tuple of Finding
        What mwmagic itself observes. A finding matches if it has the same symptom
        and every field that is set here.
    signs : tuple of str
        What TensorFlow, Keras, Python or the system print, with ``...`` for the
        parts that vary. mwmagic prints none of this itself.
    edit : tuple of str or None
        What to write in the user's line, after what stands there now.
    """

    name: str
    title: str
    meaning: str
    remedy: str
    link: str
    symptoms: tuple[Finding, ...] = ()
    signs: tuple[str, ...] = ()
    edit: tuple[str, str] | None = None
