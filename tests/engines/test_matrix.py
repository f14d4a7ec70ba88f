"""Trainings that are disturbed at random: a few of the rounds that `support/matrix.py` plays."""

from __future__ import annotations

from importlib.util import find_spec

import matrix
import pytest

pytestmark = [pytest.mark.usefixtures("nothing_survives"), pytest.mark.slow]

# Ray has an environment of its own, in which only its rounds are played.
# Their workers wait for each other for long, as the machine may be busy.
ROUNDS = {"ray": (7,)} if find_spec("ray") else {"ssh": (10, 33), "slurm": (7, 35)}


def apart():
    """Return a round in which two workers lose each other."""
    cut = matrix.Fault("cut between", "step", victim=1, step=10, seconds=12.0)
    return matrix.Round("apart", "plain", 2, spare=True, patience=6.0, cold=True, faults=[cut])


def lossy():
    """Return a round in which the leader's host loses a fifth of all packets."""
    loss = matrix.Fault("loss", "step", victim=0, step=10, seconds=12.0, degree=0.2)
    return matrix.Round("lossy", "plain", 2, spare=True, patience=2.0, cold=True, faults=[loss])


@pytest.mark.parametrize("engine", ROUNDS)
def test_a_disturbed_training_ends_as_an_undisturbed_one(engine):
    with matrix.ready(engine) as (place, folder):
        kinds = matrix.happening(place)
        rounds = [matrix.Round.drawn(f"ci-{number}", kinds) for number in ROUNDS[engine]]
        for one in [*rounds, *([apart(), lossy()] if engine == "ssh" else [])]:
            one.patience, one.steps = max(one.patience, 6.0), min(one.steps, 25)
            matrix.played(place, folder, one)
            assert not one.wrong, (one.words(), one.wrong)


def test_what_is_drawn_covers_the_table():
    drawn = [matrix.Round.drawn(f"some-{number}", tuple(matrix.KINDS)) for number in range(200)]
    faults = [fault for one in drawn for fault in one.faults]
    assert {one.kind for one in faults} == set(matrix.KINDS)
    assert {one.moment for one in faults} == {*matrix.MOMENTS, "beside", "restart"}
    assert {one.spare for one in drawn} == {one.cold for one in drawn} == {True, False}
    assert {one.program for one in drawn} == set(matrix.PROGRAMS)
