"""The bars of tqdm, as tqdm itself draws them."""

from __future__ import annotations

import io

import pytest
from feeding import Fed
from tqdm import tqdm

from mwmagic.logs.progress import Progress, Update
from mwmagic.logs.tqdm import tqdm_bar

BAR = " 45%|████▌     | 45/100 [00:12<00:14,  3.70it/s, loss=0.3, acc=nan]"


def test_a_bar():
    assert Progress().line(BAR.replace("nan", "0.5")) == Update(
        "print",
        step=45,
        steps=100,
        metrics={"loss": 0.3, "acc": 0.5},
        seconds_per_step=pytest.approx(1 / 3.7),
    )


def test_an_epoch_in_the_description():
    one = Progress().line("Epoch 2/5: " + BAR)
    assert (one.kind, one.epoch, one.epochs, one.step) == ("print", 2, 5, 45)
    assert "nan" in str(one.metrics)


def test_a_bar_of_unknown_length():
    one = tqdm_bar("train: 45it [01:02, 12.50s/it, loss=3e-05]")
    assert (one.step, one.steps, one.seconds_per_step, one.eta) == (45, None, 12.5, None)
    assert one.metrics == {"loss": 3e-05}


@pytest.mark.parametrize(
    ("shown", "step", "steps", "seconds"),
    [
        ("45/100 [00:12<00:14,  3.70 batch/s]", 45, 100, 1 / 3.7),
        ("45/100 [00:12<00:14,  3.70Batch/s, loss=0.3]", 45, 100, 1 / 3.7),
        ("45/100 [00:12<00:14,  3.70batch_s/s]", 45, 100, 1 / 3.7),
        ("45/100 [00:12<00:14,  3.70Epoch/s]", 45, 100, 1 / 3.7),
        ("45/100 [00:12<00:14,  2.50s/ batch]", 45, 100, 2.5),
        ("1.20k/60.0k [00:12<00:14, 3.70kit/s]", 1200, 60000, 1 / 3700),
        ("5.00/100 [00:12<00:14, 3.70 samples/s]", 5, 100, 1 / 3.7),
        ("0.00/1.50M [00:00<?, ?it/s]", 0, 1_500_000, None),
    ],
)
def test_units_and_scales(shown, step, steps, seconds):
    one = tqdm_bar(f" 45%|████▌     | {shown}")
    assert (one.step, one.steps) == (step, steps)
    assert one.seconds_per_step == (seconds and pytest.approx(seconds))


@pytest.mark.parametrize(
    ("shown", "step", "seconds"),
    [
        ("45 batch [01:02, 3.70 batch/s]", 45, 1 / 3.7),
        ("1.20kit [01:02, 3.70it/s]", 1200, 1 / 3.7),
        ("120kit [01:02, 3.70kit/s]", 120_000, 1 / 3700),
        ("120key [01:02, 3.70key/s]", 120, 1 / 3.7),
        ("99.9M samples [01:02, 3.70 samples/s]", 99_900_000, 1 / 3.7),
    ],
)
def test_units_and_scales_without_an_end(shown, step, seconds):
    one = tqdm_bar(shown)
    assert (one.step, one.steps) == (step, None)
    assert one.seconds_per_step == pytest.approx(seconds)


@pytest.mark.parametrize("unit", ["it", " batch", "Batch", "batch_s", "k", "Epoch"])
@pytest.mark.parametrize("total", [None, 999, 1_200_000])
@pytest.mark.parametrize("scale", [False, True])
def test_what_tqdm_writes_is_read(unit, total, scale):
    for n, elapsed in ((99, 3), (1100, 7), (1100, 2000)):
        text = tqdm.format_meter(
            min(n, total or n), total, elapsed, 80, unit=unit, unit_scale=scale
        )
        one = tqdm_bar(text)
        assert one.step == pytest.approx(min(n, total or n), rel=0.01), text
        assert one.seconds_per_step == pytest.approx(elapsed / min(n, total or n), rel=0.02), text


def test_evaluation_is_apart():
    assert Progress().line("Validation: " + BAR).kind == "bar"


@pytest.mark.parametrize(
    "line",
    [
        "45.0k/1.20M [00:12<00:14, 3.7MB/s]",
        " 45%|████▌     | 45.0M/100M [00:12<00:14, 3.70MB/s]",
        " 45%|████▌     | 45/100 [00:12<00:14, 3.70kB/s]",
        " 45%|████▌     | 45/100 [00:12<00:14, 3.70 B/s]",
        " 45%|████▌     | 45.0M/100M [00:12<00:14, 3.70MiB/s]",
        " 45%|████▌     | 45.0/100 [00:12<00:14, 2.50s/B]",
        "  0%|          | 0.00/100M [00:00<?, ?B/s]",
        "45.0MB [00:12, 3.70MB/s]",
        " 45%|████▌     | 45/100 [00:12<00:14",
        "see [1, 2] and 45/100 [done]",
        "| a | 3/4 [x]",
    ],
)
def test_other_bars_are_not_training(line):
    assert Progress().line(line) is None


def test_a_bar_as_tqdm_draws_it():
    out = io.StringIO()
    bar = tqdm(range(5), desc="Epoch 1/1", file=out, mininterval=0, ncols=100)
    for step in bar:
        bar.set_postfix(loss=1 / (step + 1), note="text")
    updates = Fed().feed(out.getvalue().encode())
    assert updates[-1].step == updates[-1].steps == 5
    assert updates[-1].final
    assert updates[-1].metrics == {"loss": 0.2}
    assert (updates[-1].epoch, updates[-1].epochs) == (1, 1)


def test_a_bar_that_is_being_drawn():
    progress = Fed()
    seen = [progress.feed(f"\r{BAR.replace('45/', f'{n}/')}".encode())[-1].step for n in (1, 2, 3)]
    assert seen == [1, 2, 3]
