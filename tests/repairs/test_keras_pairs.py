"""Two workers reach the numbers of one process also where two features meet."""

from pathlib import Path

import numpy as np
import pytest
from keras_comparison import Row, differences, run_rows
from keras_pairs import CASES, every_pair

SCRIPT = Path(__file__).parent / "keras_pair_rows.py"
ROWS = {case.name: Row(case.name, case.name, tolerance=case.tolerance) for case in CASES}

whole = [pytest.mark.slow, pytest.mark.tensorflow, pytest.mark.timeout(3600)]


def gang(workers):
    """Return a fixture: the rows, run once for all the tests that look at them."""

    def run(tmp_path_factory):
        return run_rows(tmp_path_factory.mktemp("pairs"), workers, known=ROWS, script=SCRIPT)

    return pytest.fixture(scope="module")(run)


single = gang(1)
pair = gang(2)


def test_the_cases_have_every_pair():
    assert set().union(*(case.pairs for case in CASES)) >= every_pair()


@pytest.mark.parametrize("row", [pytest.param(name, marks=whole) for name in ROWS])
def test_two_workers_reach_the_numbers_of_one_process(single, pair, row):
    assert single.error(row) is pair.error(row) is None
    assert differences(pair.of(row), single.of(row), ROWS[row]) == []
    for key, value in pair.of(row, 1).items():
        np.testing.assert_array_equal(value, pair.of(row)[key], err_msg=key)
