"""What a worker reads of its code while it runs is what was launched, in a real kernel."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

SPAWN = """%%mw_worker
import multiprocessing, pathlib, time
DATA = pathlib.Path(__file__).with_name("data.txt").read_text()
def child(_):
    return "{0}", DATA
if __name__ == "__main__":
    print("up", flush=True)
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, *pool.map(child, [0])[0], flush=True)
    from joblib.externals.loky import ProcessPoolExecutor
    from joblib.externals.loky.backend import get_context
    with ProcessPoolExecutor(1, context=get_context("loky_init_main")) as pool:
        print("loky", *pool.submit(child, 0).result(), flush=True)
"""


def test_two_clusters_that_share_a_file_run_each_their_own_code(kernel, tmp_path):
    (tmp_path / "data.txt").write_text("data")
    for name in ("a", "b"):
        assert kernel.run(f"{name} = %mw_cluster 1 --no-warm --name {name}").error is None
        assert kernel.run(SPAWN.format(f"code of {name}")).error is None
    (tmp_path / "go").touch()
    for name in ("a", "b"):
        kernel.run(f"run = {name}.latest.wait()")
        printed = kernel.run("print(run.logs(0).decode())").text.split("\n")
        ways = ("spawn", "forkserver", "loky")
        assert printed[1:4] == [f"{way} code of {name} data" for way in ways]


def test_a_refused_cell_does_not_run_in_a_running_programs_children(kernel, tmp_path):
    (tmp_path / "data.txt").write_text("data")
    kernel.run("%mw_cluster 1 --no-warm")
    kernel.run(SPAWN.format("launched"))
    assert kernel.run(SPAWN.format("refused")).error.startswith("RunActive: ")
    (tmp_path / "go").touch()
    assert kernel.run("%mw_wait").error is None
    assert "spawn launched data\n" in kernel.run("%mw_logs 0").text


def test_a_script_that_is_edited_while_it_runs_spawns_what_was_launched(kernel, tmp_path):
    (tmp_path / "data.txt").write_text("data")
    script = tmp_path / "main.py"
    script.write_text(SPAWN.partition("\n")[2].format("launched"))
    kernel.run("cluster = %mw_cluster 1 --no-warm --quiet")
    kernel.run("run = cluster.run('main.py')")
    script.write_text("raise SystemExit('edited')")
    (tmp_path / "go").touch()
    assert kernel.run("%mw_wait").error is None
    assert "spawn launched data\n" in kernel.run("%mw_logs 0").text
