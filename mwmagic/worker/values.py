"""Reads numbers from whatever values user code passes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from mwmagic.model.values import NAME_CHARACTERS, encoded
from mwmagic.model.variables import ANNOUNCED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Values", "is_distributed", "local", "number"]


def is_distributed(value: Any) -> bool:  # noqa: ANN401 - of any framework
    """Return whether TensorFlow holds a value on several replicas."""
    return type(value).__module__.startswith("tensorflow.python.distribute")


def local(value: Any) -> Any:  # noqa: ANN401 - of any framework
    """Return this process's part of a value, or of a Keras variable.

    TensorFlow would sum or average a distributed variable over all workers, in a
    collective in which the others do not take part.
    """
    if type(value).__module__.startswith("keras.src.backend"):
        value = getattr(value, "_value", value)
    if is_distributed(value) and getattr(value, "values", None):
        return value.values[0]
    return value


def number(value: Any) -> float:  # noqa: ANN401 - of any framework
    """Return a value as a number."""
    part = local(value)
    try:
        return float(part)
    except TypeError:
        if not hasattr(part, "numpy"):
            raise
        return float(part.numpy())  # TensorFlow's variables


def _held(value: Any) -> Any:  # noqa: ANN401 - of any framework
    """Return the form in which a value is kept until it is sent.

    A tensor is kept as it is, since reading takes long and most are never sent; a
    NumPy array is read at once, since the loop may change it in place later.
    """
    if type(value) in (int, float):
        return value
    if type(value).__module__.partition(".")[0] == "numpy":
        return float(value)
    part = local(value)
    if hasattr(part, "assign"):  # a variable
        return number(part)
    detach = getattr(part, "detach", None)  # PyTorch's would keep the graph
    return part if detach is None else detach()


class Values:
    """Reads metrics; a bad one is dropped, with one line on standard error."""

    def __init__(self) -> None:
        self._refused: set[str] = set()

    def held(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metrics as they are kept until they are sent."""
        return self._each(metrics, _held)

    def read(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics' numbers, read now."""
        return self._each(metrics, number)

    def listed(self, name: str, values: Sequence[Any]) -> list[float | str]:
        """Return the numbers of one metric, as JSON values; NaN for a bad one."""
        return [self.numbers({name: value}).get(name, "NaN") for value in values]

    def numbers(self, metrics: Mapping[str, Any]) -> dict[str, float | str]:
        """Return the metrics' numbers, as JSON values."""
        return self._each(metrics, lambda value: encoded(number(value)))

    def _each(self, metrics: Mapping[str, Any], of: Any) -> dict[str, Any]:  # noqa: ANN401
        found = {}
        for name, value in metrics.items():
            try:
                found[name] = of(value)
            except Exception as error:  # noqa: BLE001, PERF203 - a user's type may raise anything
                self.refuse(name, f"{type(value).__name__} is not a number ({error})"[:200])
        return found

    def refuse(self, name: str, why: str) -> None:
        """Say, once for each name, that something is not reported."""
        name = name[:NAME_CHARACTERS]
        if name in self._refused or len(self._refused) > NAME_CHARACTERS:
            return
        self._refused.add(name)
        if sys.stderr is not None:
            sys.stderr.write(f"{ANNOUNCED}{name} is not reported: {why}\n")
