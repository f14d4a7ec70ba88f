"""Orphans, in a process that adopts them and in one that does not."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

START = """
import os, psutil, subprocess, sys, time
from mwmagic.supervisor.__main__ import adopt_orphans
from mwmagic.supervisor.pool import end_orphans
SLEEP = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]

def orphan():
    # It prints the id of a child that outlives it, in a session of its own.
    code = "import subprocess as s; print(s.Popen(%r, start_new_session=True, stdout=-3).pid)"
    command = [sys.executable, "-c", code % SLEEP]
    return int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
"""


def run(code):
    done = subprocess.run(
        [sys.executable, "-c", START + dedent(code)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "well\n"


def test_orphans_are_ended_and_reaped_and_an_agent_is_not():
    run("""
        adopt_orphans()
        agent = subprocess.Popen(SLEEP)
        left = [orphan() for _ in range(3)]
        assert len(psutil.Process().children()) == 4
        end_orphans([agent.pid])
        assert [child.pid for child in psutil.Process().children()] == [agent.pid]
        assert not any(psutil.pid_exists(pid) for pid in left)
        agent.kill()
        agent.wait()
        end_orphans([])
        print("well")
    """)


def test_without_adoption_nothing_is_ended():
    run("""
        child = subprocess.Popen(SLEEP)
        end_orphans([])
        assert child.poll() is None
        child.kill()
        child.wait()
        print("well")
    """)
