"""Trainings that are disturbed at random: a few of the rounds that `support/matrix.py` plays."""

from __future__ import annotations

from importlib.util import find_spec

import matrix
import pytest

pytestmark = [pytest.mark.usefixtures("nothing_survives"), pytest.mark.slow]

# Ray has an environment of its own, in which only its rounds are played.
ROUNDS = {"ray": (11,)} if find_spec("ray") else {"ssh": (0, 8, 11), "slurm": (6, 11)}


@pytest.mark.parametrize("engine", ROUNDS)
def test_a_disturbed_training_ends_as_an_undisturbed_one(engine):
    with matrix.ready(engine) as (place, folder):
        for number in ROUNDS[engine]:
            chosen = matrix.Round.drawn(f"ci-{number}", place.kinds)
            one = matrix.played(place, folder, chosen)
            assert not one.wrong, one.words()


def test_what_is_drawn_covers_the_table():
    drawn = [matrix.Round.drawn(f"some-{number}", tuple(matrix.KINDS)) for number in range(200)]
    faults = [fault for one in drawn for fault in one.faults]
    assert {one.kind for one in faults} == set(matrix.KINDS)
    assert {one.moment for one in faults} == {*matrix.MOMENTS, "beside", "restart"}
    assert {one.spare for one in drawn} == {one.cold for one in drawn} == {True, False}
