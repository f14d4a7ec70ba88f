"""Two kernels in one folder: each has its own cluster, and a restarted one finds it again."""

from __future__ import annotations

from textwrap import dedent

import pytest
from kernels import started
from processes import eventually

from mwmagic.record import runs
from mwmagic.words.table import RunTable

pytestmark = pytest.mark.slow

DECLARE = "%mw_cluster 2 --no-warm --grace 0.2"
SLEEP = "%%mw_worker\nimport time\nprint('up', flush=True)\ntime.sleep(600)\n"
COUNT = 100
LAUNCHING = dedent(
    """
    for number in range({count}):
        options = f"--wait --quiet --file {{name}}.py -p units={{number}}"
        get_ipython().run_cell_magic("mw_worker", options, "units = 64\\nprint(units)\\n")
    """
)
SESSION = {"JPY_SESSION_NAME": "/home/user/train.ipynb"}


GOING = """
%%mw_worker
import time
from pathlib import Path
from mwmagic.worker import report
report(step=3, steps=100, loss=0.5)
while not Path("go").exists():
    time.sleep(0.02)
report(step=4, steps=100, loss=0.25)
while not Path("end").exists():
    time.sleep(0.02)
"""


def test_a_run_of_another_notebook_is_followed(kernel, nursery, tmp_path):
    with started(nursery, tmp_path, type(kernel), **SESSION) as train:
        train.run("%load_ext mwmagic")
        train.run("%mw_cluster 1 --no-warm")
        train.run(GOING.lstrip())
        shown = kernel.run("%mw_show 1")
        assert shown.text == "run 1 belongs to the cluster 'train', which another process owns\n"

        def says(words):
            """Whether the picture below the cell, which changes while no cell runs, says this."""
            return any(words in data["text/plain"] for data in kernel.run("1").shown.values())

        eventually(lambda: says("step 3/100  loss 0.5"))
        (tmp_path / "go").touch()
        eventually(lambda: says("step 4/100  loss 0.25"))
        (tmp_path / "end").touch()
        eventually(lambda: says("run 1: finished"))


def test_two_notebooks_in_one_folder(kernel, nursery, tmp_path):
    with started(nursery, tmp_path, type(kernel), **SESSION) as train:
        train.run("%load_ext mwmagic")
        declared = train.run(DECLARE + " --detach")
        assert declared.value.startswith("Cluster 'train' ")
        assert declared.text == ""
        train.run(SLEEP)

        other = kernel.run("%mw_status")
        assert other.text == "run 1 belongs to the cluster 'train', which another process owns\n"
        error = kernel.run(DECLARE + " --name train").error
        pid = train.manager.provisioner.process.pid
        assert error.startswith(f"ClusterOwned: cluster 'train' of {tmp_path}: ")
        assert f"it has an owner already, process {pid} (train.ipynb)" in error
        assert "another name, or end this one where it belongs, with `%mw_stop --cluster`" in error

        # A copy of the notebook, as it were.
        kernel.run(f"import os; os.environ.update({SESSION})")
        declared = kernel.run(DECLARE)
        assert declared.text.startswith("the name is taken, so this cluster is 'train-2' (")
        assert declared.value.startswith("Cluster 'train-2' ")
        assert "reusing the cluster 'train-2'" in kernel.run("%mw_cluster").text
        kernel.run("%%mw_worker\nprint('mine')")
        kernel.run("%mw_wait")
        assert kernel.run("%mw_logs 0").text == "mine\n"

        train.manager.restart_kernel(now=True)
        train.client.wait_for_ready(timeout=120)
        train.run("%load_ext mwmagic")
        assert "reusing the cluster 'train'" in train.run("%mw_cluster").text
        assert train.run("%mw_status").value.startswith("run 1: running")
        assert "ended the cluster 'train'" in train.run("%mw_stop --cluster").text
    assert kernel.run("%mw_stop --cluster").error is None


@pytest.mark.timeout(900)
def test_two_notebooks_that_launch_at_once_lose_no_run(kernel, nursery, tmp_path):
    with started(nursery, tmp_path, type(kernel)) as other:
        both = {"one": kernel, "other": other}
        other.run("%load_ext mwmagic")
        for name, one in both.items():
            assert one.run(f"%mw_cluster 1 --no-warm --name {name}").error is None
        sent = {
            name: one.send(f"name = {name!r}\n{LAUNCHING.format(count=COUNT)}")
            for name, one in both.items()
        }
        for name, one in both.items():
            assert one.collect(sent[name], timeout=600).error is None, name
        for one in both.values():
            assert one.run("%mw_stop --cluster").error is None
    table = RunTable(runs(tmp_path), where="state==finished")
    assert [one.number for one in table] == list(range(1, 2 * COUNT + 1))
    for name in both:
        mine = [one.parameters["units"] for one in table.facts if one.name == name]
        assert mine == list(range(COUNT)), name
