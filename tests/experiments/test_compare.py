"""Runs side by side: what changed, what came of it, and their curves."""

from __future__ import annotations

import base64
import json
import re

import pytest

from mwmagic.cli import main
from mwmagic.dashboard.runs import NotebookComparison
from mwmagic.errors import BadArguments
from mwmagic.experiments.compare import CURVE_POINTS, compare
from mwmagic.experiments.parameters import without_values
from mwmagic.record import RunDirectory, runs
from mwmagic.record.metrics import metric_line
from mwmagic.words.comparison import conclusion, plain

PROGRAM = """units = {units}
config = {{
    "lr": 0.1,
}}
label = "<b>"
{more}
print(units)
"""
BEGAN = 1e9


def entry(task, step, loss, *, attempt=1, steps=10, **more):
    fields = {"task": f"worker:{task}", "attempt": attempt, "source": "report", "kind": "train"}
    fields |= {"epoch": (step - 1) // steps + 1, "steps": steps, "step": (step - 1) % steps + 1}
    return metric_line(**fields, wall=BEGAN + 2 * step, metrics={"loss": loss}, **more)


def record(
    folder, units=64, *, lines=(), more="", losses=(), args=(), given=(), versions=(), **facts
):
    """Write the record of a run."""
    run = RunDirectory.create(folder, "main")
    (run.paths.root / "main.py").write_text(PROGRAM.format(units=units, more=more))
    run.paths.metrics.write_text("".join(f"{line}\n" for line in lines))
    launch = {"script": "main.py", "source": "main.py", "args": list(args), "given": dict(given)}
    best = {name: {"value": value, "attempt": 1, "epoch": 1, "step": 1} for name, value in losses}
    known = {name: {"last": one, "best": one} for name, one in best.items()}
    run.write(
        {
            "state": "finished",
            "started": BEGAN,
            "ended": BEGAN + units,
            "tasks": {"worker:0": {}, "worker:1": {}},
            "launches": {"worker:0": launch},
            "metrics": {"worker:0": known},
            "versions": {"python": "3.12", **dict(versions)},
            **facts,
        }
    )
    run.flush()


def found(folder, *metrics):
    return compare(runs(folder), metrics)


def test_a_sentence_says_which_run_is_best_and_what_it_differs_in(tmp_path):
    record(tmp_path, 64, losses=[("val_loss", 0.31), ("accuracy", 0.8)])
    record(tmp_path, 128, losses=[("val_loss", 0.27), ("accuracy", 0.7)])
    said = "run 2 is best by val_loss (0.27); it differs from run 1 in units"
    assert conclusion(found(tmp_path)) == said
    said = "run 1 is best by accuracy (0.8); it differs from run 2 in units"
    assert conclusion(found(tmp_path, "accuracy")) == said
    record(tmp_path, 128, losses=[("val_loss", 0.27)])
    said = (
        "runs 2 and 3 are equally good by val_loss (0.27); they differ in nothing that is recorded"
    )
    assert conclusion(found(tmp_path)) == said


def test_without_results_it_says_what_differs(tmp_path):
    record(tmp_path, 64)
    record(tmp_path, 64, more="extra = 1", args=["--fast"], versions=[("keras", "3.1")])
    said = "run 2 differs from run 1 in 1 line of code, arguments and the version of keras"
    assert conclusion(found(tmp_path)) == said


def test_what_is_not_known_of_a_run_is_no_difference(tmp_path):
    """A run of a moment ends before its versions are found."""
    record(tmp_path, 64)
    (state,) = tmp_path.glob(".mwmagic/runs/*/run.json")
    state.write_text(state.read_text().replace('"versions"', '"unknown"'))
    record(tmp_path, 64, git={"commit": "a" * 40})
    assert conclusion(found(tmp_path)) == "run 2 differs from run 1 in nothing that is recorded"


def test_a_value_that_is_not_recorded_is_not_taken_for_none(tmp_path):
    reads = "optimizer = os.environ.get('OPTIMIZER', 'sgd')\n"
    record(tmp_path, more=reads, env=["OPTIMIZER"])
    record(tmp_path, more=reads)
    rows = {row.name: row.values for row in found(tmp_path).rows}
    assert rows["OPTIMIZER"] == ("(not recorded)", "sgd")


def test_differences_come_first_and_what_is_the_same_is_one_line(tmp_path):
    record(tmp_path, 64, losses=[("loss", 0.5)])
    record(tmp_path, 128, losses=[("loss", 0.25)])
    assert plain(found(tmp_path)).splitlines()[2:] == [
        "             run 1     run 2",
        "parameters:",
        "  units      64        128",
        "results:",
        "  state      finished  finished",
        "  best loss  0.5       0.25 ★",
        "  took       1:04      2:08",
        "the same in all: config.lr=0.1, label=<b>",
    ]


def test_the_difference_of_code_leaves_out_what_is_a_parameter(tmp_path):
    record(tmp_path, 64)
    record(tmp_path, 128, more="x = len(label)\ny = 2 * x")
    both = found(tmp_path)
    lines = [(one.sign, one.text) for one in both.code(*both.facts)]
    assert lines == [
        *[("@", "line 4"), (" ", "}"), (" ", 'label = "<b>"')],
        *[("-", ""), ("+", "x = len(label)"), ("+", "y = 2 * x"), (" ", "print(units)")],
    ]
    assert without_values("a = 3\nb = (1,\n 2)\nb = a") == "a = 0\nb = (1,\n 2)\nb = a"
    assert without_values("a = = 3") == "a = = 3", "what Python cannot read stays as it is"


def test_code_that_is_gone_is_no_difference_of_lines(tmp_path):
    record(tmp_path, 64)
    record(tmp_path, 128)
    (runs(tmp_path)[0].path / "main.py").unlink()
    found = compare(runs(tmp_path))
    assert found.changes(*found.facts).lines == 0
    assert found.changes(*found.facts).parameters == []
    text = plain(found)
    assert "@ the code of run 1 is not in its record" in text
    assert "lines of code" not in text
    assert "the code of run 1 is not" in NotebookComparison(runs(tmp_path))._repr_html_()


def test_a_variable_that_sets_a_parameter_is_one_change_and_a_secret_stays_one(tmp_path):
    read = "import os\nbatch = int(os.environ.get('BATCH', 8))"
    for batch, key in (("16", "abc"), ("32", "abd"), ("32", "abd")):
        record(tmp_path, more=read, given={"BATCH": batch, "API_KEY": key})
    all_ = found(tmp_path)
    rows = all_.between(*all_.facts[:2])
    assert [(row.kind, row.name) for row in rows] == [
        *[("parameter", "BATCH"), ("variable", "API_KEY")]
    ]
    assert rows[1].values == ("(set) 1", "(set) 2")
    assert "abd" not in plain(all_)
    assert all_.between(*all_.facts[1:]) == []


def test_curves_are_the_mean_of_the_workers_with_their_spread(tmp_path):
    lines = [entry(0, step, 1 / step) for step in range(1, 21)]
    lines += [entry(1, step, 3 / step) for step in range(1, 21) if step % 2]
    for _ in range(2):
        record(tmp_path, lines=lines, losses=[("loss", 0.05)])
    both = found(tmp_path)
    assert both.axes == ["step", "epoch", "seconds"]
    [first, other] = [one for one in both.curves if one.metric == "loss"]
    assert (first.run, other.run) == (1, 2)
    third, fourth, last = (first.points[at] for at in (2, 3, 19))
    assert third == (3.0, 0.3, 6.0, 0.66667, 0.33333, 1.0)
    assert (fourth.low, fourth.high) == (0.25, 0.8), "between two values of the other worker"
    assert (last.step, last.epoch, last.seconds) == (20.0, 2.0, 40.0)
    assert last.low == last.high == last.value, "beyond its last value a worker has none"


def test_what_a_later_attempt_trained_again_replaces_what_was_there(tmp_path):
    lines = [entry(0, step, 1.0) for step in range(1, 16)]
    lines += [entry(0, step, 2.0, attempt=2) for step in range(11, 21)]
    for _ in range(2):
        record(tmp_path, lines=lines)
    points = found(tmp_path).curves[0].points
    assert [one.step for one in points] == [float(step) for step in range(1, 21)]
    assert [one.value for one in points] == [1.0] * 10 + [2.0] * 10


def test_long_runs_and_values_that_are_not_finite_are_drawn_within_bounds(tmp_path):
    lines = [entry(0, step, float("nan") if step == 1 else 1.0) for step in range(1, 2001)]
    for _ in range(2):
        record(tmp_path, lines=lines)
    [curve, *_] = found(tmp_path).curves
    assert len(curve.points) <= CURVE_POINTS
    assert curve.points[0].value is None
    assert curve.points[-1].step == 2000.0
    page = NotebookComparison(runs(tmp_path))._repr_html_()
    assert len(page) < 100_000


def test_runs_without_steps_are_drawn_by_epoch(tmp_path):
    kept = {"task": "worker:0", "attempt": 1, "kind": "report", "source": "report"}
    lines = [metric_line(**kept, epoch=n, wall=BEGAN + n, metrics={"loss": 1.0}) for n in (1, 2, 3)]
    for _ in range(2):
        record(tmp_path, lines=lines, losses=[("loss", 1.0)])
    both = found(tmp_path)
    assert both.axes == ["epoch", "seconds"]
    assert [one.epoch for one in both.curves[0].points] == [1.0, 2.0, 3.0]


def test_a_page_has_a_picture_for_those_without_scripts_and_nothing_is_markup(tmp_path):
    lines = [entry(task, step, 1 / (step + task)) for step in range(1, 9) for task in (0, 1)]
    for units in (64, 128):
        record(
            tmp_path, units, lines=lines, losses=[("loss", 0.1)], more=f"{units} < len('</pre>')"
        )
    page = NotebookComparison(runs(tmp_path))._repr_html_()
    facts = json.loads(re.search(r'"mwmagic-comparison">(.*?)</script>', page)[1])
    assert facts["runs"] == ["run 1", "run 2"]
    assert facts["curves"][0][:2] == [0, "loss"]
    assert len(facts["curves"][0][2][0]) == 6
    static = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "&lt;b&gt;" in static
    assert "&#x27;&lt;/pre&gt;&#x27;" in static
    assert ">parameters</th>" in static
    svg = base64.b64decode(re.search(r"base64,([^\"]*)", static)[1]).decode()
    assert svg.count("fill-opacity") == 2, "a band for each run"
    assert "run 2</text>" in svg


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["1"], "a comparison needs two runs or more"),
        (["1", "7"], "there is no run 7; %mw_runs, or `mwmagic runs`, lists all"),
        (["1", "1"], "run 1 is given twice; leave one out"),
        (["1", "2", "--last", "2"], "give the numbers of runs, or choose with --where and --last"),
        (["--where", "units>64"], "a comparison needs two runs or more"),
        (["--metric", "lss"], "no run here has 'lss': there are loss; did you mean loss?"),
    ],
)
def test_what_cannot_be_compared_is_one_clear_error(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    for units in (32, 64, 128):
        record(tmp_path, units, losses=[("loss", units / 100)])
    assert main(["compare", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_shell_compares_the_last_two_or_those_that_are_chosen(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for units in (32, 64, 128):
        record(tmp_path, units, losses=[("loss", units / 100)])
    chosen = {(): [2, 3], ("3", "1"): [3, 1], ("--where", "units<100"): [1, 2]}
    for words, numbers in chosen.items():
        assert main(["compare", *words]) == 0
        heads = capsys.readouterr().out.splitlines()[2]
        assert heads.split() == ["run", str(numbers[0]), "run", str(numbers[1])]


def test_too_many_runs_are_refused(tmp_path):
    for _ in range(25):
        RunDirectory.create(tmp_path, "main")
    with pytest.raises(BadArguments, match="25 runs are too many to compare; choose 24 at most"):
        found(tmp_path)
