"""What custom training loops print, and the bars of tqdm, as tqdm itself draws them."""

from __future__ import annotations

import io
import math

import pytest
from feeding import Fed
from hypothesis import given
from hypothesis import strategies as st
from tqdm import tqdm

from mwmagic.logs.loops import printed_metrics, tqdm_bar
from mwmagic.logs.progress import Progress, Update

METRICS = [
    ("Epoch: 0, accuracy: 0.84, train_loss: 0.5.", {"accuracy": 0.84, "train_loss": 0.5}),
    ("step 100 loss=0.123", {"loss": 0.123}),
    ("Epoch 3 Loss 0.5 Accuracy 0.9", {"Loss": 0.5, "Accuracy": 0.9}),
    ("Epoch 1, Loss: 0.13, Test Accuracy: 95.2", {"Loss": 0.13, "Test Accuracy": 95.2}),
    ("Finished epoch 2, accuracy is 0.49.", {"accuracy": 0.49}),
    ("Training loss (for 1 batch) at step 200: 0.4101", {"Training loss": 0.4101}),
    ("Training acc over epoch: 0.9027", {"Training acc": 0.9027}),
    ("we end the run now and the final test accuracy: 0.9", {"final test accuracy": 0.9}),
    ("loss=1.5e-05,acc=.5,lr=1E-3", {"loss": 1.5e-5, "acc": 0.5, "lr": 0.001}),
    ("loss: -inf, val_loss=Infinity", {"loss": -math.inf, "val_loss": math.inf}),
    ("{'loss': 0.25, 'learning_rate': 5e-05, 'epoch': 1.0}", {"loss": 0.25, "learning_rate": 5e-5}),
    ("loss: tf.Tensor(0.25, shape=(), dtype=float32)", {"loss": 0.25}),
    ("loss <tf.Tensor: shape=(), dtype=float32, numpy=0.25> at step 3", {"loss": 0.25}),
    ("loss = np.float32(0.25)", {"loss": 0.25}),
    ("accuracy: 95.5%", {"accuracy": 95.5}),
    ("[worker:1] step 1,200/5,000 loss=1,234.5", {"loss": 1234.5}),
    ("step 10 psnr=31.5 examples/sec: 2034", {"psnr": 31.5, "examples/sec": 2034.0}),
    ("INFO:root:epoch 1 loss: 0.5", {"loss": 0.5}),
    ("I1121 03:14:34.609583 139 main.py:53] epoch 1 loss=0.5", {"loss": 0.5}),
    ("epoch 1 batch_size=32 seed: 7 loss: 3", {"loss": 3.0}),
    ("trainLoss: 0.5 top5acc=0.9", {"trainLoss": 0.5, "top5acc": 0.9}),
]  # fmt: skip

ORDINARY = [
    "Listening on http://localhost:8080/loss=5",
    "2024-11-21 12:34:56,789 INFO start",
    "saved to /data/run=3/loss:5/model.h5",
    "batch_size: 64",
    "Number of devices: 2",
    "TensorFlow version: 2.21.0",
    "loss function version: 2.16.1",
    "Time taken: 12.3s",
    "accuracy target date: 2024-11-21",
    "the loss: 3/10 batches done",
    "losses: [0.1, 0.2]",
    "Epoch 1: val_loss improved from inf to 0.69107, saving model to model.keras",
    "Epoch 5: ReduceLROnPlateau reducing learning rate to 0.0001.",
    "Total params: 370 (1.45 KB)",
    "with a loss 3 times as high",
    "reloss: 5",
    "classes: 10",
    "loss:0x10",
    "loss: 1e5x",
    "steps per epoch: 100",
    "WARNING:tensorflow:slow (batch time: 0.0122s vs loss: 0.5)",
    "main.py: error: unrecognized arguments: -p lr=0.32",
    "usage: main.py [-h] [--lr LR] [--momentum=0.9 accuracy=1]",
    "main.py:3: UserWarning: loss: 0.5",
    "ValueError: loss: 0.5",
    '  File "/home/ann/main.py", line 3, in loss',
    "loss",
    "",
    "loss: 0.5" + " " * 2000,
]


@pytest.mark.parametrize(("text", "metrics"), METRICS)
def test_metrics(text, metrics):
    assert printed_metrics(text).metrics == pytest.approx(metrics)


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_holds_no_metrics(text):
    assert printed_metrics(text) is None


def test_nan_is_a_number():
    assert math.isnan(printed_metrics("loss: nan").metrics["loss"])


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Epoch 3/10 step 20/100 loss: 1", (3, 10, 20, 100)),
        ("epoch=3 global_step=20 loss=1", (3, None, 20, None)),
        ("[Epoch 3] [Batch 20 of 100] loss: 1", (3, None, 20, 100)),
        ("step 1,200/5,000 loss=1", (None, None, 1200, 5000)),
        ("iter 5, loss 0.5", (None, None, 5, None)),
        ("Training loss (for 1 batch) at step 200: 0.4", (None, None, 200, None)),
        ("epoch 1.5 loss: 1", (None, None, None, None)),
        ("step_size=3 num_epoch=4 loss: 1", (None, None, None, None)),
    ],
)
def test_places(text, place):
    found = printed_metrics(text)
    assert (found.epoch, found.epochs, found.step, found.steps) == place


@pytest.mark.parametrize(
    "text", ["Start of epoch 2", "Epoch 2", "==== Epoch: 2/5 ====", "Starting epoch 2..."]
)
def test_a_line_that_announces_another_is_recognised(text):
    assert printed_metrics(text).herald
    assert printed_metrics(text).epoch == 2


@given(st.text() | st.from_regex(r"[a-z =:/.]{0,8}(epoch|loss|step)[ =:,.0-9e+-]{0,20}"))
def test_garbage_never_raises(text):
    found = printed_metrics(text)
    assert found is None or found.metrics or found.herald


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
