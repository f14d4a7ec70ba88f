"""What a repeated declaration does: reuse, update or replace."""

from __future__ import annotations

import pytest
from test_options import OTHER

from mwmagic.errors import ClusterError
from mwmagic.model.option import Repeated
from mwmagic.model.options import OPTIONS, ClusterOptions, Outcome, repeat

DEFAULTS = {"framework": "tensorflow", "restarts": 0, "grace": 3.0, "warm": True, "name": "c"}
TWO = ClusterOptions(2)
SERVED = ClusterOptions(2, ps=1)
REUSE, UPDATE, REPLACE = Outcome

TABLE = [
    # running, typed, outcome, what changes
    (TWO, {}, REUSE, {}),
    (TWO, {"workers": 2}, REUSE, {}),
    (TWO, {"workers": 3}, REPLACE, {"workers": 3}),
    (TWO, {"workers": 2, "detach": True}, UPDATE, {"detach": True}),
    (TWO, {"detach": True}, UPDATE, {"detach": True}),
    (TWO, {"workers": 2, "env": {"A": "b"}}, UPDATE, {"env": {"A": "b"}}),
    (TWO, {"workers": 2, "stall_timeout": 5.0}, UPDATE, {"stall_timeout": 5.0}),
    (TWO, {"on_stall": "restart"}, UPDATE, {"on_stall": "restart"}),
    (TWO, {"restarts": 3, "grace": 1.0}, UPDATE, {"restarts": 3, "grace": 1.0}),
    (TWO, {"restarts": 0}, REUSE, {}),
    (TWO, {"warm": False}, REPLACE, {"warm": False}),
    (TWO, {"workers": 2, "warm": False}, REPLACE, {"warm": False}),
    (TWO, {"chief": True, "ps": 2}, REPLACE, {"chief": True, "ps": 2}),
    (TWO, {"workers": 2, "framework": "jax"}, REPLACE, {"framework": "jax"}),
    (TWO, {"framework": "tensorflow"}, REUSE, {}),
    # With a number of workers the whole cluster is described: what is left out has its default.
    (SERVED, {"workers": 2}, REPLACE, {"ps": 0}),
    (SERVED, {"workers": 2, "ps": 1}, REUSE, {}),
    (SERVED, {}, REUSE, {}),
    (SERVED, {"evaluator": True}, REPLACE, {"evaluator": True}),
    (ClusterOptions(2, framework="jax"), {"workers": 2}, REPLACE, {"framework": "tensorflow"}),
    (ClusterOptions(2, framework="jax"), {"detach": True}, UPDATE, {"detach": True}),
    # But nothing is taken back for not being typed again.
    (ClusterOptions(2, detach=True), {"workers": 2}, REUSE, {}),
    (ClusterOptions(2, warm=False), {"workers": 2}, REUSE, {}),
    (ClusterOptions(2, restarts=3, grace=1.0), {"workers": 2}, REUSE, {}),
    (ClusterOptions(2, env={"A": "b"}), {"workers": 2}, REUSE, {}),
    (ClusterOptions(2, env={"A": "b"}), {"env": {"C": "d"}}, UPDATE, {"env": {"A": "b", "C": "d"}}),
    (ClusterOptions(2, env={"A": "b"}), {"workers": 2, "env": {"A": "b"}}, REUSE, {}),
]


@pytest.mark.parametrize(("running", "typed", "outcome", "changes"), TABLE)
def test_what_a_repeated_declaration_does(running, typed, outcome, changes):
    found = repeat(running, typed, DEFAULTS, DEFAULTS)
    assert found.outcome is outcome
    assert {change.name: change.new for change in found.changes} == changes
    assert all(getattr(running, change.name) == change.old for change in found.changes)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", sorted(OTHER))
def test_whatever_was_typed_holds_afterwards(name, whole):
    typed = {**({"workers": 2} if whole else {}), name: OTHER[name]}
    found = repeat(TWO, typed, DEFAULTS, DEFAULTS)
    if OPTIONS[name].repeated is Repeated.IGNORED:
        assert (found.outcome, getattr(found.options, name)) == (REUSE, getattr(TWO, name))
    else:
        assert getattr(found.options, name) == OTHER[name]
        assert [change.name for change in found.changes] == [name]
        assert (found.outcome is UPDATE) is (OPTIONS[name].repeated is Repeated.UPDATE)


def test_a_new_cluster_has_what_was_typed_and_the_defaults_of_the_session():
    running = ClusterOptions(2, restarts=3, env={"A": "b"}, name="c", directory="/d")
    options = repeat(running, {"workers": 3, "grace": 1.0}, {**DEFAULTS, "restarts": 1}, {}).options
    assert options == ClusterOptions(3, restarts=1, grace=1.0, name="c", directory="/d")


def test_without_a_number_of_workers_a_new_cluster_has_the_rest_of_the_old_one():
    running = ClusterOptions(2, restarts=3, env={"A": "b"}, detach=True)
    options = repeat(running, {"ps": 1, "env": {"C": "d"}}, DEFAULTS, {}).options
    assert options == ClusterOptions(2, ps=1, restarts=3, env={"A": "b", "C": "d"}, detach=True)


CONFIGURED = [
    # running, typed, defaults before, defaults now, outcome and what changes
    (TWO, {"workers": 2}, {}, {"restarts": 3}, (UPDATE, {"restarts": 3})),
    (TWO, {"workers": 2}, {"restarts": 3}, {"restarts": 3}, (REUSE, {})),
    (TWO, {"workers": 2, "restarts": 1}, {}, {"restarts": 3}, (UPDATE, {"restarts": 1})),
    (TWO, {"workers": 2}, {"restarts": 3}, {}, (REUSE, {})),
    (ClusterOptions(2, restarts=3), {"workers": 2}, {"restarts": 3}, {}, (UPDATE, {"restarts": 0})),
    (TWO, {"workers": 2}, {}, {"warm": False}, (REPLACE, {"warm": False})),
    (TWO, {"workers": 2}, {}, {"name": "other"}, (REUSE, {})),
    # Without a number of workers only what was typed changes.
    (TWO, {}, {}, {"restarts": 3}, (REUSE, {})),
    (TWO, {"detach": True}, {}, {"warm": False}, (UPDATE, {"detach": True})),
]


@pytest.mark.parametrize(("running", "typed", "before", "now", "expected"), CONFIGURED)
def test_a_default_that_changed_since_counts_as_typed(running, typed, before, now, expected):
    found = repeat(running, typed, {**DEFAULTS, **now}, {**DEFAULTS, **before})
    assert (found.outcome, {one.name: one.new for one in found.changes}) == expected


def test_defaults_are_checked_when_they_are_used():
    with pytest.raises(ClusterError, match="grace must be a finite number from 0, not inf"):
        repeat(TWO, {"workers": 3}, {**DEFAULTS, "grace": float("inf")}, {})
