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


def test_evaluation_is_apart():
    assert Progress().line("Validation: " + BAR).kind == "bar"


@pytest.mark.parametrize(
    "line",
    [
        "45.0k/1.20M [00:12<00:14, 3.7MB/s]",
        " 45%|████▌     | 45.0M/100M [00:12<00:14, 3.70MB/s]",
        " 45%|████▌     | 45/100 [00:12<00:14, 3.70kB/s]",
        " 45%|████▌     | 45/100 [00:12<00:14",
        "see [1, 2] and 45/100 [done]",
        "| a | 3/4 [x]",
    ],
)
def test_what_is_no_bar_of_training(line):
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
