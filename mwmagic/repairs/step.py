# ruff: noqa: ANN401 - Keras and TensorFlow have no annotations
"""The training or test step that is running, and what is known about it.

Several repairs apply only inside the step that `Model.fit` or `Model.evaluate` passes to
`strategy.run`, so that a custom training loop keeps the behaviour its author has seen.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from keras.src import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Step", "current_step", "running"]


@dataclass
class Step:
    """One replica's step, as it is traced (or run eagerly).

    Parameters
    ----------
    model : keras.Model
        The model in training.
    samples : tf.Tensor or None
        How many samples this replica got, if that is known only at run time, as when
        the last batch leaves some replicas without any.
    updated : dict
        The model's state that the step has updated, by identity.
    scaled : bool
        Whether the loss has been divided among the replicas.
    """

    model: Any
    samples: Any
    updated: dict[int, Any] = field(default_factory=dict)
    scaled: bool = False

    def __post_init__(self) -> None:
        self._state = {id(variable) for variable in self.model.non_trainable_variables}

    def holds(self, variable: Any) -> bool:
        """Return whether a variable is floating-point state that replicas update separately."""
        return (
            id(variable) in self._state
            and variable.aggregation == "none"
            and tf.as_dtype(variable.dtype).is_floating
        )


_CURRENT: ContextVar[Step | None] = ContextVar("step", default=None)


def current_step() -> Step | None:
    """Return the step that this code is part of, if it is part of one."""
    return _CURRENT.get()


@contextmanager
def running(model: Any, data: Any) -> Iterator[Step]:
    """Mark what follows as a replica's step on `data`."""
    step = Step(model, _samples(data))
    token = _CURRENT.set(step)
    try:
        yield step
    finally:
        _CURRENT.reset(token)


def _samples(data: Any) -> Any:
    """Return the size of a batch, or None if the shape already gives it."""
    for leaf in tree.flatten(data):
        if isinstance(leaf, tf.Tensor) and leaf.shape.rank:
            return tf.shape(leaf)[0] if leaf.shape[0] is None else None
    return None
