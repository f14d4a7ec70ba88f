"""Two workers, and three, reach what one process reaches at the same global batch."""

import csv
import hashlib
import importlib.util
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from keras_comparison import NOT_IN_KERAS2, ROWS, differences, gang, keras_version, verdict

# The time to run all rows counts as the first test's, and a busy machine takes long; a gang
# that hangs is ended after minutes without a word.
pytestmark = [pytest.mark.slow, pytest.mark.tensorflow, pytest.mark.timeout(3600)]

PAGE = Path(__file__).parents[2] / "docs" / "use" / "keras.md"
COLUMNS = {"pair": "Keras 3, 2 workers", "three": "3 workers", "keras2": "tf-keras, 2 workers"}
"""The columns of the table, by the gang that fills each."""

KERAS = ".".join(keras_version().split(".")[:2])
# What these train with is word for word the same in both versions; see the test of it.
SAME_IN_KERAS_3_13 = [
    *("py_dataset", "numpy_input", "shuffled_without_a_seed"),
    *("backup_every_epoch", "backup_every_few_steps", "backup_in_mid_epoch"),
]
LEFT_OUT = SAME_IN_KERAS_3_13 if KERAS == "3.13" else []
TRIED = [name for name in ROWS if name not in LEFT_OUT]
PLAIN = ["custom_loop", "predict_from_files", "fit_evaluate_predict"]  # the last one fails
REPAIRED = [name for name in TRIED if name != "layer_built_outside_the_scope"]
COMPARED = [name for name in REPAIRED if ROWS[name].single]
# What depends on how many workers share a batch; two show the rest.
OF_THREE = [
    *("fit_evaluate_predict", "uneven_last_batch", "fewer_samples_than_workers", "masks"),
    *("losses_without_samples", "other_reductions", "many_metrics", "mean_without_samples"),
    *("synchronized_batch_norm", "mixed_precision", "on_uneven_batch", "predict_from_files"),
]
WRITING = bool(os.environ.get("MWMAGIC_WRITE_DOCS"))
# Keras 2 no longer changes, nor does its column of the table: a few of its rows show that.
SAME_IN_KERAS2 = ["fit_evaluate_predict", "steps_per_execution", "batch_norm", "clip_global_norm"]
OF_KERAS2 = list(ROWS) if WRITING else [*SAME_IN_KERAS2, "uneven_last_batch"]


def each(rows):
    """Return each gang with each of the rows that it runs."""
    return [
        *(("pair", row) for row in rows),
        *(("three", row) for row in rows if row in OF_THREE),
    ]


single = gang(1, TRIED)
pair = gang(2, TRIED)
three = gang(3, OF_THREE)
plain = gang(2, PLAIN, MWMAGIC_KERAS="plain")
keras2 = gang(2, OF_KERAS2, ROWS_KERAS="tf_keras")


@pytest.mark.parametrize(("workers", "row"), each(COMPARED))
def test_workers_reach_the_numbers_of_one_process(single, workers, row, request):
    several = request.getfixturevalue(workers)
    assert single.error(row) is several.error(row) is None
    assert differences(several.of(row), single.of(row), ROWS[row]) == []


@pytest.mark.parametrize(("workers", "row"), each(REPAIRED))
def test_all_workers_hold_the_same_state_and_report_the_same(workers, row, request):
    several = request.getfixturevalue(workers)
    assert several.error(row) is None
    expected = several.of(row)
    for task in range(1, len(several.tasks)):
        assert list(several.of(row, task)) == list(expected)
        for key, value in several.of(row, task).items():
            np.testing.assert_array_equal(value, expected[key], err_msg=key)


@pytest.mark.skipif(KERAS not in {"3.13", "3.15"}, reason="this is neither of the two")
def test_what_is_left_out_with_keras_3_13_is_the_same_there():
    """The modules that hold it have one text, of which only this digest is known here."""
    names = [
        *("callbacks/backup_and_restore", "callbacks/callback", "callbacks/callback_list"),
        *("trainers/epoch_iterator", "trainers/data_adapters/array_data_adapter"),
        *("trainers/data_adapters/data_adapter_utils", "trainers/data_adapters/py_dataset_adapter"),
    ]
    sources = Path(importlib.util.find_spec("keras").origin).parent / "src"
    texts = [(sources / f"{name}.py").read_bytes() for name in names]
    digest = hashlib.sha256(b"".join(texts)).hexdigest()
    assert digest.startswith("be8e6982a315ef6f")


@pytest.mark.parametrize("row", SAME_IN_KERAS2)
def test_keras_2_reaches_the_same_numbers(pair, keras2, row):
    assert differences(pair.of(row), keras2.of(row), ROWS[row], [NOT_IN_KERAS2]) == []


def test_an_even_share_is_not_assumed_where_keras_2_assumes_it(pair, keras2, single):
    row = ROWS["uneven_last_batch"]
    assert differences(keras2.of(row.name), single.of(row.name), row, [NOT_IN_KERAS2]) != []


def test_repairs_are_announced_once_and_only_under_several_workers(pair, single, plain):
    for log in pair.logs:
        [said] = [line for line in log.splitlines() if "--keras plain turns this off" in line]
        assert said.startswith("mwmagic: repaired Keras ")
        assert "docs/use/keras.md" in said
        assert len(said) < 120 or "this one is newer" in said  # it fits a line of a wide terminal
    assert "mwmagic:" not in single.logs[0]
    assert "mwmagic:" not in plain.logs[0]


def test_what_workers_must_agree_on_is_said(pair):
    for log in pair.logs:
        assert "every worker runs this generator" in log
        assert log.count("jit_compile=True is ignored") == 1
        assert log.count("this train_step computes its loss without compute_loss") == 1


def test_state_that_no_worker_shares_is_pointed_out(pair):
    for log in pair.logs:
        [said] = [line for line in log.splitlines() if "each worker updates from its own" in line]
        assert "/remembers/queue is state" in said
        assert "aggregation='mean'" in said


def test_plain_keras_still_has_the_defect(plain):
    """Fails on the day Keras repairs it: then its repair here goes."""
    assert "PerReplica" in plain.error("fit_evaluate_predict")


def test_custom_loops_see_what_plain_keras_gives(plain, pair):
    assert differences(pair.of("custom_loop"), plain.of("custom_loop"), ROWS["custom_loop"]) == []


def test_plain_keras_predicts_out_of_order(plain, single):
    assert verdict(plain, single, ROWS["predict_from_files"]) == "other numbers"


def test_weights_from_outside_the_scope_are_refused_before_training(pair):
    error = pair.error("layer_built_outside_the_scope")
    assert "was created outside strategy.scope()" in error
    assert "--keras legacy" in error


def test_the_chief_alone_writes(pair):
    callbacks, saved = pair.directory / "callbacks", pair.directory / "saved"
    written = sorted(path.name for path in callbacks.iterdir())
    models = ["at-1.keras", "at-2.keras", "at-3.keras", "best.weights.h5"]
    assert written == [*models, "log.csv", "posted-by-0"]
    assert (callbacks / "posted-by-0").read_text().split() == ["0", "1", "2"]
    with (callbacks / "log.csv").open() as log:
        assert [line["epoch"] for line in csv.DictReader(log)] == ["0", "1", "2"]
    for path in (saved / "model.keras", callbacks / "at-3.keras"):
        assert zipfile.ZipFile(path).testzip() is None
    names = ["model", "model.h5", "model.keras", "model.weights.h5"]
    assert sorted(path.name for path in saved.iterdir()) == names
    assert not list(pair.directory.glob("backup*"))


def test_the_chief_alone_writes_summaries(pair):
    for part in ("train", "validation"):
        assert len(list((pair.directory / "tensorboard" / part).glob("events.*"))) == 1


def read_table(text):
    """Return the lines of a table in Markdown, as lists of cells."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]


@pytest.mark.parametrize("workers", COLUMNS)
def test_the_documentation_holds_the_table(workers, single, request):
    """MWMAGIC_WRITE_DOCS=1 writes it again."""
    text = PAGE.read_text()
    assert f"Keras {KERAS}" in text, "docs/use/keras.md does not speak of this Keras"
    start, end = "<!-- table -->\n", "<!-- end of table -->"
    before, _, rest = text.partition(start)
    found, _, after = rest.partition(end)
    several, ignored = request.getfixturevalue(workers), [NOT_IN_KERAS2] * (workers == "keras2")
    rows = [ROWS[name] for name in (OF_KERAS2 if workers == "keras2" else TRIED)]
    made = {row.title: verdict(several, single, row, ignored) for row in rows}
    at = 1 + list(COLUMNS).index(workers)
    if WRITING:
        cells = {line[0]: line for line in read_table(found)}
        head = [["", *COLUMNS.values()], ["---"] * (1 + len(COLUMNS))]
        lines = [*head, *(cells.get(title, [title, *COLUMNS]) for title in made)]
        for line in lines[len(head) :]:
            line[at] = made[line[0]]
        table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        PAGE.write_text(before + start + table + end + after)
    else:
        head, _, *lines = read_table(found)
        assert head == ["", *COLUMNS.values()]
        assert [line[0] for line in lines] == [row.title for row in ROWS.values()]
        assert {line[0]: line[at] for line in lines if line[0] in made} == made
