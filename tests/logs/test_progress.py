import itertools
from pathlib import Path

import pytest
from feeding import Fed, raised
from hypothesis import given, settings
from hypothesis import strategies as st

from mwmagic.logs import Guard
from mwmagic.logs.progress import Progress, Update
from mwmagic.logs.terminal import shown

SAMPLES = {path.stem: path.read_bytes() for path in Path(__file__).parent.glob("samples/*.log")}
BAR = "10/10 ━━━━━━━━━━━━━━━━━━━━ 1s 64ms/step - loss: 0.5000"
LEGACY = "10/10 [==============================] - 1s 64ms/step - loss: 0.5000"


def peek(text, progress=None):
    """Return what a line that has not ended shows."""
    updates = (progress or Progress()).write(f"\r{text}", Guard(raised))
    return updates[-1] if updates else None


def read(lines):
    progress = Progress()
    return [update for line in lines if (update := progress.line(line)) is not None]


def whole(data):
    return read(shown(data, ansi=True))


def epochs(updates):
    return [(at.epoch, at.epochs, at.step, at.steps, at.metrics) for at in updates if at.final]


def test_keras_3_fit_evaluate_predict(sample):
    updates = whole(sample("keras3-fit"))
    assert updates[0] == Update("train", epoch=1, epochs=3)
    assert updates[1] == Update(
        "train",
        epoch=1,
        epochs=3,
        step=10,
        steps=10,
        metrics={"accuracy": 0.5094, "loss": 0.6954, "val_accuracy": 0.5406, "val_loss": 0.6888},
        final=True,
        seconds_per_step=0.072,
    )
    evaluated, predicted = updates[-2:]
    assert [at.kind for at in updates] == ["train"] * 6 + ["bar"] * 2
    assert evaluated.metrics == {"accuracy": 0.5813, "loss": 0.6786}
    assert evaluated.seconds_per_step == pytest.approx(928e-6)
    assert (predicted.epoch, predicted.metrics, predicted.final) == (None, {}, True)


def test_legacy_workers_sum_metrics_until_the_last_line(sample):
    data = sample("legacy-two-workers-0")
    progress = Fed()
    drafts = [at for byte in data for at in progress.feed(bytes([byte]))]
    first = [at for at in drafts if at.epoch == 1 and "accuracy" in at.metrics]
    assert any(at.metrics["accuracy"] > 1 and not at.final for at in first)
    assert first[-1].final
    assert first[-1].metrics["accuracy"] == 0.5063
    assert [at[0] for at in epochs(whole(data))] == [1, 2, 3, None, None]


def test_a_length_that_is_unknown_at_first(sample):
    for name in ("keras3-unknown-length", "legacy-unknown-length"):
        updates = whole(sample(name))
        assert [(at.epoch, at.steps) for at in updates if at.final] == [
            (1, 10),
            (2, 10),
            (3, 10),
            (None, 10),
            (None, 10),
        ]
        assert any(at.step and at.steps is None and at.epoch == 1 for at in updates)


@pytest.mark.parametrize(
    ("name", "metrics", "seconds"),
    [
        ("keras3-terse", {"accuracy": 0.5188, "loss": 0.7005}, 0.133),
        ("legacy-two-workers-terse-1", {"accuracy": 0.5156, "loss": 1.6125}, 0.179),
        ("tensorflow-2.16-0", {"accuracy": 0.4688, "loss": 0.7063}, 2.0),
    ],
)
def test_terse_output(sample, name, metrics, seconds):
    heading, first, *rest = whole(sample(name))
    assert (heading.epoch, first.epoch, first.final) == (1, 1, True)
    assert {key: first.metrics[key] for key in metrics} == metrics
    assert first.seconds_per_step == seconds
    assert [at.kind for at in rest] == ["train"] * 4 + ["bar"] * 2


def test_a_custom_loop(sample):
    updates = whole(sample("loop-1"))
    assert updates[0] == Update("print", step=0, metrics={"loss": 2.7})
    assert updates[3] == Update(
        "print", epoch=0, metrics={"accuracy": 0.5, "train_loss": 2.211354}, final=True
    )
    assert updates[5].epoch is None
    assert len(updates) == 15


def test_failing_workers_make_no_progress(sample):
    for name in ("unpatched-keras3-1", "lost-peer-0", "chained-1", "unshardable-0", "legacy-shape"):
        assert whole(sample(name)) == []
    for name in ("keras3-callback", "keras3-data", "legacy-callback"):
        assert not any(at.metrics or at.final for at in whole(sample(name)))


def test_time_left():
    assert peek(" 3/10 ━━━━━━━━━━━━━━━━━━━━ 1:02:03 2s/step - loss: 0.5000").eta == 3723
    assert peek(" 3/10 [=====>..............] - ETA: 1:02 - loss: 0.5000").eta == 62
    assert peek(" 3/10 [=====>..............] - ETA: 12s").eta == 12
    assert peek("      3/Unknown 1s 689ms/step - loss: 0.5000").eta is None
    assert Progress().line(BAR).eta is None


@pytest.mark.parametrize("bar", [BAR, LEGACY])
def test_a_bar_of_another_length_inside_an_epoch_is_no_epoch(bar):
    other = bar.replace("10/10", "3/3")
    progress = Progress()
    progress.line("Epoch 1/2")
    assert progress.line(bar.replace("10/10", " 9/10")).kind == "train"
    assert progress.line(other).kind == "bar"
    assert progress.line(bar).final
    assert progress.line(bar).epoch is None


@pytest.mark.parametrize("name", ["keras3-evaluate-in-callback", "legacy-evaluate-in-callback"])
def test_evaluate_in_a_callback_draws_over_the_bar_of_the_epoch(sample, name):
    data = sample(name)
    for parts in ([data], [data[at : at + 7] for at in range(0, len(data), 7)]):
        progress = Fed()
        updates = [at for part in parts for at in progress.feed(part) if at.final]
        assert [(at.kind, at.epoch, at.steps) for at in updates] == [
            ("bar", None, 3),
            ("train", 1, 10),
            ("bar", None, 3),
            ("train", 2, 10),
            ("bar", None, 10),
        ]
        assert all(len(str(at.metrics["loss"])) <= 6 for at in updates)


def test_a_single_epoch_without_heading():
    kinds = [at.kind for at in read([BAR, f"{BAR} - val_loss: 0.4000"])]
    assert kinds == ["bar", "train"]


def test_numbers():
    found = read([f"{BAR} - a: nan - b: -inf - c: 1.5000e-05 - two words: -2.0000"])[0]
    assert str(found.metrics) == (
        "{'loss': 0.5, 'a': nan, 'b': -inf, 'c': 1.5e-05, 'two words': -2.0}"
    )


@pytest.mark.parametrize(
    "glued",
    [
        "W0000 00:00:1795231644.451560   18289 op_kernel.cc:1845] loss: 3",
        "E0000 00:00:1795231644.451560   18289 op_kernel.cc:1845] failed",
        "2026-11-21 03:41:41.959922: W tensorflow/core/x.cc:404] aborting",
        "/home/ann/main.py:3: UserWarning: x - y: 5",
        "hello - from: 3 of us",
    ],
)
@pytest.mark.parametrize("bar", [BAR, LEGACY])
def test_text_next_to_a_bar_is_not_read_as_a_number(bar, glued):
    progress = Progress()
    progress.line("Epoch 1/2")
    update = progress.line(f"{bar} - accuracy: 0.9000{glued}")
    assert (update.metrics, update.final) == ({"loss": 0.5}, False)


def test_digits_still_to_come_are_not_read():
    for end in ("0", "0.", "0.5", "0.500", "5.0000e", "5.0000e-0"):
        assert peek(f"{BAR} - accuracy: {end}").metrics == {"loss": 0.5}
    for end in ("0.5000", "5.0000e-05", "nan", "0.5000  "):
        assert "accuracy" in peek(f"{BAR} - accuracy: {end}").metrics


def test_announced_epochs():
    lines = [
        "Start of epoch 3",
        "step 1 loss=1",
        "step 2 loss=1",
        "Epoch 3 loss: 1",
        "step 3 loss=1",
    ]
    assert [at.epoch for at in read(lines)] == [3, 3, 3, 3, None]
    assert [at.final for at in read(lines)] == [False, False, False, True, False]
    lines = ["Epoch 1/3", "step 1 loss=1", "Epoch 2 / 3", "step 1 loss=1"]
    assert [(at.epoch, at.epochs) for at in read(lines)] == [(1, 3)] * 2 + [(2, 3)] * 2


def test_source_lines_of_a_traceback_are_no_metrics():
    lines = [
        "3/10 bla Traceback (most recent call last):",
        '  File "/home/ann/main.py", line 3, in <module>',
        "    loss = 0.5",
        "W0000 00:00:1795231644.451560   18289 op_kernel.cc:1845] loss: 3",
        "    epoch = 3; accuracy = 5",
        "",
        "MyLoss: epoch 3 loss: 0.5",
        "step 1 loss: 0.25",
    ]
    assert [at.metrics for at in read(lines)] == [{"loss": 0.25}]


@pytest.mark.parametrize(
    "line",
    [
        "3/4 12s of video",
        "1/2 - 3s",
        "10/10",
        "1/2/2024 10:00",
        "1" * 99 + "/2 - 1s - 1s/step",
        "12/10 [x] - 1s",
        "Epoch 1/2 done",
    ],
)
def test_what_only_looks_like_a_bar(line):
    assert read([line]) == []


def finished(parts):
    """Return the updates of finished lines when the log comes in `parts`."""
    progress = Fed()
    lines = [update for part in parts for update in progress.feed(part)]
    return epochs(lines), [at for at in lines if at.kind == "print"]


@settings(deadline=None)
@given(st.data())
def test_updates_of_finished_lines_do_not_depend_on_how_bytes_are_cut(data):
    names = ["keras3-fit", "legacy-unknown-length", "loop-0", "legacy-two-workers-0"]
    log = SAMPLES[data.draw(st.sampled_from(names))]
    places = data.draw(st.lists(st.integers(0, len(log)), max_size=30))
    edges = [0, *sorted(places), len(log)]
    parts = [log[a:b] for a, b in itertools.pairwise(edges)]
    assert finished(parts) == finished([log])


@settings(deadline=None)
@given(st.lists(st.text() | st.sampled_from([BAR, LEGACY, "Epoch 1/2", "1/Unknown 1s 1s/step"])))
def test_garbage_never_raises(lines):
    progress = Progress()
    for line in lines:
        progress.line(line)
        progress.write(line, Guard(raised))
