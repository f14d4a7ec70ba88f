"""A cluster's options: what they are, and what they refuse."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from mwmagic.errors import ClusterError
from mwmagic.model.cluster import make_tasks
from mwmagic.model.messages import Start
from mwmagic.model.option import Repeated, read_seconds
from mwmagic.model.options import OPTIONS, ClusterOptions

OTHER = {
    "workers": 3,
    "chief": True,
    "ps": 2,
    "evaluator": True,
    "name": "mine",
    "directory": "/there",
    "framework": "jax",
    "nodes": 2,
    "hosts": ("a", "b"),
    "address": "10.0.0.1:6379",
    "python": "/usr/bin/python3",
    "scheduler": ("--partition=gpu", "-v"),
    "interface": "ib0",
    "files": ("data", "my.py"),
    "lease": 4.0,
    "hold": 60.0,
    "idle": 3600.0,
    "keras": "legacy",
    "devices": 4,
    "gpus": 2,
    "threads": 0,
    "restarts": 5,
    "replace": True,
    "grace": 0.5,
    "stall_timeout": 7.0,
    "on_stall": "restart",
    "tracker": "wandb",
    "env": {"A": "b"},
    "warm": False,
    "preload": ("pandas", "sklearn.datasets"),
    "detach": True,
}
"""Another value for every option that has one."""


def test_there_is_another_value_for_every_option_below():
    assert set(OTHER) == set(OPTIONS) - {"coordinator", "engine"}


def test_options_cross_processes_whole():
    options = ClusterOptions(**OTHER)
    values = json.loads(json.dumps(options.as_json()))
    assert ClusterOptions.from_json(values) == options
    assert ClusterOptions.from_json({**values, "of_a_later_version": 1}) == options
    start = Start(options, env={"PATH": "/bin"}, warm=True)
    assert Start.from_line(start.as_line()) == start
    assert "\n" not in start.as_line()


def test_every_option_is_described():
    for name, option in OPTIONS.items():
        assert option.name == name
        assert option.kind in (bool, int, float, str, tuple, dict)
        assert option.help.endswith("."), name
        assert isinstance(option.repeated, Repeated)
        assert option.check(option.default) == option.default, name
    assert [one.name for one in fields(ClusterOptions)] == list(OPTIONS)


@pytest.mark.parametrize("name", ["grace", "stall_timeout"])
@pytest.mark.parametrize(
    "value", [float("inf"), float("nan"), -1, -0.1, "3", True, None, 10**400, [], b"3"]
)
def test_text_that_is_not_a_time_is_refused(name, value):
    with pytest.raises(ClusterError, match=f"^{name} must be a finite number from 0, not .*; the"):
        ClusterOptions(**{name: value})


@pytest.mark.parametrize("value", ["a,b", b"a", [""], ["a", 2], [" "], 3, None, {"a": 1}.items()])
def test_values_that_are_not_hosts_are_refused(value):
    with pytest.raises(ClusterError, match=r"^hosts must be texts that are not blank, not .*; the"):
        ClusterOptions(hosts=value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("hosts", "a, b", ("a", "b")),
        ("scheduler", "--comment='a b' -v", ("--comment=a b", "-v")),
    ],
)
def test_several_words(name, text, value):
    assert OPTIONS[name].read(text) == value


@pytest.mark.parametrize(("name", "text"), [("hosts", "a,,b"), ("scheduler", "-c 'open")])
def test_what_is_not_several_words(name, text):
    with pytest.raises(ClusterError, match=f"^{name} must be texts that are not blank"):
        OPTIONS[name].read(text)


@pytest.mark.parametrize("name", ["grace", "stall_timeout"])
@pytest.mark.parametrize("text", ["inf", "nan", "1e400", "-1", "", "3s", "-inf"])
def test_what_is_no_time_on_a_line(name, text):
    with pytest.raises(ClusterError, match=f"^{name} must be a finite number from 0, not '{text}'"):
        OPTIONS[name].read(text)
    with pytest.raises(ClusterError, match="is not a number of seconds"):
        read_seconds(text)


@pytest.mark.parametrize("text", ["", "soon", "m", "30M", "30m1h", "-1", "1.5h", "\u0663m", "nan"])
def test_what_is_no_duration_on_a_line(text):
    said = "hold must be a number of seconds from 0, or typed as 90, 30m or 1h30m, not"
    with pytest.raises(ClusterError, match=said):
        OPTIONS["hold"].read(text)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("workers", 1.5, "a whole number from 0"),
        ("ps", "2", "a whole number from 0"),
        ("evaluator", None, "True or False"),
        ("restarts", -1, "a whole number from 0"),
        ("devices", True, "a whole number from 0"),
        ("gpus", -1, "a whole number from 0 or None"),
        ("threads", "2", "a whole number from 0 or None"),
        ("keras", "new", "one of auto, plain, legacy"),
        ("on_stall", None, "one of report, restart|text"),
        ("chief", 1, "True or False"),
        ("detach", "yes", "True or False"),
        ("name", " ", "text that is not blank"),
        ("env", ["A"], "a mapping from the names of variables"),
        ("env", {"A=B": 1}, "a mapping from the names of variables"),
        ("env", {"A": "\0"}, "a mapping from the names of variables"),
    ],
)
def test_what_is_no_value(name, value, said):
    with pytest.raises(ClusterError, match=rf"^{name} must be ({said})"):
        ClusterOptions(**{name: value})


def test_an_error_does_not_repeat_a_long_value():
    with pytest.raises(ClusterError) as error:
        ClusterOptions(name="\0" * 10**6)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("gpus", "none", 0),
        ("gpus", "2", 2),
        ("threads", "auto", None),
        ("threads", "0", 0),
        ("grace", "0", 0.0),
        ("hold", "0", 0.0),
        ("hold", "90", 90.0),
        ("hold", "30m", 1800.0),
        ("hold", "1h30m", 5400.0),
        ("hold", "2h5s", 7205.0),
        ("env", "A=b=c", {"A": "b=c"}),
        ("name", "mine", "mine"),
    ],
)
def test_what_is_read_on_a_line(name, text, value):
    assert OPTIONS[name].read(text) == value


def test_variables_may_be_given_as_numbers():
    assert ClusterOptions(env={"EPOCHS": 3}).env == {"EPOCHS": "3"}


def test_the_tasks_follow_from_the_options():
    options = ClusterOptions(2, chief=True, ps=1)
    assert options.members == make_tasks(2, chief=True, ps=1)


@pytest.mark.parametrize("shape", [{"workers": 0}, {"workers": 0, "chief": True, "ps": 1}])
def test_a_cluster_that_cannot_work(shape):
    with pytest.raises(ClusterError):
        ClusterOptions(**shape)


@pytest.mark.parametrize("more", [{}, {"ps": 1, "chief": True}, {"ps": 1, "evaluator": True}])
def test_a_cluster_that_nobody_can_coordinate(more):
    with pytest.raises(ClusterError, match="coordinator"):
        ClusterOptions(coordinator=True, **more)


@pytest.mark.parametrize("name", sorted(OTHER))
def test_only_what_may_change_is_updated(name):
    options = ClusterOptions()
    if OPTIONS[name].repeated is Repeated.UPDATE:
        assert getattr(options.updated({name: OTHER[name]}), name) == OTHER[name]
    else:
        with pytest.raises(ClusterError, match=f"^{name} cannot be changed while"):
            options.updated({name: OTHER[name]})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpu", "; did you mean gpus? See help(Cluster)"),
        ("stall", "; did you mean stall_timeout? See help(Cluster)"),
        ("evalutor", "; did you mean evaluator? See help(Cluster)"),
        ("colour", "; see help(Cluster)"),
    ],
)
def test_an_option_that_does_not_exist(name, said):
    for refused in (
        lambda: ClusterOptions.declare(**{name: 1}),
        lambda: ClusterOptions().updated({name: 1}),
    ):
        with pytest.raises(ClusterError) as error:
            refused()
        assert str(error.value) == f"there is no option {name}{said}"
