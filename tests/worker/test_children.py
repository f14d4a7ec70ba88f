"""A Python that a worker starts, or becomes, is what it is by hand, with Keras repaired."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mwmagic import Cluster
from mwmagic.errors import WorkerFailed
from mwmagic.worker import bootstrap

pytestmark = pytest.mark.slow

FOLDER = str(Path(bootstrap.__file__).with_name("child"))

CHILD = """
import json, os, subprocess, sys
if sys.argv[1:] == ["again"]:
    sys.exit(subprocess.run([sys.executable, "child.py"]).returncode)
waits = [getattr(one, "__name__", "") for one in sys.meta_path]
custom = getattr(sys.modules.get("sitecustomize"), "__file__", None)
print(json.dumps({
    "as by hand": [os.environ.get("PYTHONPATH"), sys.path, custom, sys.argv, sys.flags.isolated],
    "prepared": "_Preparing" in waits,
}))
"""
STARTS = {
    "subprocess": "subprocess.run([python, 'child.py'])",
    "a copy of the environment": "subprocess.run([python, 'child.py'], env=os.environ.copy())",
    "exec": "os.execv(python, [python, 'child.py', 'a b'])",
    "a shell": "os.system(f'{shlex.quote(python)} child.py')",
    "another directory": "os.chdir('/'); subprocess.run([python, f'{here}/child.py'])",
    "a child of a child": "subprocess.run([python, 'child.py', 'again'])",
}
"""Starts of a Python that is prepared."""

ALONE = {
    "isolated": "subprocess.run([python, '-I', 'child.py'])",
    "without variables": "subprocess.run([python, '-E', 'child.py'])",
    "without site": "subprocess.run([python, '-S', 'child.py'])",
    "an empty environment": "subprocess.run([python, 'child.py'], env={})",
    "no TF_CONFIG": "del os.environ['TF_CONFIG']; subprocess.run([python, 'child.py'])",
}
"""Starts of a Python that ignores what would prepare it, or takes part in no cluster."""


@pytest.fixture
def compare(tmp_path):
    """Start a child from a worker and by hand, and return what both print."""
    (tmp_path / "child.py").write_text(CHILD)
    (tmp_path / "library").mkdir()
    outer = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def compared(start, custom=None, **variables):
        names = "import os, shlex, subprocess, sys\npython, here = sys.executable, os.getcwd()"
        code = f"{names}\n{start}\n"
        (tmp_path / "main.py").write_text(code)
        if custom is not None:
            (tmp_path / "library" / "sitecustomize.py").write_text(custom)
        env = {**outer, "TF_CONFIG": "{}", **variables}
        commands = ([sys.executable, *more, "main.py"] for more in ([bootstrap.__file__], []))
        done = [
            subprocess.run(
                one, cwd=tmp_path, env=env, capture_output=True, text=True, check=True, timeout=120
            )
            for one in commands
        ]
        return [(json.loads(one.stdout), one.stderr) for one in done]

    return compared


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("path", [None, "library", "/nowhere::library"])
def test_a_child_sees_what_it_sees_by_hand(compare, start, path):
    variables = {} if path is None else {"PYTHONPATH": path}
    ours, hand = compare(STARTS[start], "import json", **variables)
    assert (ours[0]["as by hand"], ours[1]) == (hand[0]["as by hand"], hand[1])
    assert (ours[0]["prepared"], hand[0]["prepared"]) == (True, False)


@pytest.mark.parametrize("start", ALONE)
def test_a_child_that_cannot_be_prepared_runs_as_by_hand(compare, start):
    ours, hand = compare(ALONE[start], "import json", PYTHONPATH="library")
    paths = [one[0]["as by hand"][1] for one in (ours, hand)]
    assert [one for one in paths[0] if one != FOLDER] == paths[1]
    assert (ours[1], ours[0]["prepared"]) == (hand[1], False)


def test_a_sitecustomize_of_the_users_that_fails_fails_as_by_hand(compare):
    ours, hand = compare(STARTS["subprocess"], "1/0", PYTHONPATH="library")
    assert ours[1] == hand[1]
    assert "ZeroDivisionError" in ours[1]
    assert ours[0]["prepared"]


def test_a_failure_after_an_exec_is_reported_with_its_line(tmp_path):
    code = """
import os, sys
if "PYTHONHASHSEED" not in os.environ:
    os.environ["PYTHONHASHSEED"] = "0"
    os.execv(sys.executable, [sys.executable, *sys.argv])
print("the hash is", hash("word"), flush=True)
raise ValueError("after the exec")
"""
    script = tmp_path / "main.py"
    script.write_text(code)
    with Cluster(1, directory=tmp_path, warm=False) as cluster:
        run = cluster.run(script)
        with pytest.raises(WorkerFailed, match="ValueError: after the exec") as failed:
            run.wait(120)
    assert f"at {script}, line 7, in <module>" in str(failed.value)
    assert b"the hash is" in run.logs(0)
