"""Numbers that JSON has no literal for."""

from __future__ import annotations

import json
import math

import pytest

from mwmagic.model.values import (
    as_json,
    decoded,
    decoded_all,
    encoded,
    encoded_all,
    finite,
    sendable,
)


@pytest.mark.parametrize("number", [0.0, -1.5, 1e300, 5e-324, math.inf, -math.inf, 3])
def test_a_number_comes_back(number):
    assert decoded(json.loads(json.dumps(encoded(number), allow_nan=False))) == number


def test_nan_comes_back():
    assert encoded(math.nan) == "NaN"
    assert math.isnan(decoded("NaN"))


def test_all_of_some_metrics():
    metrics = {"loss": math.inf, "accuracy": 0.5}
    assert encoded_all(metrics) == {"loss": "Infinity", "accuracy": 0.5}
    assert decoded_all(encoded_all(metrics)) == metrics


@pytest.mark.parametrize("value", ["nan", "1", "", None, True, [], {}, 10**400])
def test_what_is_not_a_number(value):
    with pytest.raises(ValueError, match="number"):
        decoded(value)


def test_a_number_that_json_lacks_is_spelled_alike_everywhere():
    values = {"step": [math.nan, math.inf, 1], "text": "\ud800"}
    spelled = {"step": ["NaN", "Infinity", 1], "text": "\ud800"}
    assert finite(values) == as_json(values) == spelled
    assert sendable(values) == {**spelled, "text": "\N{REPLACEMENT CHARACTER}"}
