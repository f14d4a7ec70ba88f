"""Files that are fetched from the machines of tasks."""

from __future__ import annotations

import asyncio
import os

import pytest
from fakes import FakeEngine, FakeMachine
from served import Refused, served

from mwmagic.model.messages import Start
from mwmagic.model.options import ClusterOptions
from mwmagic.supervisor import files

pytestmark = pytest.mark.usefixtures("nothing_survives")


async def finish(worker):
    worker.print("well")


def on(folder, **machine):
    """Run a coroutine function with a client of a cluster on a machine that is made up."""

    async def test(body):
        far = FakeMachine("far", shared=False, **machine)
        start = Start(ClusterOptions(1, name="c", directory=str(folder)))
        async with served(start, folder, FakeEngine([far], finish)) as client:
            await client.placed("placed")
            await body(client, far)

    return lambda body: asyncio.run(asyncio.wait_for(test(body), 60))


def base(far):
    """Return the folder on a machine that stands for the cluster's directory."""
    [path] = [path for path in far.disk if path.endswith("belongs-to")]
    return path.partition("/.mwmagic/")[0]


async def fetch(client, path, to=None, *, overwrite=False):
    await client.ask("fetch", key="k", task="worker:0", path=path, to=to, overwrite=overwrite)
    news = await client.until(lambda news: told(news)["state"] != "going")
    return told(news)


def told(news):
    return news["cluster"]["fetches"]["k"]


def left(folder):
    """Return what is in a folder besides the record and the socket."""
    return sorted({path.name for path in folder.iterdir()} - {".mwmagic", "s"})


def test_a_file_comes_to_the_same_place(tmp_path):
    @on(tmp_path)
    async def _(client, far):
        data = os.urandom(200_000)
        far.disk[f"{base(far)}/models/best.keras"] = data
        assert (await fetch(client, "models/best.keras"))["to"] == f"{tmp_path}/models/best.keras"
        assert (tmp_path / "models" / "best.keras").read_bytes() == data
        assert (told(client.news)["size"], told(client.news)["done"]) == (200_000, 200_000)
        await client.ask("forget", key="k")
        assert client.news["cluster"]["fetches"] == {}


def test_a_directory_comes_whole_or_into_another(tmp_path):
    (tmp_path / "results").mkdir()

    @on(tmp_path)
    async def _(client, far):
        far.disk["/scratch/saved/index"] = b"i"
        far.disk["/scratch/saved/variables/data"] = b"d"
        done = await fetch(client, "/scratch/saved", to="results")
        assert (done["files"], done["size"]) == (2, 2)
        assert (tmp_path / "results" / "saved" / "variables" / "data").read_text() == "d"
        await fetch(client, "/scratch/saved/")
        assert (tmp_path / "saved" / "index").read_text() == "i"


def test_what_is_there_is_replaced_only_on_request(tmp_path):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "old").touch()

    @on(tmp_path)
    async def _(client, far):
        far.disk[f"{base(far)}/saved/new"] = b"n"
        with pytest.raises(Refused, match="`--overwrite` replaces it, `--to` names another place"):
            await fetch(client, "saved")
        assert [path.name for path in (tmp_path / "saved").iterdir()] == ["old"]
        await fetch(client, "saved", overwrite=True)
        assert [path.name for path in (tmp_path / "saved").iterdir()] == ["new"]
        assert left(tmp_path) == ["saved"]


@pytest.mark.parametrize("path", ["..", ".", "/", "a/.."])
def test_what_has_no_name_is_refused(tmp_path, path):
    @on(tmp_path)
    async def _(client, _far):
        with pytest.raises(Refused, match="has no name to keep it under"):
            await fetch(client, path)


def test_what_cannot_be_read_there_leaves_nothing_here(tmp_path):
    @on(tmp_path)
    async def _(client, _far):
        failed = await fetch(client, "none")
        assert (failed["state"], failed["kind"]) == ("failed", "SupervisorError")
        assert "of worker:0 cannot be fetched: " in failed["error"]
        assert left(tmp_path) == []


@pytest.mark.parametrize("name", ["../../.bashrc", "/etc/passwd", "a/../../b"])
def test_another_machine_does_not_choose_where_a_file_goes(tmp_path, name):
    @on(tmp_path)
    async def _(client, far):
        far.below = lambda _: [(name, 1)]
        failed = await fetch(client, "saved")
        assert "is not below its directory" in failed["error"]
        assert left(tmp_path) == []


def test_a_fetch_that_is_given_up_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "STEP_BYTES", 10)

    @on(tmp_path, delay=0.002)
    async def _(client, far):
        far.disk["/scratch/large"] = b"x" * 100_000
        ask = {"task": "worker:0", "path": "/scratch/large", "to": None, "overwrite": False}
        await client.ask("fetch", key="k", **ask)
        await client.until(lambda news: told(news)["done"])
        assert len(left(tmp_path)) == 1
        await client.ask("forget", key="k")
        while left(tmp_path):  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.005)


def test_a_machine_that_is_lost_ends_its_fetches(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "STEP_BYTES", 10)

    @on(tmp_path, delay=0.002)
    async def _(client, far):
        far.disk["/scratch/large"] = b"x" * 100_000
        ask = {"task": "worker:0", "path": "/scratch/large", "to": None, "overwrite": False}
        await client.ask("fetch", key="k", **ask)
        await client.until(lambda news: told(news)["done"])
        far.lose()
        await client.until(lambda news: told(news)["state"] == "failed")
        assert left(tmp_path) == []
