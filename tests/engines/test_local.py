"""The engines by name, and the local one."""

from __future__ import annotations

import asyncio
from importlib import metadata

import pytest

from mwmagic.engines import ENGINES, GROUP, LocalEngine, engine_for, engine_names
from mwmagic.errors import ClusterError
from mwmagic.model.cluster import make_tasks
from mwmagic.model.options import ClusterOptions


def declared(engine):
    return ClusterOptions(directory="/", engine=engine)


def test_an_engine_is_found_by_its_name():
    options = declared("local")
    engine = engine_for(options)
    assert isinstance(engine, LocalEngine)
    assert engine.options is options
    with pytest.raises(ClusterError, match=f"unknown engine 'cloud'; .* {', '.join(ENGINES)}"):
        engine_for(declared("cloud"))


def test_an_engine_refuses_the_options_that_it_would_ignore():
    options = ClusterOptions(directory="/", hosts=["a"])
    with pytest.raises(ClusterError, match="the engine 'local' does not take --hosts"):
        engine_for(options)


def test_another_package_adds_an_engine(monkeypatch):
    here = metadata.EntryPoint("cloud", f"{__name__}:Cloud", GROUP)
    lost = metadata.EntryPoint("gone", "no_such_package:Engine", GROUP)
    points = metadata.EntryPoints([here, lost])
    monkeypatch.setattr(metadata, "entry_points", points.select)
    assert engine_names() == [*ENGINES, "cloud", "gone"]
    assert engine_for(declared("cloud")).options.engine == "cloud"
    with pytest.raises(ClusterError, match=r"'gone' \(no_such_package:Engine\) cannot be"):
        engine_for(declared("gone"))


class Cloud(LocalEngine):
    """What another package might have."""


def test_all_tasks_share_this_machine():
    engine = LocalEngine(declared("local"))
    hosts = asyncio.run(engine.allocate(make_tasks(3), avoid={"localhost"}, notify=print))
    [host] = hosts
    assert (host.name, host.address, host.slots) == ("localhost", "localhost", None)
    assert host.here
    assert host.shared
