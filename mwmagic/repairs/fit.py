# ruff: noqa: ANN401, SLF001 - Keras has no annotations, and its defects are in its private parts
"""What `fit`, `evaluate` and `predict` need under a multi-worker strategy, and how they run steps.

Objects created outside `strategy.scope()` are brought in, refused, or warned about, and a variable
of the strategy can be read as a number, as in `float(optimizer.learning_rate)`. Steps run several
at a time, with logs that agree.
"""

from __future__ import annotations

import warnings
from itertools import chain
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.distribute.values import PerReplicaSpec

from mwmagic.hooks import (
    INPUT_WAIT,
    METRIC_SUMS,
    divides_batches,
    first_local,
    trains_alone,
)
from mwmagic.model.variables import ANNOUNCED
from mwmagic.recovery.task.updates import enter, leave, within_step

from .agreement import agree, as_logs, local_mean, point_out_separate_state
from .data import stays_on_host
from .metrics import gathered, watched
from .parts import (
    BaseOptimizer,
    BaseTrainer,
    KerasVariable,
    Model,
    TensorFlowTrainer,
    trainer,
    tree,
)
from .repair import KerasRefused, Repair, Sign, Use, replace
from .step import OWN_SIZES, Updated, point_out_shares, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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


ISSUE = "keras-team/keras#20585"
COMPOSITE = (tf.RaggedTensor, tf.SparseTensor)


def _build_from_the_element_spec() -> None:
    """Build the model from the dataset's element spec.

    The original averages the first batch over the workers, but `reduce` takes no nests.
    Only the batch's shapes and types matter. The spec has them too, and does not take a
    batch from a generator that yields it only once.
    """
    cls = TensorFlowTrainer
    original = cls._maybe_symbolic_build

    def _maybe_symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        if not divides_batches(self._distribute_strategy):
            original(self, iterator=iterator, data_batch=data_batch)
            return
        if iterator is not None:
            data_batch = _local_spec(iterator._distributed_dataset.element_spec)
        _adopt_optimizers(self)
        _refuse_foreign_weights(self)
        if not _is_only_stepped(self):
            with watched(self):
                original(self, data_batch=data_batch)
        _bring_metrics_in(self)

    replace(cls, "_maybe_symbolic_build", _maybe_symbolic_build)


def _is_only_stepped(model: Any) -> bool:
    """Return whether a model has built layers and a `train_step`, but no `call`, like a GAN.

    A single process never calls it either.
    """
    inner = model._flatten_layers(include_self=False)
    return (
        type(model).call is Model.call
        and type(model).train_step is not TensorFlowTrainer.train_step
        and all(layer.built for layer in inner)
    )


def _local_spec(spec: Any) -> Any:
    """Replace each per-replica spec by that of this worker's first replica."""

    def first(leaf: Any) -> Any:
        return leaf._value_specs[0] if isinstance(leaf, PerReplicaSpec) else leaf

    return tree.map_structure(first, spec)


def _reduce_over_replicas() -> None:
    """Average a step's logs over the workers, and gather predictions of every type.

    The original averages along axis 0 of each value, but logs are scalars. It gathers with a
    collective that carries neither strings nor booleans, and cuts what is not dense.
    """
    original = trainer.reduce_per_replica

    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        if reduction in {"auto", "mean"} and divides_batches(strategy):
            return tree.map_structure(
                lambda value: strategy.reduce("MEAN", value, axis=None), values
            )
        if reduction == "concat" and divides_batches(strategy):
            return first_local(strategy, strategy.run(_gathered_outputs, args=(values,)))
        return original(values, strategy, reduction)

    replace(trainer, "reduce_per_replica", reduce_per_replica)


def _gathered_outputs(outputs: Any) -> Any:
    return tree.map_structure(_gathered_output, outputs)


def _gathered_output(output: Any) -> Any:
    if output is None:
        return None
    output = output if isinstance(output, COMPOSITE) else tf.convert_to_tensor(output)
    if output.shape.rank == 0:
        raise KerasRefused(
            "this model predicts one value for a batch, and each worker predicts for its own share "
            "of the samples. Return a value for each sample, of shape (batch,)."
        )
    return gathered(output)


ALONE = (
    f"{ANNOUNCED}this model was created outside MultiWorkerMirroredStrategy.scope(), so this "
    "worker trains it alone, and the others do not see what it learns."
)


def _compile_in_scope() -> None:
    """Enter the model's strategy in `compile`, as Keras 2 did.

    Otherwise an optimizer given by name belongs to no strategy, and `fit` raises "Mixing
    different tf.distribute.Strategy objects".
    """
    original = BaseTrainer.compile

    def compile_in_scope(self: Any, *args: Any, **kwargs: Any) -> None:
        strategy: Any = getattr(self, "_distribute_strategy", None)
        if not divides_batches(strategy):
            original(self, *args, **kwargs)
            return
        with strategy.scope():
            original(self, *args, **kwargs)
        _adopt(self.optimizer, strategy)

    replace(BaseTrainer, "compile", compile_in_scope)


def _adopt_optimizers(model: Any) -> None:
    """Give a model's optimizers to its strategy, such as the two that a GAN is compiled with."""
    for optimizer in _optimizers(model):
        _adopt(optimizer, model.distribute_strategy)


def _optimizers(model: Any) -> list[Any]:
    """Return the optimizers that are a model's attributes, or in lists or dicts that are."""
    found = chain.from_iterable(map(_members, vars(model).values()))
    return [each for each in found if isinstance(each, BaseOptimizer)]


def _members(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else (value,)


def _adopt(optimizer: Any, strategy: Any) -> None:
    """Give an optimizer that is not built yet, and those within it, to a strategy."""
    if optimizer is None:
        return
    if not optimizer.built:
        optimizer._distribution_strategy = strategy
    for inner in (getattr(optimizer, "inner_optimizer", None), *_parts_of(optimizer)):
        _adopt(inner, strategy)


def _parts_of(optimizer: Any) -> Iterable[Any]:
    """Return the optimizers that a `MultiOptimizer` passes variables on to."""
    return getattr(optimizer, "_inner_optimizers", ())


def _refuse_foreign_weights(model: Any) -> None:
    """Refuse a model that trains weights which do not belong to its strategy.

    Weights that are not trained may come from outside, such as an adapted
    `Normalization` layer or a frozen base.
    """
    optimized = [weight for each in _optimizers(model) for weight in _optimized(each)]
    for weight in (*model.trainable_variables, *optimized):
        if not _is_distributed(weight):
            raise KerasRefused(
                f"{weight.path} was created outside strategy.scope(), so every worker would train "
                "its own copy. Create and build the model, with every layer in it, inside "
                "`with strategy.scope():`. (--keras legacy would refuse it too.)"
            )


def _optimized(optimizer: Any) -> Any:
    return getattr(optimizer, "_trainable_variables", ())


def _bring_metrics_in(model: Any) -> None:
    """Give metrics that were created outside the scope variables inside it.

    With their own variables, each worker would report on its own samples alone.
    """
    with model._distribute_strategy.scope():
        for metric in model.metrics:
            for variable in metric.variables:
                if not _is_distributed(variable):
                    variable._initialize(variable.numpy())


def _is_distributed(variable: Any) -> bool:
    return isinstance(getattr(variable, "value", variable), tf.distribute.DistributedValues)


def _point_out_training_alone() -> None:
    """Warn where a model outside a multi-worker strategy's scope is trained beside it."""
    original = TensorFlowTrainer.fit

    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        if trains_alone(self.distribute_strategy):
            warnings.warn(ALONE, stacklevel=2)
        return original(self, *args, **kwargs)

    replace(TensorFlowTrainer, "fit", fit)


def _convert() -> None:
    """Make a number of a variable that a strategy mirrors, which TensorFlow does not."""
    replace(KerasVariable, "__float__", _converting(float, KerasVariable.__float__))
    replace(KerasVariable, "__int__", _converting(int, KerasVariable.__int__))


def _converting(number: type[float], original: Callable[[Any], float]) -> Callable[[Any], float]:
    def convert(self: Any) -> float:
        if self.ndim == 0 and divides_batches(getattr(self.value, "distribute_strategy", None)):
            return number(self.numpy())
        return original(self)

    return convert


REPAIRS = (
    Repair(
        "fit",
        ISSUE,
        (
            Sign(
                TensorFlowTrainer,
                "_maybe_symbolic_build",
                '.reduce("MEAN", maybe_distributed_data_batch, axis=None',
            ),
        ),
        _build_from_the_element_spec,
    ),
    Repair(
        "evaluate",
        ISSUE,
        (Sign(trainer, "reduce_per_replica", 'strategy.reduce("MEAN", v, axis=0)'),),
        _reduce_over_replicas,
    ),
    Repair(
        "compile",
        "trainers/trainer.py#L40",
        (Sign(BaseTrainer, "compile", "self.optimizer = optimizer", lacks=".scope()"),),
        _compile_in_scope,
    ),
    Repair(
        "fit outside the scope",
        "backend/tensorflow/trainer.py#L315",
        (Sign(TensorFlowTrainer, "fit", "self.distribute_strategy"),),
        _point_out_training_alone,
    ),
    Repair(
        "`float` of a variable",
        "backend/common/variables.py#L436",
        (
            Sign(KerasVariable, "__float__", "return float(self.value)"),
            Sign(KerasVariable, "__int__", "return int(self.value)"),
        ),
        _convert,
        uses=(Use(KerasVariable, "__float__"), Use(KerasVariable, "__int__")),
    ),
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
