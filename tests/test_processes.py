"""What tests start hears all signals and does not outlive them, whatever started the tests."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import running

SUPPORT = Path(__file__).parent / "support"
SHOWS = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_DFL)"
UNDER_NOHUP = f"""
import os, signal, subprocess, sys
from processes import hear_all_signals
hear_all_signals()
os.kill(os.getpid(), signal.SIGHUP)
print(subprocess.run([sys.executable, "-I", "-S", "-c", {SHOWS!r}], stdout=-1).stdout)
"""


def test_under_nohup_only_the_tests_themselves_ignore_that_the_terminal_closes():
    told = ["/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "sh", sys.executable, "-S", "-c"]
    done = subprocess.run([*told, UNDER_NOHUP], cwd=SUPPORT, stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (0, b"b'True\\n'\n")


def test_what_a_test_starts_ends_when_the_test_fails():
    sleep = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
    with pytest.raises(ZeroDivisionError), running(sleep) as process:
        1 / 0  # noqa: B018 - what fails in the test
    assert process.returncode == -signal.SIGKILL
