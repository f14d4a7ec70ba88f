# ruff: noqa: ANN401 - Keras has no annotations
"""What one repair of Keras is, when a program comes to need it, and which Keras it is for."""

from __future__ import annotations

import inspect
import sys
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache, update_wrapper, wraps
from typing import TYPE_CHECKING, Any

from mwmagic.errors import MwmagicError
from mwmagic.hooks import divides_batches, spans_workers
from mwmagic.model.variables import ANNOUNCED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = [
    "READ",
    "Absence",
    "KerasRefused",
    "Repair",
    "Sign",
    "State",
    "UnknownKeras",
    "Use",
    "announce",
    "is_from_keras",
    "is_older",
    "over_workers",
    "refuse",
    "replace",
    "says_older",
    "says_repaired",
    "says_unlike",
    "says_unlike_in_part",
    "ways_in",
]


# The release of Keras whose lines the repairs name.
READ = "3.15.1"


class KerasRefused(MwmagicError, ValueError):
    """Something that cannot give correct numbers under a multi-worker strategy."""


class UnknownKeras(MwmagicError):
    """The installed Keras is neither as it is known to be defective nor as it is sound."""


class State(Enum):
    """What a look at the installed Keras says of one defect."""

    DEFECTIVE = "defective"
    SOUND = "sound"
    UNKNOWN = "unknown"


class Sign:
    """What the source of one function of Keras says, whatever its line breaks."""

    def __init__(
        self, owner: Any, name: str, *says: str | tuple[str, ...], lacks: str = ""
    ) -> None:
        self.owner, self.name, self._says, self._lacks = owner, name, says, lacks

    def __str__(self) -> str:
        return f"{self.owner.__name__.rpartition('.')[2]}.{self.name}"

    @property
    def holds(self) -> bool:
        """Whether the function says so. One whose source cannot be read says nothing."""
        source = _source(getattr(self.owner, self.name, None))
        lacks = self._lacks and _packed(self._lacks) in source
        return bool(source) and not lacks and all(_says(source, phrase) for phrase in self._says)


@dataclass(frozen=True)
class Absence:
    """That Keras has nothing by this name."""

    owner: Any
    name: str

    @property
    def holds(self) -> bool:
        """Whether it is absent."""
        return not hasattr(self.owner, self.name)


@cache
def _source(function: Any) -> str:
    try:
        return _packed(inspect.getsource(getattr(function, "fget", function)))
    except (OSError, TypeError):
        return ""


def _says(source: str, phrase: str | tuple[str, ...]) -> bool:
    phrases = (phrase,) if isinstance(phrase, str) else phrase
    return any(_packed(one) in source for one in phrases)


def _packed(text: str) -> str:
    return "".join(text.split())


@dataclass(frozen=True)
class Repair:
    """One defect of Keras 3 under a multi-worker strategy, and its cure."""

    feature: str
    """What a user gets back, in a word or two, such as ``"fit"``."""
    link: str
    """The defect's report upstream, such as ``"keras-team/keras#20585"``. If it has not been
    reported, the line of the function that is replaced, such as ``"callbacks/csv_logger.py#L42"``,
    in Keras `READ`."""
    defect: tuple[Sign, ...]
    """What shows the defect. Every function that `apply` replaces is among them, so that none is
    replaced that has become another. Looking runs no TensorFlow operation, because a strategy can
    only be created before the first one."""
    apply: Callable[[], None]
    """Takes no argument; replaces the defective function. The replacement behaves like the original
    wherever no multi-worker strategy is in use."""
    cured: tuple[Sign | Absence, ...] = ()
    """What shows that Keras has no such defect, if there is a Keras without it."""
    uses: tuple[Use, ...] = ()
    """What a program calls when it comes to need this repair. A Keras of which it is not known
    whether it has the defect is refused there and nowhere else. Without any, every training needs
    the repair."""

    @property
    def url(self) -> str:
        """The address of the thread, or of the line in Keras's source."""
        if ".py#L" in self.link:
            return f"https://github.com/keras-team/keras/blob/v{READ}/keras/src/{self.link}"
        repository, number = self.link.split("#")
        return f"https://github.com/{repository}/issues/{number}"

    @property
    def state(self) -> State:
        """What the installed Keras is: only what is known may be repaired, or left alone."""
        if all(sign.holds for sign in self.defect):
            return State.DEFECTIVE
        if self.cured and all(sign.holds for sign in self.cured):
            return State.SOUND
        return State.UNKNOWN

    @property
    def is_separable(self) -> bool:
        """Whether training without it is right until one of its uses is called."""
        return bool(self.uses) and all(use.is_there for use in self.uses)

    @property
    def unlike(self) -> str:
        """What it is for, and the functions that are not as it knows them."""
        return f"{self.feature} ({', '.join(str(sign) for sign in self.defect if not sign.holds)})"


def is_from_keras(one: Any) -> bool:
    """Return whether Keras itself, not the user's code, defines an object's type."""
    return type(one).__module__.startswith("keras.")


def replace(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    """Put a function in another's place; to `inspect` and `pickle` it is as the other."""
    setattr(owner, name, update_wrapper(replacement, getattr(owner, name)))


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
    line = (
        f"{ANNOUNCED}repaired Keras {version} for several workers, as docs/use/keras.md describes"
    )
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


MODEL = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")


def _over_replicas(strategy: Any, *_args: Any, **_kwargs: Any) -> bool:
    return divides_batches(strategy)


def over_workers(strategy: Any, *_args: Any, **_kwargs: Any) -> bool:
    """Return whether a use concerns several workers; see `Use`."""
    return spans_workers(strategy)


@dataclass(frozen=True)
class Use:
    """A function by which user code comes to use something."""

    owner: Any
    name: str
    when: Callable[..., bool] = _over_replicas
    """Takes the strategy, and what the function is called with; returns whether that call is such a
    use. Without it, each call under several replicas is one."""

    @property
    def is_there(self) -> bool:
        """Whether Keras has the function."""
        return hasattr(self.owner, self.name)

    def precede(self, act: Callable[[], None]) -> None:
        """Act before each such use."""
        original = getattr(self.owner, self.name)

        @wraps(original)
        def preceded(*args: Any, **kwargs: Any) -> Any:
            if self.when(_strategy(*args, *kwargs.values()), *args, **kwargs):
                act()
            return original(*args, **kwargs)

        setattr(self.owner, self.name, preceded)


def ways_in(
    model: Any, optimizer: Any, when: Callable[..., bool] = _over_replicas
) -> tuple[Use, ...]:
    """Return by what trainings use Keras: a model, or an optimizer in a loop of the user's."""
    ways = [(model, name) for name in MODEL] + [(optimizer, "apply")]
    owners = (next(each for each in cls.__mro__ if name in vars(each)) for cls, name in ways)
    return tuple(Use(own, name, when) for own, (_, name) in zip(owners, ways, strict=True))


def refuse(uses: Iterable[Use], text: str) -> None:
    """Refuse each of some uses under several replicas."""

    def raise_it() -> None:
        raise KerasRefused(text)

    for use in uses:
        use.precede(raise_it)


def announce(uses: Iterable[Use], line: str, tell: Callable[[str], None]) -> None:
    """Call `tell` with a line at the first of some uses under several replicas."""
    untold = [line]

    def say() -> None:
        with suppress(IndexError):  # replicas run in threads, and only one of them gets the line
            tell(untold.pop())

    for use in uses:
        use.precede(say)


def _strategy(*given: Any) -> Any:
    """Return the strategy of a model, a callback or a variable, or the current one."""
    import tensorflow as tf

    for one in given[:2]:
        for holder in (one, getattr(one, "model", None), getattr(one, "value", None)):
            strategy = getattr(holder, "distribute_strategy", None)
            if strategy is not None:
                return strategy
    return tf.distribute.get_strategy()
