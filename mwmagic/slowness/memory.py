"""How long the memory of a task that grows from epoch to epoch will last."""

from __future__ import annotations

__all__ = ["Growth"]

LEAST_EPOCHS = 5
"""Epochs whose memory has to have grown alike."""

LEAST_BYTES = 10 * 2**20
"""The least growth in an epoch that is no noise of an allocator."""

ALIKE_RATIO = 3.0
"""How many times the least growth the largest may be."""


class Growth:
    """The memory of one process at the beginnings of its epochs."""

    def __init__(self) -> None:
        self._sizes: list[float] = []
        self._epoch = 0

    def seen(self, epoch: int, size: float) -> None:
        """Note how many bytes it uses; the first look in an epoch counts."""
        if epoch < self._epoch:
            self._sizes = []  # another training
        if epoch == self._epoch + 1 or not self._sizes:
            self._sizes = [*self._sizes, size][-LEAST_EPOCHS - 1 :]
        elif epoch > self._epoch:
            self._sizes = [size]  # epochs were too short to be seen
        self._epoch = epoch

    @property
    def per_epoch(self) -> float:
        """By how many bytes it grows in each epoch; 0 if it does not grow steadily."""
        steps = [
            after - before for before, after in zip(self._sizes, self._sizes[1:], strict=False)
        ]
        if len(steps) < LEAST_EPOCHS or min(steps) < LEAST_BYTES:
            return 0.0
        return sum(steps) / len(steps) if max(steps) <= ALIKE_RATIO * min(steps) else 0.0
