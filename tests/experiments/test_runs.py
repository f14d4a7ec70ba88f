"""The table of runs: what differs, what is best, and what a filter chooses."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest

import mwmagic
from mwmagic.cli import main
from mwmagic.dashboard.runs import NotebookTable
from mwmagic.errors import BadArguments
from mwmagic.experiments.filters import Filter
from mwmagic.experiments.runs import best_first, differing, facts_of, usual_metrics
from mwmagic.record import RunDirectory, runs, runs_below
from mwmagic.words.table import RunTable

PROGRAM = "units = {units}\nlr = 0.1\nopt = {{'decay': 0.5}}\nbatch = int(os.getenv('BATCH', 8))\n"


def reached(value):
    return {"value": value, "attempt": 1, "epoch": 1, "step": 1}


def record(folder, units=64, *, state="finished", args=(), env=(), given=(), more="", **metrics):
    """Write the record of a run."""
    run = RunDirectory.create(folder, "main")
    (run.paths.root / "main.py").write_text(PROGRAM.format(units=units) + more)
    launch = {"script": "main.py", "source": "main.py", "args": list(args), "given": dict(given)}
    known = {name: {"last": reached(last), "best": reached(best)}
             for name, (last, best) in metrics.items()}  # fmt: skip
    run.write(
        {
            "state": state,
            "started": 1e9,
            "ended": 1e9 + (units if isinstance(units, int) else 1),
            "tasks": {"worker:0": {}, "worker:1": {}},
            "launches": {"worker:0": launch, "worker:1": launch},
            "env": [*env],
            "metrics": {"worker:0": known, "worker:1": {}},
        }
    )
    run.flush()


@pytest.fixture
def three(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record(tmp_path, 64, val_loss=(0.31, 0.3), loss=(0.2, 0.2), accuracy=(0.9, 0.9))
    record(tmp_path, 128, val_loss=(0.27, 0.27), loss=(0.1, 0.1), accuracy=(0.95, 0.95))
    record(tmp_path, 32, state="stopped")
    return tmp_path


def test_the_facts_of_a_record(three):
    first = facts_of(runs(three)[0])
    assert (first.number, first.name, first.state, first.seconds) == (1, "main", "finished", 64.0)
    assert first.parameters == {"units": 64, "lr": 0.1, "opt.decay": 0.5, "BATCH": 8}
    assert (first.last["val_loss"], first.best["val_loss"]) == (0.31, 0.3)


def test_a_variable_that_was_not_given_is_not_guessed(tmp_path):
    record(tmp_path, env=["BATCH"])
    record(tmp_path, env=["BATCH"], given={"BATCH": "16"})
    hidden, given = map(facts_of, runs(tmp_path))
    assert "BATCH" not in hidden.parameters
    assert given.parameters["BATCH"] == 16


def test_only_what_differs_has_a_column(three):
    facts = [facts_of(one) for one in runs(three)]
    other, same = differing(facts)
    assert (other, same) == (["units"], {"lr": 0.1, "opt.decay": 0.5, "BATCH": 8})
    assert usual_metrics(facts) == ["val_loss", "accuracy"]
    assert [one.number for one in best_first(facts, "val_loss")] == [2, 1, 3]
    assert [one.number for one in best_first(facts, "accuracy")] == [2, 1, 3]


def test_the_table_shows_what_a_reader_asks_first(three):
    lines = repr(RunTable(runs(three))).splitlines()
    assert lines[0].split() == [*("run", "began", "took", "state", "units", "val_loss", "accuracy")]
    assert lines[1].split()[-6:] == ["finished", "64", "0.31", "(best", "0.3)", "0.9"]
    assert lines[3].split()[-2:] == ["stopped", "32"]
    assert lines[4] == "the same in all: program=main, tasks=2, lr=0.1, opt.decay=0.5, BATCH=8"


def numbers(table):
    return [one.number for one in table]


def test_runs_are_chosen_and_sorted(three):
    every = runs(three)
    assert numbers(RunTable(every, where="units>=64 and state==finished")) == [1, 2]
    assert numbers(RunTable(every, where="not (units<64 or val_loss<0.3)")) == [1]
    assert numbers(RunTable(every, where="opt.decay==0.5 and decay=0.5", last=2)) == [2, 3]
    assert numbers(RunTable(every, where="state==finished", last=2)) == [1, 2]
    assert numbers(RunTable(every, sort="units")) == [3, 1, 2]
    assert numbers(RunTable(every, sort="took", reverse=True)) == [2, 1, 3]
    assert numbers(RunTable(every, sort="val_loss")) == [2, 1, 3], "those without it come last"
    assert numbers(RunTable(every, best="accuracy")) == [2, 1, 3]
    assert repr(RunTable(every, where="units>1000")) == "no run matches the filter"
    assert RunTable(every, where="units>1").metrics == ["val_loss", "accuracy"]
    assert RunTable(every, metrics=["loss"]).metrics == ["loss"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"where": "unit>1"}, "no run here has 'unit': there are .*; did you mean units?"),
        ({"where": "units>"}, "cannot be read at its end: write comparisons as"),
        ({"where": "units"}, "cannot be read at its end"),
        ({"where": "(units>1"}, r"as a \) is missing"),
        ({"where": "units>1 units<2"}, "cannot be read at 'units'"),
        ({"where": "units>'1"}, 'cannot be read at "\'1"'),
        ({"where": "(" * 99}, "nested too deep"),
        ({"sort": "lerning"}, "no run here has 'lerning': there are "),
        ({"best": "f1"}, "no run here has 'f1'"),
        ({"metrics": ["f1"]}, "no run here has 'f1'"),
        ({"best": "units"}, "units is not a metric: the metrics are accuracy, loss, val_loss"),
        ({"metrics": ["state"]}, "state is not a metric"),
        ({"best": "loss", "sort": "units"}, "--sort and --best both set the order: leave one out"),
    ],
)
def test_what_cannot_be_shown_is_one_clear_error(three, options, said):
    with pytest.raises(BadArguments, match=said):
        RunTable(runs(three), **options)


def test_a_filter_compares_what_can_be_compared():
    assert Filter("name=='a b' or n!=1")({"name": "a b"})
    assert not Filter("n<text")({"n": 1})
    assert Filter("n!=text")({"n": 1})
    assert not Filter("n!=text")({}), "what a run lacks is not compared"
    assert Filter("flag==true and x==none and y==1e-3")({"flag": True, "x": None, "y": 0.001})
    assert Filter("sizes=='[1, 2]'")({"sizes": [1, 2]})
    assert Filter("sizes==[1,2] and (names==[a, b])")({"sizes": [1, 2], "names": ["a", "b"]})
    assert Filter("name==5 and other!=5")({"name": "5", "other": "6"}), "what looks like a number"


def test_a_shell_prints_the_table_for_people_and_for_programs(three, capsys):
    assert main(["runs", "--best", "val_loss", "--last", "2"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:3]] == ["2", "3"]
    assert main(["runs", "--json", "--where", "units==64"]) == 0
    [one] = json.loads(capsys.readouterr().out)
    assert (one["number"], one["parameters"]["units"]) == (1, 64)
    assert one["best"] == {"val_loss": 0.3, "loss": 0.2, "accuracy": 0.9}
    assert main(["runs", "--csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["units"] for row in rows] == ["64", "128", "32"]
    assert [row["best val_loss"] for row in rows] == ["0.3", "0.27", ""]
    assert main(["runs", "--where", "unit==64"]) == 2
    assert "did you mean units?" in capsys.readouterr().err


def test_a_parameter_named_like_a_metric_or_a_fact_has_a_dot(tmp_path, monkeypatch, capsys):
    record(tmp_path, 64, loss=(0.2, 0.1), more="loss = 'mse'\ntasks = 7\n")
    record(tmp_path, 32, more="loss = 'mae'\ntasks = 8\n")
    monkeypatch.chdir(tmp_path)
    for chosen in ("loss<0.5", ".loss==mse", ".tasks==7 and tasks==2"):
        assert [one.number for one in RunTable(runs(tmp_path), where=chosen)] == [1], chosen
    assert [one.number for one in RunTable(runs(tmp_path), where=".loss==mae")] == [2]
    assert main(["runs", "--csv"]) == 0
    row, _ = csv.DictReader(capsys.readouterr().out.splitlines())
    assert [row[name] for name in ("loss", ".loss", "tasks", ".tasks")] == ["0.2", "mse", "2", "7"]
    frame = mwmagic.runs(tmp_path, frame=True)
    assert list(frame[".loss"]) == ["mse", "mae"]
    assert frame["loss"][0] == 0.2


def test_each_column_has_a_name_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for at in (1, 2):
        more = f"tags = {at}\nscore = {at}\ntext = 'a\\n{at}'\n"
        record(tmp_path, more=more, score=(1.0, 0.5))
    table = RunTable(runs(tmp_path), where=".score>=1 and .tags<=2")
    names = [one.name for one in table.columns()[0]]
    assert len({*names}) == len(names)
    assert {".score", ".tags"} < {*names}
    assert len(repr(table).splitlines()) == 4, "a text of two lines stands in one"


def test_what_is_the_same_in_all_is_so_in_all_programs(three):
    facts = [facts_of(one) for one in runs(three)]
    other = replace(facts[0], name="other", parameters={})
    assert differing([facts[0], other]) == ([], {})
    none = replace(facts[0], parameters={})
    assert differing([facts[0], none]) == ([*facts[0].parameters], {})
    lost = replace(none, readable=False)
    assert differing([facts[0], lost])[1] == facts[0].parameters, "its code is lost"


@pytest.mark.parametrize("lost", [False, True])
def test_what_one_run_lacks_is_not_the_same_in_all(tmp_path, monkeypatch, lost):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        record(tmp_path)
    source = runs(tmp_path)[1].path / "main.py"
    source.unlink() if lost else source.write_text("print('no parameter')\n")
    [same] = [one for one in repr(RunTable(runs(tmp_path))).splitlines() if "the same" in one]
    assert ("lr=0.1" in same) == lost


def test_a_parameter_that_is_printed_is_no_result(three):
    printed = replace(facts_of(runs(three)[0]), best={"lr": 0.1, "score": 1.0})
    assert usual_metrics([printed]) == ["score"]


def test_runs_that_lack_what_sorts_come_last_in_either_order(three):
    for reverse, order in ((False, [2, 1, 3]), (True, [1, 2, 3])):
        table = RunTable(runs(three), sort="val_loss", reverse=reverse)
        assert [one.number for one in table] == order


def test_the_runs_of_folders_below_are_in_one_table(three, capsys):
    record(three / "other/deep", 256, loss=(0.3, 0.3))
    record(three / ".hidden", 512)
    assert main(["runs", "--all"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["folder", "run"]
    assert [row.split()[:2] for row in rows if row[0] in ".o"] == [
        [".", "1"],
        [".", "2"],
        [".", "3"],
        ["other/deep", "1"],
    ]
    assert main(["runs", "--all", "--csv", "--last", "2", "--where", "folder~deep"]) == 0
    [row] = csv.DictReader(capsys.readouterr().out.splitlines())
    assert (row["folder"], row["units"]) == ("other/deep", "256")
    assert main(["runs", "--all", "--sort", "folder", "--reverse", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)[0]
    assert first["directory"] == str(three / "other/deep/.mwmagic/runs/0001-main")
    page = NotebookTable(runs_below(three), folder=three)._repr_html_()
    assert "other/deep" in page


def test_a_folder_without_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["runs", "--where", "units>1", "--sort", "x"]) == 0
    assert capsys.readouterr().out == "no runs are recorded here\n"
