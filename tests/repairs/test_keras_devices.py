"""Workers with several devices each reach what one process reaches, as those with one do."""

import pytest
from keras_comparison import ROWS, differences, run_rows

pytestmark = [pytest.mark.slow, pytest.mark.tensorflow, pytest.mark.timeout(1800)]

# Where the replicas of a worker could get into each other's way, or share what is each one's own.
TRIED = [
    "fit_evaluate_predict",
    "steps_per_execution",
    "fewer_samples_than_workers",
    "masks",
    "loss_added_in_a_layer",
    "train_step_with_its_own_loss",
    "batch_norm",
    "synchronized_batch_norm",
    "regularizers",
    "mixed_precision",
    "gradient_accumulation",
    "on_batch",
]


def gang(workers, **env):
    def run(tmp_path_factory):
        return run_rows(tmp_path_factory.mktemp("rows"), workers, TRIED, **env)

    return pytest.fixture(scope="module")(run)


single = gang(1)
two_of_two = gang(2, ROWS_DEVICES="2")
four_of_one = gang(4)


@pytest.mark.parametrize("row", TRIED)
@pytest.mark.parametrize("workers", ["two_of_two", "four_of_one"])
def test_replicas_reach_the_numbers_of_one_process(single, workers, row, request):
    several = request.getfixturevalue(workers)
    assert single.error(row) is several.error(row) is None
    compared = single if ROWS[row].single else request.getfixturevalue("four_of_one")
    assert differences(several.of(row), compared.of(row), ROWS[row]) == []
