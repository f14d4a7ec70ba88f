# ruff: noqa: ANN401 - Keras has no annotations
"""Where user code first uses Keras, or a part of it, under several replicas."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from .cluster import divides_batches, spans_workers
from .repair import KerasRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Use", "announce", "over_workers", "refuse", "ways_in"]

MODEL = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")


def _over_replicas(strategy: Any, *_args: Any, **_kwargs: Any) -> bool:
    return divides_batches(strategy)


def over_workers(strategy: Any, *_args: Any, **_kwargs: Any) -> bool:
    """Return whether a use concerns several workers; see `Use`."""
    return spans_workers(strategy)


@dataclass(frozen=True)
class Use:
    """A function by which user code comes to use something.

    Parameters
    ----------
    owner : type or module
        Where the function is.
    name : str
        Its name.
    when : callable, optional
        Takes the strategy, and what the function is called with; returns whether that call
        is such a use. Without it, each call under several replicas is one.
    """

    owner: Any
    name: str
    when: Callable[..., bool] = _over_replicas

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
