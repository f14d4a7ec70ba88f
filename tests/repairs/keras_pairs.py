"""Features that meet: combinations in which each value of a factor meets each of another."""

import itertools
import random
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

SEED = 5
DRAWN = 40
"""Of as many random combinations the one with the most new pairs is taken."""


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
    """Return few cases that have every pair."""
    drawing, left, cases = random.Random(SEED), every_pair(), []
    while left:
        drawn = [_drawn(drawing, sorted(left)) for _ in range(DRAWN)]
        cases.append(max(drawn, key=lambda case: len(case.pairs & left)))
        left -= cases[-1].pairs
    return cases


def _drawn(drawing, left):
    """Return a random case that has one of the pairs."""
    values = {factor: drawing.choice(choices) for factor, choices in FACTORS.items()}
    return Case(**{**values, **dict(drawing.choice(left))})


CASES = covering()
