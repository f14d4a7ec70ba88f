"""Reports numbers from any code, beside what it prints."""

from __future__ import annotations

from functools import cache
from typing import Any

from mwmagic.model.values import METRICS_LIMIT, NAME_CHARACTERS, counted

from .outbox import outbox
from .values import Values, number

__all__ = ["report"]


@cache
def _values() -> Values:
    return Values()


def report(
    *,
    step: int | None = None,
    epoch: int | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    **metrics: Any,  # noqa: ANN401 - whatever `float` accepts
) -> None:
    """Report where training is, and what it measures.

    The dashboard shows it, ``run.metrics()`` returns it and the record keeps it. A call
    takes a few microseconds, so call it in every step: calls are throttled to some tens
    a second, of which the newest with the same names counts, and the last one is always
    sent. Without a cluster it does nothing.

    Parameters
    ----------
    step, epoch : int, optional
        The step or epoch that was done, counted as you like.
    steps, epochs : int, optional
        How many there are: steps in an epoch, epochs in all.
    **metrics : float
        Anything that ``float`` accepts, such as a NumPy, TensorFlow, JAX or PyTorch scalar.
        If a value is distributed over replicas, this worker's first part counts.

    Examples
    --------
    >>> from mwmagic.worker import report
    >>> for step in range(3):
    ...     report(step=step, steps=3, loss=1 / (step + 1))
    """
    box = outbox()
    if box is None or not box.open:
        return
    values = _values()
    message: dict[str, Any] = {"kind": "report"}
    for name, given in (("step", step), ("epoch", epoch), ("steps", steps), ("epochs", epochs)):
        if given is not None:
            message[name] = given if type(given) is int else _count(values, name, given)
    box.put(tuple(metrics), message, values.held(_bounded(values, metrics)))


def _count(values: Values, name: str, given: Any) -> int | None:  # noqa: ANN401 - whatever
    try:
        return int(number(given))
    except Exception as error:  # noqa: BLE001 - a user's type may raise anything
        values.refuse(name, f"{type(given).__name__} is not a whole number ({error})"[:200])
        return None


def _bounded(values: Values, metrics: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics without those that are too many, or whose name is too long."""
    if len(metrics) <= METRICS_LIMIT and max(map(len, metrics), default=0) <= NAME_CHARACTERS:
        return metrics
    kept: dict[str, Any] = {}
    for name, value in metrics.items():
        if len(name) > NAME_CHARACTERS:
            values.refuse(name, f"its name has more than {NAME_CHARACTERS} characters")
        elif len(kept) == METRICS_LIMIT:
            values.refuse(name, f"one report holds {counted(METRICS_LIMIT, 'metric')}")
        else:
            kept[name] = value
    return kept
