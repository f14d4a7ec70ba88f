# ruff: noqa: ANN401 - Keras has no annotations
"""Where user code first uses Keras under several replicas, by any of its public ways in."""

from __future__ import annotations

from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any

from .cluster import divides_batches
from .repair import KerasRefused

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["announce", "refuse"]

MODEL = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")


def refuse(keras: Any, text: str) -> None:
    """Refuse every use under several replicas.

    Parameters
    ----------
    keras : module
        The installed Keras.
    text : str
        What is wrong, and the way out.
    """

    def raise_it() -> None:
        raise KerasRefused(text)

    _before_use(keras, raise_it)


def announce(keras: Any, line: str, tell: Callable[[str], None]) -> None:
    """Call `tell` with a line at the first use under several replicas.

    Parameters
    ----------
    keras : module
        The installed Keras.
    line : str
        What is to be said.
    tell : callable
        Says it.
    """
    untold = [line]

    def say() -> None:
        with suppress(IndexError):  # replicas run in threads, and only one of them gets the line
            tell(untold.pop())

    _before_use(keras, say)


def _before_use(keras: Any, act: Callable[[], None]) -> None:
    """Act whenever a model, or an optimizer in a loop of the user's own, has several replicas."""
    for name in MODEL:
        _precede(keras.Model, name, act)
    _precede(keras.optimizers.Optimizer, "apply", act)


def _precede(cls: Any, name: str, act: Callable[[], None]) -> None:
    owner = next(each for each in cls.__mro__ if name in vars(each))
    original = vars(owner)[name]

    @wraps(original)
    def preceded(self: Any, *args: Any, **kwargs: Any) -> Any:
        if divides_batches(_strategy(self)):
            act()
        return original(self, *args, **kwargs)

    setattr(owner, name, preceded)


def _strategy(user: Any) -> Any:
    import tensorflow as tf

    return getattr(user, "distribute_strategy", None) or tf.distribute.get_strategy()
