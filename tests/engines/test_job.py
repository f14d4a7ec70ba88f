"""What Slurm says of a job, also where it says nothing that makes sense."""

from __future__ import annotations

import asyncio
import re
import string
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mwmagic.engines.slurm.job import Job, JobNode, JobStatus, placed_tasks

NOON = datetime(2026, 11, 24, 12)  # noqa: DTZ001 - local time, as Slurm prints it


class Answers:
    """Queries whose answers are known."""

    def __init__(self, **texts):
        self.texts = texts

    async def answer(self, *command, **_):
        return self.texts.get(command[0], "")


def job(**texts):
    return Job("7", Answers(**texts))


@pytest.mark.parametrize(
    ("text", "placed"),
    [
        ("2(x3),1", [2, 2, 2, 1]),
        ("1,2,1(x2)", [1, 2, 1, 1]),
        ("4", []),
        ("2(x5)", []),
        ("1(x999999999)", []),
        ("", []),
        ("2(x", []),
    ],
)
def test_tasks_are_counted_for_each_node(text, placed):
    assert placed_tasks(text, 4) == placed


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("7|PENDING|Resources|2026-11-24T14:20:00|1:00|", "waits (Resources), starts about 14:20"),
        ("7|PENDING|Priority|2026-11-25T14:20:00|1:00|", "waits (Priority), starts about 25 Nov"),
        ("7|PENDING|Resources|2027-11-24T14:20:00|1:00|", "waits (Resources)$"),
        ("7|PENDING|None|N/A|1:00|", "waits$"),
        ("8|PENDING|None|N/A|1:00|\n7|CONFIGURING|None|N/A|1:00|n1", ": CONFIGURING"),
        ("7|RUNNING|None|2026-11-24T14:20:00|1:00|n1", "^$"),
        ("no such job", "^$"),
        ("", "^$"),
    ],
)
def test_what_a_job_waits_for(line, words, monkeypatch):
    monkeypatch.setattr("mwmagic.engines.slurm.job.datetime", Noon)
    said = asyncio.run(job(squeue=line).waits())
    assert not said or said.startswith("Slurm job 7")
    assert re.search(words.replace("(", r"\(").replace(")", r"\)"), said)


class Noon(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz=None):
        return NOON


@pytest.mark.parametrize(
    ("left", "seconds", "words"),
    [
        ("59:59", 3599, "59 min"),
        ("1:30:00", 5400, "90 min"),
        ("5:00:00", 18_000, "5 h"),
        ("2-01:00:00", 176_400, "49 h"),
        ("UNLIMITED", None, ""),
        ("INVALID", None, ""),
    ],
)
def test_how_long_a_job_has_left(left, seconds, words):
    status = JobStatus("RUNNING", left=left)
    assert (status.seconds, status.remaining) == (seconds, words)


def test_why_a_node_was_lost():
    ended = "7|TIMEOUT|TimeLimit|N/A|0:00|n[1-2]"
    runs = "7|RUNNING|None|N/A|1:00|n[1-2]"
    down = "n1|10.0.0.1|down*|Not responding\nn1|10.0.0.1|down*|Not responding"
    well = "n1|10.0.0.1|allocated|none"

    def why(**texts):
        return asyncio.run(job(**texts).why("n1"))

    assert why(squeue=ended, sinfo=well) == "Slurm job 7: TIMEOUT (TimeLimit)"
    assert why(squeue=runs, sinfo=down) == "node n1 is DOWN* (Not responding)"
    assert why(squeue=runs, sinfo=well) is None
    assert why(squeue=runs, sinfo=well, scontrol="n1\nn2") is None
    mixed = "n1|10.0.0.1|mixed|no power"  # which Slurm says of a node that is down, for a moment
    assert (
        why(squeue=runs, sinfo=mixed, scontrol="n2") == "Slurm took node n1 from job 7 (no power)"
    )
    assert why() is None


@pytest.mark.parametrize(
    ("devices", "asked"),
    [
        ("gpu:2(IDX:0-1)", "gpu:2"),
        ("gpu:a100:2(IDX:0,3),gpu:1080ti:1(IDX:1)", "gpu:a100:2,gpu:1080ti:1"),
        ("nvme:1,gpu:4(CNT:4)", "gpu:4"),
        ("nvme:1", None),
        ("", None),
    ],
)
def test_the_gpus_of_a_node(devices, asked):
    details = f"JobId=7 JOB_GRES=gpu:2 Nodes=n1 CPU_IDs=0-1 Mem=0 GRES={devices} MinCPUsNode=1"

    class Slurm(Answers):
        async def answer(self, *command, **_):
            return "n1\n" if "hostnames" in command else details

    assert asyncio.run(Job("7", Slurm()).gpus()).get("n1") == asked


GARBAGE = st.text(alphabet=string.printable + "\x00\x1b\N{REPLACEMENT CHARACTER}|")


@given(GARBAGE)
def test_no_answer_of_slurm_raises(text):
    texts = dict.fromkeys(("squeue", "sinfo", "scontrol"), f"7|{text}\nNodes={text} CPU_IDs=")
    one = job(**texts)

    async def ask():
        await one.status()
        await one.waits()
        await one.nodes("n1")
        await one.gpus()
        await one.why("n1")

    asyncio.run(ask())
    assert JobStatus(text).expected(NOON) == ""
    assert JobNode("n", "a", text).trouble is None or text
