# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its defects are in its private parts
"""How `fit` and `evaluate` run steps: several at a time, with logs that agree."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from mwmagic.hooks import INPUT_WAIT, METRIC_SUMS, divides_batches
from mwmagic.model.variables import ANNOUNCED
from mwmagic.recovery.task.updates import enter, leave, within_step

from .agreement import agree, as_logs, local_mean, point_out_separate_state
from .data import stays_on_host
from .metrics import watched
from .parts import TensorFlowTrainer, tree
from .repair import Repair, Sign, replace
from .step import OWN_SIZES, Updated, point_out_shares, running

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["REPAIRS"]

XLA = (
    f"{ANNOUNCED}jit_compile=True is ignored, because XLA cannot compile a step that reduces over "
    "workers. Keras's own jit_compile='auto' makes the same choice."
)
ITERATORS = (tf.data.Iterator, tf.distribute.DistributedIterator)


def _execute_steps() -> None:
    """Run the steps of one execution in a separate loop.

    The original loop calls the step as a nested `tf.function`, which a collective's key
    enters as a placeholder that nothing feeds (`CollectiveReplicaLauncher`). Here the step
    is part of the loop itself, and the first one runs before it, so that the type of the
    outputs is known.
    """
    cls = TensorFlowTrainer
    original = cls._make_function

    def _make_function(self: Any, step_function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        if not divides_batches(self.distribute_strategy):
            return original(self, step_function)  # type: ignore[no-any-return]
        if self.jit_compile:
            warnings.warn(XLA, stacklevel=2)
        return _executing(self, step_function)

    replace(cls, "_make_function", _make_function)


def _executing(model: Any, step_function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function that `fit` calls with an iterator, once per execution."""
    updated = Updated()

    def steps_on_iterator(iterator: Any, specified: bool, on_host: bool) -> Any:
        del on_host  # each gets a graph: TensorFlow takes either kind of iterator for the other
        one_step = _one_step(model, step_function, updated, specified=specified)
        with within_step():
            data, waited = _timed(iterator.get_next)
            outputs = one_step(data)
            if model.steps_per_execution > 1:
                outputs, waited = _further_steps(model, one_step, iterator, outputs, waited)
            logs, weight = outputs
            return (*_agreed(model, logs, weight, updated), waited)

    def step_on_data(data: Any) -> Any:
        one_step = _one_step(model, step_function, updated, specified=False)
        with within_step():
            logs, weight = one_step(data)
            return _agreed(model, logs, weight, updated)

    if not model.run_eagerly:
        steps_on_iterator, step_on_data = _traced(steps_on_iterator), _traced(step_on_data)

    def function(iterator: Any) -> Any:
        if isinstance(iterator, ITERATORS):
            specified = OWN_SIZES not in vars(iterator)
            logs, sums, wait = steps_on_iterator(iterator, specified, stays_on_host(iterator))
            vars(model)[INPUT_WAIT] = wait
        else:
            for _, data in zip(range(model.steps_per_execution), iterator, strict=False):
                logs, sums = step_on_data(data)
        if step_function == model.train_step:
            vars(model)[METRIC_SUMS] = updated.sums, sums
        return logs

    return function


def _timed(get: Callable[[], Any]) -> tuple[Any, Any]:
    """Return the next batch, and for how many seconds the step waited for it."""
    began = tf.timestamp()
    with tf.control_dependencies([began]):
        data = get()
    optional = hasattr(data, "has_value")
    nest = data.has_value() if optional else data
    parts = [one for one in tf.nest.flatten(nest, expand_composites=True) if tf.is_tensor(one)]
    with tf.control_dependencies(parts):
        return data, tf.timestamp() - began


def _agreed(model: Any, logs: Any, weight: Any, updated: Updated) -> tuple[Any, Any]:
    """Make logs and state equal on all replicas, and leave the step."""
    agreed = agree(model, logs, weight, updated)
    leave()
    return agreed


def _traced(function: Callable[..., Any]) -> Any:
    plain = tf.autograph.experimental.do_not_convert(function)
    return tf.function(plain, reduce_retracing=True)


def _one_step(
    model: Any, step_function: Callable[[Any], Any], updated: Updated, *, specified: bool
) -> Callable[[Any], Any]:
    """Return the function that runs one step on all replicas.

    It returns this worker's outputs, and what they weigh in a mean over the workers.
    """
    strategy = model.distribute_strategy

    def replica(data: Any) -> Any:
        with running(model, data, updated, specified=specified) as step:
            outputs = as_logs(step_function(data), step)
        if step_function == model.train_step:
            point_out_shares(step, strategy.num_replicas_in_sync)
        point_out_separate_state(model, updated)
        return outputs, step.weight

    def one_step(data: Any) -> Any:
        enter(strategy, data)
        with watched(model):
            outputs, weight = strategy.run(replica, args=(data,))
        return local_mean(strategy, outputs, weight)

    return model._autoconvert_optionals(one_step)  # type: ignore[no-any-return]


def _further_steps(
    model: Any, one_step: Callable[[Any], Any], iterator: Any, outputs: Any, waited: Any
) -> tuple[Any, Any]:
    """Run the rest of an execution, to the dataset's end at most; add up how long it waited."""
    last = model.steps_per_execution

    def more(done: Any, given: Any, waited: Any) -> Any:
        data, longer = _timed(iterator.get_next_as_optional)
        return tf.cond(
            data.has_value(),
            lambda: (done + 1, _given(one_step(data.get_value())), waited + longer),
            lambda: (last, given, waited),
        )

    begin = (1, _given(outputs), waited)
    _, given, waited = tf.while_loop(lambda done, *_: done < last, more, begin)
    values = iter(given)
    return tree.map_structure(
        lambda value: None if value is None else next(values), outputs
    ), waited


def _given(outputs: Any) -> list[Any]:
    """Return what a loop can carry: all but None."""
    return [value for value in tree.flatten(outputs) if value is not None]


REPAIRS = (
    Repair(
        "steps_per_execution",
        "keras-team/keras#19246",
        (
            Sign(
                TensorFlowTrainer,
                "_make_function",
                "empty_outputs._element_spec = ",
                "tf.while_loop(",
            ),
            Sign(TensorFlowTrainer, "_autoconvert_optionals", "tf.experimental.Optional"),
        ),
        _execute_steps,
    ),
)
