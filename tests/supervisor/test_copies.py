"""Files kept here of machines with disks of their own."""

from __future__ import annotations

import asyncio
from errno import ENOSPC
from pathlib import Path

import pytest
from fakes import FakeEngine, FakeMachine

from mwmagic.agent.wire import LOG_LOST
from mwmagic.engines.channel import Channel
from mwmagic.errors import SupervisorError
from mwmagic.supervisor.files import Copy, Logs

FAR = bytes(range(256)) * 1000


def on(body, **files):
    """Run a coroutine function with a channel to a machine that has these files."""

    async def test():
        machine = FakeMachine("far", shared=False)
        machine.disk.update({path: bytearray(data) for path, data in files.items()})
        channel = await Channel.open(FakeEngine([machine]).host(machine))
        try:
            await body(channel, machine)
        finally:
            await channel.close()

    asyncio.run(asyncio.wait_for(test(), 30))


def test_what_was_left_out_is_fetched(tmp_path):
    path = str(tmp_path / "log")

    async def body(channel, machine):
        copy = Copy(channel, path, path)
        copy.put(10, FAR[10:20])
        copy.put(100, FAR[100:200])
        assert copy.lacks(len(FAR)) == len(FAR) - 110
        await copy.fill(len(FAR))
        assert copy.lacks(len(FAR)) == 0
        assert (tmp_path / "log").read_bytes() == FAR

    on(body, **{path: FAR})


def test_a_file_that_is_shorter_than_told_is_an_error(tmp_path):
    path = str(tmp_path / "log")

    async def body(channel, machine):
        with pytest.raises(SupervisorError, match="ends at 3 bytes, not at 9"):
            await Copy(channel, path, path).fill(9)

    on(body, **{path: b"abc"})


def test_what_was_appended_is_pulled(tmp_path):
    path = str(tmp_path / "stacks")

    async def body(channel, machine):
        copy = Copy(channel, path, path)
        await copy.pull()
        assert not (tmp_path / "stacks").exists()
        for size in (100, 100, 200_000):
            machine.disk[path] = bytearray(FAR[:size])
            await copy.pull()
            assert (tmp_path / "stacks").read_bytes() == FAR[:size]
        machine.lose()
        await copy.pull()

    on(body)


def exited(size):
    return {"type": "exited", "process": "p", "size": size, "error": None, "report": None}


def test_an_exit_is_reported_once_its_log_is_here_or_its_machine_gone(tmp_path):
    path = str(tmp_path / "log")

    async def body(channel, machine):
        heard = asyncio.Queue()
        logs = Logs(channel, str, heard.put_nowait)
        logs.begin("p", path, None)
        logs.on_event({"type": "output", "process": "p", "offset": 0, "data": "abc"})
        logs.on_event(exited(3))
        assert [heard.get_nowait()["type"] for _ in range(2)] == ["output", "exited"]
        logs.begin("p", path, None)
        logs.on_event(exited(3))
        assert heard.empty()
        logs.flush()
        assert heard.get_nowait()["type"] == "exited"
        await asyncio.sleep(0)
        logs.flush()
        assert heard.empty()

    on(body, **{path: b"abc"})


def test_a_report_is_here_before_the_exit_is_reported(tmp_path):
    log, report = str(tmp_path / "log"), str(tmp_path / "report")

    async def body(channel, machine):
        heard = asyncio.Queue()
        logs = Logs(channel, str, heard.put_nowait)
        logs.begin("p", log, report)
        logs.on_event({**exited(0), "report": {"x": 1}})
        assert (await heard.get())["report"] == {"x": 1}
        assert (tmp_path / "report").read_bytes() == b'{"x": 1}'

    on(body, **{log: b"", report: b'{"x": 1}'})


def content(path):
    return Path(path).read_bytes()


FULL = "/dev/full"
"""Takes nothing: every write says that no space is left."""


def test_a_log_that_finds_no_space_continues_in_memory(tmp_path):
    path = tmp_path / "log"

    async def body(channel, machine):
        heard = asyncio.Queue()
        logs = Logs(channel, str, heard.put_nowait)
        logs.begin("p", str(path), None)
        logs.on_event({"type": "output", "process": "p", "offset": 0, "data": "ab"})
        logs.on_event({"type": "output", "process": "p", "offset": 3, "data": "d"})
        path.rename(tmp_path / "written")
        path.symlink_to(FULL)
        logs.on_event({"type": "output", "process": "p", "offset": 4, "data": "e"})
        events = {event["type"]: event for event in (heard.get_nowait() for _ in range(4))}
        assert (events["unwritten"]["size"], events["output"]["offset"]) == (2, 4)
        assert "the log ends after 2 bytes: No space" in events["unwritten"]["error"]
        logs.on_event(exited(6))
        assert (await heard.get())["errno"] == ENOSPC
        assert content(events["unwritten"]["path"])[2:] == b"c\0ef"
        logs.close()

    on(body, **{str(path): b"abcdef"})


def test_what_a_full_disk_there_cannot_take_is_in_the_copy(tmp_path):
    path, rest = tmp_path / "log", "/proc/7/fd/9"
    full = {"process": "p", "size": 3, "path": rest, "error": "the log ends"}
    lost = {"reason": LOG_LOST, "error": "the log ends", "errno": ENOSPC}

    async def body(channel, machine):
        heard = asyncio.Queue()
        logs = Logs(channel, str, heard.put_nowait)
        for size in (6, 7):
            logs.begin("p", str(path), None)
            logs.on_event({"type": "unwritten", **full})
            assert (await heard.get())["file"] == str(path)
            logs.on_event({"type": "output", "process": "p", "offset": 5, "data": "f"})
            await heard.get()
            logs.on_event({**exited(size), **lost})
            assert ((await heard.get())["reason"] is None) == (size == 6)
            assert path.read_bytes() == b"abcdef"

    on(body, **{str(path): b"abc", rest: b"\0\0\0def"})


def test_what_a_full_shared_disk_cannot_take_is_in_memory_here():
    rest = "/proc/7/fd/9"
    full = {"process": "p", "size": 3, "path": rest, "error": "the log ends"}

    async def body(channel, machine):
        heard = asyncio.Queue()
        logs = Logs(channel, str, heard.put_nowait, shared=True)
        logs.begin("p", "/log", None)
        logs.on_event({"type": "unwritten", **full})
        here = (await heard.get())["path"]
        for offset, data in ((1, "bcd"), (5, "f")):
            logs.on_event({"type": "output", "process": "p", "offset": offset, "data": data})
            await heard.get()
        logs.on_event({**exited(7), "reason": LOG_LOST, "error": "the log ends"})
        assert (await heard.get())["error"] == "the log ends"
        assert content(here)[3:] == b"defg"
        logs.close()

    on(body, **{rest: b"\0\0\0defg"})


@pytest.mark.parametrize("limit", [2, 4])
def test_no_more_is_held_in_memory_than_there_may_be(tmp_path, monkeypatch, limit):
    monkeypatch.setattr("mwmagic.supervisor.files.REST_BYTES", limit)
    path = tmp_path / "log"
    path.symlink_to(FULL)

    async def body(channel, machine):
        heard = asyncio.Queue()
        logs = Logs(channel, str, heard.put_nowait)
        logs.begin("p", str(path), None)
        logs.on_event(exited(3))
        events = [await heard.get() for _ in range(2)]
        error = events[-1]["error"]
        assert error.startswith("3 bytes of the log are lost" if limit == 2 else "the log ends")
        logs.close()

    on(body, **{str(path): b"abc"})


@pytest.mark.parametrize("full", ["log", "report"])
def test_an_exit_is_reported_even_if_its_files_find_no_space(tmp_path, full):
    paths = {"log": str(tmp_path / "log"), "report": str(tmp_path / "report"), full: FULL}

    async def body(channel, machine):
        heard = asyncio.Queue()
        logs = Logs(channel, str, heard.put_nowait)
        logs.begin("p", paths["log"], paths["report"])
        logs.on_event({**exited(3), "report": {"x": 1}})
        event = await heard.get()
        if full == "log":
            assert event["type"] == "unwritten"
            event = await heard.get()
            assert (event["reason"], event["errno"]) == (LOG_LOST, ENOSPC)
        else:
            assert f"no space left for {FULL}" in event["trouble"]
            assert event["error"] is None

    on(body, **{paths["log"]: b"abc", paths["report"]: b'{"x": 1}'})
