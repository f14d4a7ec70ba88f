"""What a sweep varies: how it is typed, what a program takes of it, and what is tried."""

from __future__ import annotations

import random
import statistics

import pytest

from mwmagic.errors import BadArguments
from mwmagic.experiments.space import (
    Range,
    as_json,
    drawn,
    from_json,
    grid,
    read_space,
    size,
    space_of,
    spoken,
)

SOURCE = """\
units = 32
lr = 0.1
name = "adam"
shape = (1, 2)
config = {"opt": {"decay": 0.5}}
twice = 1
twice = 2
"""


def space(*words):
    return space_of(read_space(words), SOURCE, (), {})


def test_values_are_what_the_program_takes():
    assert space("units=32,64", "lr=1,0.01", "decay=0.1", "name=adam,sgd") == {
        "units": (32, 64),
        "lr": (1.0, 0.01),
        "config.opt.decay": (0.1,),
        "name": ("adam", "sgd"),
    }
    assert space("shape=(1,2),[3, 4]") == {"shape": ((1, 2), (3, 4))}
    assert space("name='a,b',\"c\"") == {"name": ("a,b", "c")}


def test_python_gives_values_as_they_are():
    given = {"units": [32, 64], "lr": "log(0.01,1)", "name": range(0)}
    with pytest.raises(BadArguments, match="name has no values"):
        space_of(given, SOURCE, (), {})
    del given["name"]
    assert space_of(given, SOURCE, (), {}) == {"units": (32, 64), "lr": Range(0.01, 1.0, log=True)}


def test_a_range_gives_integers_to_a_parameter_that_takes_no_others():
    [units] = space("units=log(16,256)").values()
    assert units == Range(16, 256, log=True, whole=True)
    found = {units.draw(random.Random(seed)) for seed in range(300)}
    assert all(isinstance(one, int) and 16 <= one <= 256 for one in found)
    assert 50 < statistics.median(found) < 150
    [units] = space("units=uniform(1,3)").values()
    assert {units.draw(random.Random(seed)) for seed in range(50)} == {1, 2, 3}


def test_magnitudes_are_equally_likely():
    [lr] = space("lr=log(1e-4,1e-1)").values()
    found = [lr.draw(random.Random(seed)) for seed in range(600)]
    assert min(found) >= 1e-4
    assert max(found) <= 1e-1
    for low in (1e-4, 1e-3, 1e-2):
        assert 140 < sum(low <= one < 10 * low for one in found) < 260


def test_a_grid_changes_the_last_parameter_first():
    one = space("units=1,2", "lr=0.1,0.2")
    assert size(one) == 4
    assert [tuple(each.values()) for each in grid(one)] == [
        (1, 0.1),
        (1, 0.2),
        (2, 0.1),
        (2, 0.2),
    ]


def test_draws_are_determined_by_the_seed():
    one = space("units=1,2,3", "lr=uniform(0,1)")
    first = [drawn(one, 5, number) for number in range(20)]
    assert first == [drawn(one, 5, number) for number in range(20)]
    assert first != [drawn(one, 6, number) for number in range(20)]
    assert {each["units"] for each in first} == {1, 2, 3}


def test_a_plan_keeps_a_space():
    one = space("units=1,2", "lr=log(0.1,1)")
    assert from_json(as_json(one)) == one
    assert spoken(one) == "units=1,2 lr=log(0.1,1)"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["units"], "'units' is not a parameter with values"),
        (["=3"], "'=3' is not a parameter with values"),
        (["units=1", "units=2"], "given twice"),
        (["units="], "has an empty value"),
        (["units=1,,2"], "has an empty value"),
        (["units=1,1"], "has the value 1 twice"),
        (["decay=1", "config.opt.decay=2"], "given twice"),
        (["unit=1"], "did you mean units"),
        (["units=1.5"], "takes an integer"),
        (["units=uniform(1.5,3)"], "takes integers"),
        (["twice=3"], "cannot be set"),
        (["lr=log(0,1)"], "must begin above 0"),
        (["lr=uniform(1,1)"], "from a lower number to a higher one"),
        (["lr=log(a,1)"], "needs numbers at both ends"),
        (["lr=log(1e-4)"], "is no range: write two numbers and nothing else"),
        (["lr=uniform(1,2),3"], "is no range"),
        (["lr=log(1,inf)"], "from a lower number to a higher one"),
    ],
)
def test_what_cannot_be_tried_is_refused(words, message):
    with pytest.raises(BadArguments, match=message):
        space(*words)


def test_a_grid_of_a_range_is_refused_with_what_to_do():
    with pytest.raises(BadArguments, match="add --random N"):
        list(grid(space("lr=log(0.1,1)")))
