# ruff: noqa: ANN401 - Keras has no annotations, and its state in a step is private
"""The means of the last steps, from the running means that Keras keeps.

Keras gives its callbacks the mean over the epoch so far. Two such means and their sample
counts yield the mean of the steps between them: for two readings in a row, the value of
one step. Metrics that are not means, such as precision, stay as Keras gives them.

Where workers share a batch, Keras gives the mean over all of them, but each worker holds the
count of its own samples. A repaired step returns the sums and the counts of all workers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from mwmagic.repairs.cluster import METRIC_SUMS

from .values import is_distributed, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    State = Callable[[Any], tuple[float, float]]
    Shared = tuple[tuple[int, ...], Any]

__all__ = ["Means"]

NOTHING: Shared = ((), ())
"""What no step has left: identities of metrics' state, and its numbers."""

_TOLERANCE_RATIO = 1e-3
"""The largest relative difference between a log and the mean that it comes from."""


class Means:
    """Reads the logs of one `fit`."""

    def __init__(self, mean: type) -> None:
        self._result = mean.result  # type: ignore[attr-defined]
        self._legacy = mean.__module__.startswith("tf_keras")
        self._before: dict[int, tuple[float, float]] = {}
        self._shared = self._earlier = NOTHING
        self._found: dict[str, list[Any]] | None = None

    def reset(self) -> None:
        """Begin an epoch: the metrics are reset."""
        self._before = {}
        self._shared = self._earlier = NOTHING

    def take(self, model: Any) -> None:
        """Take in that a step is done, whose numbers may be read."""
        self._earlier, self._shared = self._shared, getattr(model, METRIC_SUMS, NOTHING)

    def moment(self) -> float | None:
        """When the step ended, in seconds of the last hour, if all workers agree on it."""
        return _known(self._shared).get(0)

    def read(self, model: Any, logs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the means since the last reading, and what is not a number as it is.

        Workers that share a batch may read after different steps: of them it is the last
        step alone, which is the same on all.
        """
        if self._found is None:
            self._found = self._by_name(model)
        apart = _apart(model)
        own = self._legacy and apart
        state: State = partial(_state, model)
        earlier: State = self._read_before
        if apart and not own:
            state, earlier = _reading(self._shared), _reading(self._earlier)
        means: dict[str, Any] = {}
        for name, value in logs.items():
            try:
                mean = self._since(name, value, state, earlier, own=own)
            except Exception:  # noqa: BLE001, PERF203 - of any type; `Values` refuses it
                means[name] = value
            else:
                means.update({} if mean is None else {name: mean})
        return means

    def _read_before(self, metric: Any) -> tuple[float, float]:
        return self._before.get(id(metric), (0.0, 0.0))

    def _since(
        self, name: str, value: Any, state: State, earlier: State, *, own: bool
    ) -> float | None:
        """Return one metric's mean; None if Keras gives nothing sensible.

        With several workers tf-keras adds up the workers' values until the epoch ends, so
        in that case this is the mean of this worker's own samples.
        """
        given = 0.0 if own else number(value)
        for metric in (self._found or {}).get(name, ()):
            total, count = state(metric)
            if count > 0 and (own or _are_close(total / count, given)):
                before, count_before = earlier(metric)
                self._before[id(metric)] = total, count
                if count <= count_before:
                    return total / count
                return (total - before) / (count - count_before)
        return None if own else given

    def _by_name(self, model: Any) -> dict[str, list[Any]]:
        """Return the metrics of a model that are plain means."""
        found: dict[str, list[Any]] = {}
        for metric in _leaves(getattr(model, "metrics", ())):
            if getattr(type(metric), "result", None) is self._result:
                found.setdefault(metric.name, []).append(metric)
        return found


def _leaves(metrics: Any) -> Iterator[Any]:
    """Return the metrics within metrics."""
    for metric in metrics:
        inner = getattr(metric, "metrics", None)
        if inner and isinstance(inner, (list, tuple)):  # tf-keras's have an empty one
            yield from _leaves(inner)
        else:
            yield metric


def _apart(model: Any) -> bool:
    """Return whether other workers hold a part of the metrics' state."""
    extended = getattr(getattr(model, "distribute_strategy", None), "extended", None)
    spans = getattr(extended, "_in_multi_worker_mode", None)
    return spans is not None and bool(spans())


def _are_close(mean: float, given: float) -> bool:
    return abs(mean - given) <= _TOLERANCE_RATIO * abs(given) + 1e-9


def _known(shared: Shared) -> dict[int, float]:
    """Return numbers by the identities of what holds them."""
    identities, numbers = shared
    return dict(zip(identities, map(float, numbers), strict=False))


def _reading(shared: Shared) -> State:
    """Return what reads a metric's sum and count over all workers, as a step left them."""
    known = _known(shared)
    return lambda metric: (known.get(id(metric.total), 0.0), known.get(id(metric.count), 0.0))


def _state(model: Any, metric: Any) -> tuple[float, float]:
    """Return the sum and the count that a mean is made of, on this worker."""
    state = getattr(model, "_jax_state", None)  # while JAX trains, variables are not updated
    if not state or "metrics_variables" not in state:
        return _local_sum(metric.total), _local_sum(metric.count)
    indices = {id(variable): at for at, variable in enumerate(model.metrics_variables)}
    values = state["metrics_variables"]
    return number(values[indices[id(metric.total)]]), number(values[indices[id(metric.count)]])


def _local_sum(variable: Any) -> float:
    """Return a variable's sum over this worker's own replicas; it takes no collective."""
    # TensorFlow looks up what its distributed variables lack in their value over all workers.
    value = variable if is_distributed(variable) else getattr(variable, "_value", variable)
    if is_distributed(value):
        return sum(number(part) for part in value.values)
    return number(value)
