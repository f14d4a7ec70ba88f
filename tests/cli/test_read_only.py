"""A folder that nobody can write: runs are read there as anywhere, and the rest is refused."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from test_records import write

MOUNTED = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && cd "$0" && exec "$@"'

TRYING = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout

from IPython.core.interactiveshell import InteractiveShell

from mwmagic.cli import main

said = {}
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    said[" ".join(words)] = code, out.getvalue(), err.getvalue()
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "mwmagic")
for cell in json.loads(sys.argv[2]):
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        shell.run_cell(cell)
    said[cell] = out.getvalue()
print(json.dumps(said))
"""

READING = (["runs"], ["show", "1"], ["compare", "1", "2"], ["explain"], ["logs"], ["wait"])
WRITING = (["note", "1", "x"], ["tag", "1", "x"], ["gc", "--keep", "0", "--yes"])
LAUNCHING = (["run", "-n", "1", "main.py"], ["rerun", "1"])
CELLS = ("%mw_runs", "%mw_note 1 x", "%mw_cluster 1 --no-warm", "%mw_rerun 1 --workers 1")
CELLS += ("%%mw_worker --file new.py\nprint(1)", "%mw_stop --cluster")


@pytest.fixture
def mounts():
    """The words before a command that may mount a file system which only it sees."""
    words = ["unshare", "--user", "--map-root-user", "--mount"]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no file system can be mounted here: {tried.stderr}")
    return words


@pytest.mark.slow
def test_a_read_only_folder_is_read_and_each_refusal_is_one_line(
    tmp_path, mounts, nothing_survives
):
    (tmp_path / "main.py").write_text("units = 64\n")
    write(tmp_path, 64)
    write(tmp_path, 32)
    before = sorted(tmp_path.rglob("*"))
    commands = json.dumps([*READING, *WRITING, *LAUNCHING])
    words = [
        "sh",
        "-c",
        MOUNTED,
        tmp_path,
        sys.executable,
        "-c",
        TRYING,
        commands,
        json.dumps(CELLS),
    ]
    done = subprocess.run([*mounts, *words], cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    for words in READING:
        code, out, err = said[" ".join(words)]
        assert (code, bool(out), err) == (0, True, ""), words
    for words in (*WRITING, *LAUNCHING):
        code, out, err = said[" ".join(words)]
        assert (code, out, err.count("\n")) == (2, "", 1), (words, err)
        assert "Read-only file system" in err
    assert "(and 1 other run like it)" in said["gc --keep 0 --yes"][2]
    assert "finished  64     0.3\n" in said["%mw_runs"]
    for cell in ("%mw_note 1 x", "%mw_rerun 1 --workers 1", CELLS[4]):
        [line] = said[cell].splitlines()
        assert line.startswith("FileTrouble: "), cell
        assert "Read-only file system" in line
    assert sorted(tmp_path.rglob("*")) == before
