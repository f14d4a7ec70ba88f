"""Runs that are shown again: while they go on, after another declaration, from elsewhere."""

from __future__ import annotations

import json
import re

import pytest
from processes import eventually

from mwmagic.words.run import ENDS_WITH_KERNEL

pytestmark = pytest.mark.slow

DECLARE = "%mw_cluster 2 --no-warm --grace 0.2"
SLEEP = "%%mw_worker -o run\nimport time\nprint('up', flush=True)\ntime.sleep(600)\n"
RUNNING = f"run 1: running\n{ENDS_WITH_KERNEL}"


def texts(kernel):
    """Return what each display of the notebook says, in order."""
    return [data["text/plain"] for data in kernel.shown.values()]


def test_a_run_is_shown_again_while_it_continues_and_after(kernel):
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    assert kernel.run(SLEEP).error.startswith("RunActive: run 1 is still going")
    assert texts(kernel) == ["run 1 continues below", RUNNING]
    assert kernel.run("%mw_show").error is None
    assert texts(kernel) == ["run 1 continues below"] * 2 + [RUNNING]
    assert kernel.run("run").value is None
    assert texts(kernel) == ["run 1 continues below"] * 3 + [RUNNING]
    assert kernel.run(SLEEP.replace("-o", "--quiet -o")).error.startswith("RunActive")
    assert len(texts(kernel)) == 4, "quiet"
    kernel.run("%mw_stop")
    for cell in ("%mw_show", "%mw_show 1", "run"):
        kernel.run(cell)
        data = kernel.shown.pop(None)  # it is not updated, so it has no id
        assert data["text/plain"].startswith("run 1: stopped\n  worker:0 "), cell
        assert "<table>" in data["text/html"]
    assert kernel.run("%mw_show 7").error.startswith("NoRun: there is no run 7; `%mw_runs` lists")
    assert kernel.run("str(run)").value == "'<Run 1: stopped>'"


def test_a_run_stays_in_sight_whatever_is_refused_while_it_goes_on(kernel, tmp_path):
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    assert kernel.run("%mw_cluster 3 --no-warm").error.startswith("RunActive: ")
    assert texts(kernel) == ["run 1 continues below", RUNNING]
    (tmp_path / "main.py").write_text("print('edited')")
    for cell in (SLEEP, "%%mw_worker --index 7\npass", "%%mw_worker\n!ls"):
        before = len(texts(kernel))
        assert kernel.run(cell).error
        assert texts(kernel) == ["run 1 continues below"] * before + [RUNNING], cell
    assert kernel.run("%mw_stop").text == "stopped run 1\n"


def test_a_cluster_that_is_replaced_keeps_its_directory(kernel, tmp_path):
    kernel.run(DECLARE)
    kernel.run("%%mw_worker\nprint('hello')")
    kernel.run("%mw_wait")
    (tmp_path / "sub").mkdir()
    kernel.run("import os; os.chdir('sub')")
    assert "replaced" in kernel.run("cluster = %mw_cluster 1 --no-warm").text
    assert kernel.run("str(cluster.options.root)").value == repr(str(tmp_path.resolve()))
    assert kernel.run("%mw_status").value.startswith("run 1: finished")
    assert kernel.run("%mw_logs 1").text == "hello\n"


def test_what_is_recorded_is_found_after_another_declaration_and_from_elsewhere(kernel, tmp_path):
    kernel.run(DECLARE + " --env GIVEN=yes")
    kernel.run("%%mw_worker --args 'a b'\nprint('hello')")
    kernel.run("%mw_wait")
    assert "replaced" in kernel.run("%mw_cluster 1 --no-warm").text
    assert kernel.run("%mw_status").value.startswith("run 1: finished")
    assert kernel.run("%mw_logs 1").text == "hello\n"
    assert kernel.run("%mw_logs 1 --follow").text == "hello\n", "it is over"
    told = "wrote main.sh, which runs the code in main-run-1; only you can read it, as it holds "
    assert kernel.run("%mw_export script").text == f"{told}the values of --env\n"
    script = (tmp_path / "main.sh").read_text()
    assert '"$PYTHON" main-run-1/main.py a b\n' in script
    assert "GIVEN=yes" in script
    assert "start worker-1" in script
    assert "launched on this cluster yet" in kernel.run("%mw_wait").error
    (tmp_path / "sub").mkdir()
    kernel.run("import os; os.chdir('sub')")
    assert re.search(r"\n1 +main .* finished +", kernel.run("%mw_runs").value)
    assert kernel.run("%mw_logs 0 --run 1").text == "hello\n"
    kernel.run("os.chdir('..')\n%mw_cluster 1 --no-warm --name other --quiet")
    told = kernel.run("%mw_status")
    assert told.text == "run 1 belongs to the cluster 'cluster'\n"
    assert told.value.startswith("run 1: finished")


def test_nothing_that_is_typed_is_ignored(kernel, tmp_path):
    kernel.run(DECLARE)
    for cell, refused in (
        ("%%mw_worker --timeout 3\npass", "--timeout limits how long --wait waits"),
        ("%%mw_worker --no-run --restarts 0\npass", "--no-run launches nothing"),
        ("%%mw_worker --no-run --wait\npass", "so leave out --wait"),
        ("%mw_logs --follow --attempt 1", "--follow shows each attempt as it comes"),
    ):
        error = kernel.run(cell).error
        assert error.startswith("BadArguments: "), cell
        assert refused in error
    assert not (tmp_path / "main.py").exists()

    kernel.run("%%mw_worker --index 0 --restarts 1\nprint('one')")
    error = kernel.run("%%mw_worker --index 1 --restarts 2\nprint('two')").error
    assert error.startswith("ClusterError: run 1 waits for its other tasks, and its first")
    assert kernel.run("%%mw_worker --index 1 --restarts 1\nprint('two')").error is None
    kernel.run("%mw_wait")

    lines = "for i in range(5): print(f'\\033[31mline {i}\\033[0m', flush=True)\n"
    wait = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\nprint('last')\n"
    kernel.run(f"%%mw_worker\n{lines}{wait}")
    eventually(lambda: "line 4" in kernel.run("%mw_logs 1").text)
    request = kernel.send("text = %mw_logs 1 --follow --tail 2 --ansi --run 2")
    shown = ""
    while "line 4" not in shown:
        message = kernel.client.get_iopub_msg(timeout=120)
        if message["msg_type"] == "stream":
            shown += message["content"]["text"]
    (tmp_path / "go").touch()
    shown += kernel.collect(request).text
    red = "\x1b[31mline {}\x1b[0m\n"
    assert shown == (
        "... 3 earlier lines not shown, `--tail 0` shows them\n"
        f"{red.format(3)}{red.format(4)}last\n"
    )
    assert json.loads(kernel.run("import json; print(json.dumps(text))").text) == shown[:-1]
