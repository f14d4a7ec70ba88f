"""Disks that are full: the one with the record, and that of a host with a disk of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from processes import eventually

from mwmagic.record import runs

pytestmark = [pytest.mark.usefixtures("nothing_survives"), pytest.mark.slow]

LINES = 9000

TALKS = f"""
import os, sys, time
from pathlib import Path
attempt, (who, path) = os.environ["MWMAGIC_ATTEMPT"], sys.argv[1:]
if attempt == "1" and os.environ["MWMAGIC_TASK"] == who:
    with open(path.replace("~", str(Path.home())), "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            sys.exit(3)
for number in range({LINES} if attempt == "2" else 0):
    print(attempt, "line", number)
time.sleep(600 if attempt == "1" else 0)
"""
"""One task fills a disk and fails; then all print a hundred thousand bytes."""

WAITS = """
import os, time
from mwmagic.worker import report
units = 1
report(val_loss=1 / units)
while os.path.exists("hold"):
    time.sleep(0.05)
"""


@pytest.fixture(scope="module", autouse=True)
def small(tmp_path_factory):
    """Mount a small disk, which only the last host does not see; it has to be there before them."""
    folder = tmp_path_factory.mktemp("small")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def talked(lab, hosts, *filled):
    """Run the program on two hosts; check its lines, and return the command as it ended."""
    Path("main.py").write_text(TALKS)
    command = [sys.executable, "-m", "mwmagic.cli", "run", "-n", "2", "--restarts", "1"]
    engine = ["--engine", "ssh", "--hosts", ",".join(one.name for one in hosts)]
    words = ["--", "-F", str(lab.config), "--", "main.py", *filled]
    done = subprocess.run([*command, *engine, *words], capture_output=True, text=True, check=False)
    printed = sorted(one for one in done.stdout.splitlines() if "] 2 line " in one)
    assert printed == sorted(f"[worker:{i}] 2 line {n}" for i in (0, 1) for n in range(LINES)), done
    [record] = runs()
    assert json.loads(Path(record.path, "run.json").read_text())["state"] == "finished"
    return done, record


@pytest.fixture
def shrunk(lab):
    """Give the last host's own disk few bytes."""
    [daemon] = [one.pid for one in lab.hosts[-1].processes() if "-D" in one.cmdline()]

    def there(*words):
        subprocess.run(["nsenter", f"--mount=/proc/{daemon}/ns/mnt", "--", *words], check=True)

    there("mount", "-o", "remount,size=8m", lab.home)
    yield
    there("rm", lab.home / "filler")
    there("mount", "-o", "remount,size=80m", lab.home)


def test_a_host_whose_own_disk_is_full_is_named_and_the_record_is_whole(
    lab, shrunk, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    done, record = talked(lab, lab.hosts[1:], "worker:1", "~/filler")
    assert done.returncode == 0
    far = lab.names[-1]
    assert re.search(
        rf"worker:1 could not write its log on {far} to the end \(/.*/attempt-2/worker-1.log: the "
        r"log ends after 0 bytes: No space left on device\); its lines came here all the same",
        done.stderr,
    )
    assert "incomplete" not in done.stderr
    assert record.log("worker:1").count(b"\n") == LINES


def test_a_sweep_whose_disk_is_full_loses_nothing(small, monkeypatch):
    folder = small / "sweep"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("main.py").write_text(WAITS)
    Path("hold").touch()
    sweep = [sys.executable, "-m", "mwmagic.cli", "sweep"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen([*sweep, "--framework", "torch", "main.py", "units=1,2,3"], **pipes)
    eventually(lambda: any(one.metrics() for one in runs()), "the first trial")
    with Path("filler").open("ab", buffering=0) as filler:
        while process.poll() is None:
            with suppress(OSError):
                filler.write(bytes(64))
            Path("hold").unlink(missing_ok=True)
    text, _ = process.communicate()
    assert process.returncode == 2, text
    assert "No space left on device" in text
    assert "of 3 trials are; `mwmagic sweep --resume 1` runs the others" in text
    full = subprocess.run([*sweep, "--resume"], **pipes, check=False)
    assert "writer.json cannot be written: No space left on device" in full.stdout
    Path("filler").unlink()
    done = subprocess.run([*sweep, "--resume"], **pipes, check=False)
    assert done.returncode == 0, done.stdout
    assert "3 trials: 3 finished" in done.stdout


@pytest.mark.parametrize("first", [0, 1], ids=["its disk", "a disk of its own"])
def test_a_full_disk_of_the_record_costs_no_line_of_a_host_with(lab, small, monkeypatch, first):
    folder = small / str(first)
    folder.mkdir()
    monkeypatch.chdir(folder)
    filler = folder / "filler"
    done, _ = talked(lab, lab.hosts[first : first + 2], "worker:0", str(filler))
    filler.unlink()
    assert done.returncode == os.EX_IOERR
    assert re.search(
        r"the record of run 1 is incomplete: .*No space left on device; it lacks what worker:0 "
        r"printed after its first [\d,]+ bytes, what worker:1 printed after",
        done.stderr,
    )
