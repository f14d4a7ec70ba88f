"""Every engine held to what engines must do."""

from __future__ import annotations

import asyncio

import pytest

from mwmagic.engines import ENGINES, engine_for
from mwmagic.model.options import ClusterOptions
from mwmagic.testing import FakeEngine, FakeMachine
from mwmagic.testing.conformance import CHECKS, Subject, perform

pytestmark = pytest.mark.usefixtures("nothing_survives")


def local(folder):
    options = ClusterOptions(directory=str(folder))
    return Subject(lambda: engine_for(options), str(folder))


def three(folder, **options):
    """Three machines: clocks that differ, disks of their own, one of them far away."""
    machines = [
        FakeMachine("near", shared=False, clock=-4000, **options),
        FakeMachine("far", shared=False, clock=5e6, delay=0.002, gpus=2, **options),
        FakeMachine("spare", shared=False, **options),
    ]
    named = {machine.name: machine for machine in machines}
    return Subject(
        lambda: FakeEngine(machines, perform),
        str(folder),
        lose=lambda host, _: named[host.name].lose(),
        network=False,
    )


SUBJECTS = {"local": local, "fake": three}


def test_every_engine_is_tried():
    assert set(ENGINES) <= set(SUBJECTS)


@pytest.mark.parametrize("make", SUBJECTS.values(), ids=SUBJECTS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_an_engine_conforms(check, make, tmp_path):
    asyncio.run(asyncio.wait_for(check(make(tmp_path)), 60))
