"""Features that meet: combinations in which each value of a factor meets each of another."""

import itertools
from dataclasses import dataclass

FACTORS = {
    "share": ("even", "uneven", "empty", "single"),
    "run": ("graph", "eager", "several", "batch"),
    "loss": ("mean", "sum", "none", "own", "added"),
    "weight": ("equal", "sample", "class", "mask"),
    "update": ("plain", "accumulated", "averaged", "clipped", "mixed"),
}
"""How a batch is shared, how steps are run, what the loss is, what weighs it, and what is done with
its gradient."""

SIDE = 5
"""A prime, at least as many as any factor has values, and as there are factors less one."""


@dataclass(frozen=True)
class Case:
    """One value of each factor."""

    share: str
    run: str
    loss: str
    weight: str
    update: str

    @property
    def name(self):
        return f"pairs-{self.share}-{self.run}-{self.loss}-{self.weight}-{self.update}"

    @property
    def pairs(self):
        return set(itertools.combinations(vars(self).items(), 2))

    @property
    def tolerance(self):
        return 4e-4 if self.update == "mixed" else 2e-5


def every_pair():
    """Return all that has to meet."""
    return {
        ((one, a), (other, b))
        for one, other in itertools.combinations(FACTORS, 2)
        for a, b in itertools.product(FACTORS[one], FACTORS[other])
    }


def covering():
    """Return as few cases as have every pair.

    They are an orthogonal array: its columns are `a`, and `b` plus 0, 1, 2 ... times `a`, modulo a
    prime. Any two of them have each pair of numbers once.
    """
    for a, b in itertools.product(range(SIDE), repeat=2):
        columns = [a, *((b + factor * a) % SIDE for factor in range(len(FACTORS) - 1))]
        chosen = zip(FACTORS.values(), columns, strict=True)
        yield Case(*(values[number % len(values)] for values, number in chosen))


CASES = [*covering()]
