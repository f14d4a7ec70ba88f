"""Programs of keras.io run on two workers, and reach the numbers of one process where they can."""

from pathlib import Path

import numpy as np
import pytest
from keras_comparison import differences, gang, rows_of

SCRIPT = Path(__file__).parent / "keras_program_rows.py"
ROWS = rows_of(SCRIPT)

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow, pytest.mark.timeout(3600)]


single = gang(1, known=ROWS, script=SCRIPT)
pair = gang(2, known=ROWS, script=SCRIPT)


@pytest.mark.parametrize("row", ROWS)
def test_a_program_trains_on_two_workers(pair, row):
    assert pair.error(row) is None
    for key, value in pair.of(row, 1).items():
        np.testing.assert_array_equal(value, pair.of(row)[key], err_msg=key)


@pytest.mark.parametrize("row", [name for name, row in ROWS.items() if row.single])
def test_a_program_reaches_the_numbers_of_one_process(single, pair, row):
    assert single.error(row) is None
    assert differences(pair.of(row), single.of(row), ROWS[row]) == []


def test_losses_that_are_not_divided_are_pointed_out(pair):
    for log in pair.logs:
        assert log.count("this train_step computes its loss without compute_loss") == 1
