"""Values between a notebook and live interpreters: on this machine, and on others."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

from mwmagic import Cluster
from mwmagic.client.live import session
from mwmagic.errors import BadArguments, WorkerFailed
from mwmagic.worker.live import parcel

pytestmark = pytest.mark.slow

RANK = "import os; rank = int(os.environ['MWMAGIC_TASK'][-1])"

COMMANDS = {
    "shared disk": ["env", "{python}", "-"],
    "own disk": ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"'],
}
"""How the agent is started on what counts as another machine; the second one needs root."""


@pytest.fixture(scope="module", params=["here", *COMMANDS])
def live(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("live")
    options = {}
    if request.param != "here":
        options = {"engine": "command", "hosts": ["far=127.0.0.1"]}
        options["scheduler"] = COMMANDS[request.param]
    if request.param == "own disk":
        options["scheduler"] = [*options["scheduler"], str(folder), "{python}", "-"]
    with (
        Cluster(2, directory=folder, warm=False, grace=1.0, **options) as cluster,
        cluster.live() as live,
    ):
        live.run(RANK)
        yield live


@pytest.fixture(autouse=True)
def _nothing_is_left(live):
    yield
    shelves = [Path(live.process.directory, "attempt-1"), session.MEMORY]
    left = [path.name for shelf in shelves for path in shelf.glob("*values*")]
    assert not left + [path.name for path in session.MEMORY.glob(f"mwmagic-{os.getpid()}-*")]
    beside = "os.listdir(os.path.dirname(os.environ['MWMAGIC_FAILURE_REPORT']))"
    names = live.run(f"[one for one in {beside} if 'values' in one]")
    assert {one.value["text/plain"] for one in names.values()} == {"[]"}


def test_values_go_to_all_tasks_or_to_one_and_come_back(live):
    x = np.arange(200_000.0).reshape(2, -1)
    live.push(x=x, lr=0.1)
    live.push([1], lr=0.2)
    live.run("x += 1 + rank")
    np.testing.assert_array_equal(live.pull("x", task=1), x + 2)
    assert live.pull("{'a': [lr, rank]}", "rank", task=1) == ({"a": [0.2, 1]}, 1)
    assert live.pull_all("lr") == {"worker:0": 0.1, "worker:1": 0.2}
    found = live.pull_all("rank", "x.shape", tasks=["worker:1"])
    assert found == {"worker:1": (1, (2, 100_000))}


def test_a_frame_of_pandas_goes_there_and_comes_back(live):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    moments = pd.date_range("2026-01-01", periods=3, freq="h", tz="Europe/Berlin")
    kinds = pd.Categorical(["b", None, "a"], categories=["b", "a"])
    frame = pd.DataFrame({"loss": [0.5, None, 0.25], "kind": kinds}, index=moments)
    live.push(frame=frame)
    live.run("frame['rank'] = rank")
    pd.testing.assert_frame_equal(live.pull("frame", task=1), frame.assign(rank=1))


def test_without_pyarrow_on_either_side_the_error_says_what_to_install(live, monkeypatch):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    missing = "lacks pyarrow 15 or later; `pip install pyarrow` there"
    live.push(frame=pd.DataFrame({"a": [1]}))
    live.run("import sys; found, sys.modules['pyarrow'] = sys.modules['pyarrow'], None")
    with pytest.raises(WorkerFailed, match=missing):
        live.pull("frame")
    with pytest.raises(WorkerFailed, match=missing):
        live.push(frame=pd.DataFrame({"a": [1]}))
    live.run("sys.modules['pyarrow'] = found")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadArguments, match=missing):
        live.pull("frame")
    with pytest.raises(BadArguments, match=missing):
        live.push(frame=pd.DataFrame({"a": [1]}))


def test_what_only_a_pickle_could_hold_is_refused(live):
    with pytest.raises(BadArguments, match="x has a object, which is neither"):
        live.push(x=object())
    with pytest.raises(WorkerFailed, match="NotPlain: object has a type, which is neither"):
        live.pull("object")
    with pytest.raises(WorkerFailed, match="NameError: name 'nothing' is not defined"):
        live.pull_all("nothing")


def test_the_weights_of_a_model_are_a_list_of_arrays(live):
    weights = [np.ones((3, 2), "float32"), np.zeros(2, "float32")]
    live.push(weights=weights)
    live.run("weights[0] *= rank")
    for task, found in live.pull_all("weights").items():
        assert isinstance(found, list)
        np.testing.assert_array_equal(found[0], weights[0] * int(task[-1]))


def test_files_are_private(live, monkeypatch):
    modes = []
    read = parcel.read

    def looked(path):
        modes.append(stat.S_IMODE(Path(path).stat().st_mode))
        return read(path)

    monkeypatch.setattr(parcel, "read", looked)
    live.pull("rank")
    assert modes == [0o600]


def test_what_has_no_room_in_memory_goes_to_the_disk(tmp_path):
    places = [f"{session.MEMORY}/values", f"{tmp_path}/values"]
    assert parcel.roomy(places, 1) == places[0]
    assert parcel.roomy(places, 2**62) == places[1]
