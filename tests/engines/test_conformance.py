"""Every engine held to what engines must do."""

from __future__ import annotations

import asyncio

import pytest
from fakes import FakeEngine, FakeMachine
from fakes.conformance import CHECKS, Subject, perform

from mwmagic.engines import ENGINES, engine_for
from mwmagic.model.options import ClusterOptions

pytestmark = pytest.mark.usefixtures("nothing_survives")


def declared(folder, **options):
    """Return what an engine of this package provides."""
    options = ClusterOptions(directory=str(folder), **options)
    return Subject(lambda: engine_for(options), str(folder))


def local(folder, _):
    return declared(folder)


def ssh(folder, request):
    lab = request.getfixturevalue("lab")
    words = ["-F", str(lab.config)]
    seen = lab.folder / folder.name  # on every host, unlike the tests' folders
    seen.mkdir()
    return declared(seen, engine="ssh", hosts=lab.names, scheduler=words)


def command(folder, request):
    """A command that enters the network of a host."""
    lab = request.getfixturevalue("lab")
    hosts = [f"{host.name}={host.address}" for host in lab.hosts]
    words = ["nsenter", "--net=/run/netns/{host}", "--", "{python}", "-"]
    return declared(folder, engine="command", hosts=hosts, scheduler=words)


def plain(folder, _):
    """A command that needs no machine but this one."""
    hosts = ["localhost", "127.0.0.1"]
    return declared(folder, engine="command", hosts=hosts, scheduler=["{python}", "-"])


def three(folder, _, **options):
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


SUBJECTS = {"local": local, "fake": three, "ssh": ssh, "command": command, "plain": plain}

SLOW = {"ssh", "command"}
"""They need hosts, which all tests of this file share."""

EACH = [
    pytest.param(make, id=name, marks=[pytest.mark.slow] if name in SLOW else [])
    for name, make in SUBJECTS.items()
]


def test_every_engine_is_tried():
    # In test_slurm.py, since a network has room for one kind of daemon, and in test_ray.py.
    elsewhere = {"slurm", "ray"}
    assert set(ENGINES) <= set(SUBJECTS) | elsewhere


@pytest.mark.parametrize("make", EACH)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_an_engine_conforms(check, make, tmp_path, request):
    asyncio.run(asyncio.wait_for(check(make(tmp_path, request)), 60))
