"""A known failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mwmagic.model.symptom import Finding

__all__ = ["AT_LINES", "Choice", "Known"]

AT_LINES = "lines"
"""Not an option, but known with them: whether the tasks were at ``same`` or ``different`` lines."""


@dataclass(frozen=True)
class Choice:
    """What depends on an option of the run, such as advice to change it.

    Parameters
    ----------
    option : str
        The option's name in `ClusterOptions`, or `AT_LINES`.
    values : tuple of str
        The values with which it applies. Advice applies with none that it recommends.
    text : str
        The advice.
    """

    option: str
    values: tuple[str, ...]
    text: str = ""

    def applies(self, options: Mapping[str, str]) -> bool:
        """Return whether it applies with these options; without knowing the option's value, not."""
        return options.get(self.option) in self.values


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
        What to try, whatever the run's options are.
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
    choices : tuple of Choice
        What else to try with some values of the run's options.
    when : Choice or None
        The options with which it can be this failure; None for any.
    together : bool
        Whether it concerns what the tasks do together, so that the lines of the others
        belong to it.
    """

    name: str
    title: str
    meaning: str
    remedy: str
    link: str
    symptoms: tuple[Finding, ...] = ()
    signs: tuple[str, ...] = ()
    edit: tuple[str, str] | None = None
    choices: tuple[Choice, ...] = ()
    when: Choice | None = None
    together: bool = False

    def possible(self, options: Mapping[str, str]) -> bool:
        """Return whether it can be this failure, given the run's options."""
        return self.when is None or self.when.applies(options)

    def advice(self, options: Mapping[str, str]) -> str:
        """Return what to try, given the run's options: never what is in force."""
        offered = [choice.text for choice in self.choices if choice.applies(options)]
        return "; ".join([self.remedy, *offered])
