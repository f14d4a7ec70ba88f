# ruff: noqa: ANN401 - Keras has no annotations
"""A variable as a Python number: `float(optimizer.learning_rate)`, `int(optimizer.iterations)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cluster import divides_batches
from .parts import KerasVariable
from .repair import Repair, Sign, replace
from .use import Use

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["REPAIRS"]


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
        "`float` of a variable",
        "backend/common/variables.py#L436",
        (
            Sign(KerasVariable, "__float__", "return float(self.value)"),
            Sign(KerasVariable, "__int__", "return int(self.value)"),
        ),
        _convert,
        uses=(Use(KerasVariable, "__float__"), Use(KerasVariable, "__int__")),
    ),
)
