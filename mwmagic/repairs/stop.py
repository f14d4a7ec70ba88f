# ruff: noqa: ANN401 - Keras has no annotations, and its defects are in its private parts
"""`stop_training` decided together: a worker that stops stops all of them, at the same batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from .cluster import add_up, first_local, spans_workers
from .parts import (
    CallbackList,
    History,
    LambdaCallback,
    ProgbarLogger,
    TensorFlowTrainer,
    is_default,
)
from .repair import Repair, Sign, is_from_keras, replace
from .use import Use

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["REPAIRS"]

BATCH = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")
# The attribute of a list of callbacks that holds what its workers have agreed on.
ATTRIBUTE = "_mwmagic_decision"
# The attribute of a strategy that holds the traced sum with which its workers ask each other.
SUM = "_mwmagic_sum"


@dataclass(frozen=True)
class Decision:
    """How the workers of one `fit` decide whether to stop.

    Parameters
    ----------
    any_worker : callable
        Takes whether this worker wants something and returns whether any does; it is
        called on every worker.
    in_epochs, in_batches : bool
        Whether any worker has a callback that may stop at an epoch, or at a batch.
    """

    any_worker: Callable[[bool], bool]
    in_epochs: bool
    in_batches: bool

    @classmethod
    def of(cls, callbacks: Any, strategy: Any) -> Decision:
        """Return that of a list of callbacks; call it on every worker."""
        any_worker = _any_worker(strategy)
        given = _given(callbacks)
        return cls(any_worker, any_worker(bool(given)), any_worker(any(map(_has_own, given))))


def _given(callbacks: Any) -> list[Any]:
    """Return the callbacks of a list that the user gave."""
    return [c for c in callbacks.callbacks if not isinstance(c, (History, ProgbarLogger))]


def _may_stop(_strategy: Any, callbacks: Any, *_args: Any, **_kwargs: Any) -> bool:
    strategy = getattr(callbacks.model, "distribute_strategy", None)
    return spans_workers(strategy) and bool(_given(callbacks))


def _any_worker(strategy: Any) -> Callable[[bool], bool]:
    if SUM not in vars(strategy):
        vars(strategy)[SUM] = _sum(strategy)
    total = vars(strategy)[SUM]
    return lambda wish: int(total(tf.constant(int(wish), tf.int64))) > 0


def _sum(strategy: Any) -> Any:
    """Return a function that adds up an integer of each replica; tracing it takes a while."""

    def replica(wish: Any) -> Any:
        return add_up([wish])[0]

    def total_of(wish: Any) -> Any:
        return first_local(strategy, strategy.run(replica, args=(wish,)))

    traced = tf.function(total_of, autograph=False)
    return traced.get_concrete_function(tf.TensorSpec((), tf.int64))


def _has_own(callback: Any) -> bool:
    """Return whether a callback does something of its user's at a batch.

    Keras's own decide by the logs, which are the same on all workers.
    """
    users = isinstance(callback, LambdaCallback) or not is_from_keras(callback)
    return users and not all(is_default(getattr(callback, name)) for name in BATCH)


def _stop_together() -> None:
    """Stop all workers where a callback of any of them sets `stop_training`.

    In the original, the worker leaves its loop alone, and the others wait for it in their
    next step. The workers ask each other only if one of them has callbacks that may stop:
    at each epoch, and at each batch if such a callback is not Keras's own.
    """
    begin = CallbackList.on_train_begin

    def on_train_begin(self: Any, logs: Any = None) -> None:
        begin(self, logs)
        strategy = getattr(self.model, "distribute_strategy", None)
        several = spans_workers(strategy)
        vars(self)[ATTRIBUTE] = Decision.of(self, strategy) if several else None
        _decide(self)

    replace(CallbackList, "on_train_begin", on_train_begin)
    replace(CallbackList, "on_epoch_begin", _deciding(CallbackList.on_epoch_begin))
    replace(CallbackList, "on_epoch_end", _deciding(CallbackList.on_epoch_end))
    replace(
        CallbackList,
        "on_train_batch_end",
        _deciding(CallbackList.on_train_batch_end, at_batch=True),
    )


def _deciding(original: Callable[..., None], at_batch: bool = False) -> Callable[..., None]:
    def deciding(self: Any, number: int, logs: Any = None) -> None:
        original(self, number, logs)
        _decide(self, at_batch)

    return deciding


def _decide(callbacks: Any, at_batch: bool = False) -> None:
    decision = vars(callbacks).get(ATTRIBUTE)
    if decision is not None and (decision.in_batches if at_batch else decision.in_epochs):
        model = callbacks.model
        model.stop_training = decision.any_worker(bool(model.stop_training))


REPAIRS = (
    Repair(
        "`stop_training` on one worker",
        "backend/tensorflow/trainer.py#L315",
        (
            Sign(TensorFlowTrainer, "fit", "if self.stop_training:"),
            Sign(CallbackList, "on_train_begin", "callback.on_train_begin(logs)"),
            Sign(CallbackList, "on_epoch_begin", "callback.on_epoch_begin(epoch, logs)"),
            Sign(CallbackList, "on_epoch_end", "callback.on_epoch_end(epoch, logs)"),
            Sign(CallbackList, "on_train_batch_end", "self._on_train_batch_end(batch, logs)"),
        ),
        _stop_together,
        uses=(Use(CallbackList, "on_train_begin", _may_stop),),
    ),
)
