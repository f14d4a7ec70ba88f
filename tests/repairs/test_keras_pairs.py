"""Two workers reach the numbers of one process also where two features meet."""

from pathlib import Path

import numpy as np
import pytest
from keras_comparison import Row, differences, gang
from keras_pairs import CASES, every_pair

SCRIPT = Path(__file__).parent / "keras_pair_rows.py"
ROWS = {case.name: Row(case.name, case.name, tolerance=case.tolerance) for case in CASES}

whole = [pytest.mark.slow, pytest.mark.tensorflow, pytest.mark.timeout(3600)]


single = gang(1, known=ROWS, script=SCRIPT)
pair = gang(2, known=ROWS, script=SCRIPT)


def test_the_cases_have_every_pair():
    assert set().union(*(case.pairs for case in CASES)) >= every_pair()


@pytest.mark.parametrize("row", [pytest.param(name, marks=whole) for name in ROWS])
def test_two_workers_reach_the_numbers_of_one_process(single, pair, row):
    assert single.error(row) is pair.error(row) is None
    assert differences(pair.of(row), single.of(row), ROWS[row]) == []
    for key, value in pair.of(row, 1).items():
        np.testing.assert_array_equal(value, pair.of(row)[key], err_msg=key)
