"""One option, told once: every place that shows it takes it from its declaration."""

from __future__ import annotations

import argparse
import inspect

import pytest
from traitlets import TraitError

from docs.pages import magics
from mwmagic import Cluster
from mwmagic.cli import main, parser
from mwmagic.client.arguments import choices, typed
from mwmagic.errors import BadArguments, WaitInterrupted
from mwmagic.frameworks import FRAMEWORKS
from mwmagic.magics import magic
from mwmagic.magics.cluster import mw_cluster
from mwmagic.magics.extension import CONFIGURABLE, MWMagic
from mwmagic.magics.magic import NAMES, find
from mwmagic.model.option import Repeated
from mwmagic.model.options import OPTIONS


def flags(option):
    return [*(option.flags or [f"--{option.name.replace('_', '-')}"])]


def command_line():
    [commands] = [one for one in parser()._actions if isinstance(one, argparse._SubParsersAction)]
    return commands.choices["run"]


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS)
def test_an_option_is_everywhere_it_belongs(option):
    shown = inspect.signature(Cluster).parameters[option.name]
    assert (shown.default, shown.annotation) == (option.default, option.annotation)
    text = " ".join(inspect.getdoc(Cluster).split())
    assert f"{option.name} : " in text
    # The docstring's lines may be broken at a hyphen.
    assert option.help.replace(" ", "") in text.replace(" ", "")
    in_magic = set(mw_cluster.parser._option_string_actions)
    own = {"workers"} if option.name == "workers" else set()
    if option.notebook and not own:
        assert set(flags(option)) <= in_magic
        assert f"`{flags(option)[-1]}" in magics()
    else:
        assert not set(flags(option)) & in_magic
    assert (flags(option)[-1] in command_line()._option_string_actions) is option.command


@pytest.mark.parametrize("option", CONFIGURABLE.values(), ids=CONFIGURABLE)
def test_a_default_of_the_session_is_a_trait(option):
    trait = MWMagic.class_traits(config=True)[option.name]
    assert (trait.default(), trait.help) == (option.default, option.help)
    assert f"| `MWMagic.{option.name}` | `{option.default!r}` | {option.help} |" in magics()
    with pytest.raises(TraitError):
        trait._validate(None, object())


def test_what_was_not_typed_is_not_there():
    assert typed(mw_cluster.parser.read("")) == {}
    assert typed(mw_cluster.parser.read("2")) == {"workers": 2}
    line = "2 --chief --no-warm --gpus none --threads auto --grace 1 --env A=b --env C=d=e"
    assert typed(mw_cluster.parser.read(line)) == {
        "workers": 2,
        "chief": True,
        "warm": False,
        "gpus": 0,
        "threads": None,
        "grace": 1.0,
        "env": {"A": "b", "C": "d=e"},
    }


@pytest.mark.parametrize("flag", ["--grace", "--stall-timeout"])
@pytest.mark.parametrize("text", ["inf", "nan", "1e400", "-1", "soon"])
def test_what_is_no_time_is_refused_by_magics_and_command_line(flag, text, capsys):
    name = flag[2:].replace("-", "_")
    said = f"{name} must be a finite number from 0, not '{text}'"
    with pytest.raises(BadArguments, match=said):
        mw_cluster.parser.read(f"2 {flag}={text}")
    with pytest.raises(SystemExit):
        main(["run", f"{flag}={text}", "main.py"])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("magic", "line"),
    [
        ("mw_stop", "--grace=inf"),
        ("mw_wait", "--timeout=nan"),
        ("mw_logs", "--tail=-1"),
        ("mw_logs", "--tail=1.5"),
        ("mw_logs", "--run=-1"),
        ("mw_logs", "--attempt=-1"),
        ("mw_show", "-1"),
        ("mw_worker", "--index=-1"),
        ("mw_worker", "--timeout=1e400"),
        ("mw_worker", "--restarts=-1"),
        ("mw_worker", "--env A"),
    ],
)
def test_other_magics_refuse_it_too(magic, line):
    [written] = [one for one in NAMES if one.lstrip("%") == magic]
    with pytest.raises(BadArguments):
        find(written).parser.read(line)


@pytest.mark.parametrize("flag", ["--tail", "--run", "--attempt"])
def test_the_command_that_shows_logs_refuses_it_too(flag, capsys):
    with pytest.raises(SystemExit):
        main(["logs", f"{flag}=-1"])
    assert f"argument {flag}: '-1' is not a whole number from 0" in capsys.readouterr().err


def test_frameworks_are_those_that_are_known(monkeypatch):
    assert choices(OPTIONS["framework"]) == list(FRAMEWORKS)
    assert mw_cluster.parser.expected(["2", "--keras"]).choices == ["auto", "plain", "legacy"]
    with pytest.raises(BadArguments, match="invalid choice: 'caffe'"):
        mw_cluster.parser.read("2 --framework caffe")


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("2 --gpu 1", "--gpu 1; did you mean --gpus?"),
        ("2 --restart=1", "--restart=1; did you mean --restarts?"),
        ("2 --evalutor --gpsu", "--evalutor --gpsu; did you mean --evaluator and --gpus?"),
        ("--workers 2", "--workers; did you mean N without a flag?"),
        ("2 --wrok", "--wrok"),
        ("2 3", "3"),
    ],
)
def test_an_unknown_option_is_refused_with_the_one_that_was_meant(line, meant):
    with pytest.raises(BadArguments) as refused:
        mw_cluster.parser.read(line)
    assert str(refused.value) == (
        f"%mw_cluster: unrecognized arguments: {meant}\n`%mw_cluster --help` lists what it takes"
    )


def test_a_default_is_shown_as_people_read_it():
    shown = " ".join(mw_cluster.parser.format_help().split())
    assert "such as 12h; a day by default, and 0 waits for ever." in shown
    assert "86400" not in shown


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("%mw_wait 30", "30; did you mean --timeout 30?"),
        ("%mw_wait soon", "soon"),
        ("%%mw_worker main.py --wait", "main.py; did you mean --file main.py?"),
        ("%%mw_worker 1", "1; did you mean --index 1?"),
        ("%%mw_live 1", "1; did you mean --index 1?"),
        ("%%mw_live 0,worker:1", "0,worker:1; did you mean --tasks 0,worker:1?"),
    ],
)
def test_a_value_without_its_option_is_refused_with_the_option(line, meant):
    name, _, rest = line.partition(" ")
    with pytest.raises(BadArguments) as refused:
        find(name).parser.read(rest)
    assert str(refused.value) == (
        f"{name}: unrecognized arguments: {meant}\n`{name} --help` lists what it takes"
    )


def test_a_run_that_is_named_by_a_flag_is_refused_with_how_to_name_it():
    with pytest.raises(BadArguments, match="--run 1; did you mean RUN without a flag\\?"):
        find("%mw_export").parser.read("script --run 1")


def test_ctrl_c_while_a_magic_is_imported_says_that_it_did_nothing(monkeypatch):
    def pressed(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(magic, "find", pressed)
    with pytest.raises(WaitInterrupted) as told:
        magic.Entry("%mw_cluster", object)("2")
    assert str(told.value) == (
        "%mw_cluster was interrupted before it began, and did nothing; run the cell again"
    )
    assert told.value.__suppress_context__


def test_every_magic_says_what_it_does():
    for written in NAMES:
        one = find(written)
        assert one.parser.prog == written
        assert one.parser.description.endswith(".")
        assert all(action.help for action in one.parser._actions)
        assert one.parser.format_help()


def test_only_what_names_the_cluster_is_ignored():
    ignored = [name for name, one in OPTIONS.items() if one.repeated is Repeated.IGNORED]
    assert ignored == ["name", "directory"]


def test_what_follows_two_dashes_is_the_schedulers():
    line = "8 --engine slurm --scheduler '--qos a' -- --partition=gpu -- '--comment=a b' --nodes 3"
    given = mw_cluster.parser.read(line)
    assert typed(given)["scheduler"] == (
        *("--qos", "a", "--partition=gpu", "--", "--comment=a b"),
        *("--nodes", "3"),
    )
    assert "nodes" not in typed(given)
