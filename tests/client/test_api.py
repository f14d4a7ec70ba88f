"""Clusters and runs as scripts use them."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time

import pytest
from processes import alive, eventually

from mwmagic import Cluster, ClusterSpec, Task, clusters, runs
from mwmagic.client import starting
from mwmagic.errors import (
    ClusterError,
    FileTrouble,
    NotInstalled,
    RunActive,
    SupervisorError,
    SupervisorLost,
)

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workers": 0}, "worker"),
        ({"workers": -1}, "worker"),
        ({"ps": -2}, "ps"),
        ({"framework": "caffe"}, "unknown framework 'caffe'; the frameworks are tensorflow"),
        ({"keras": "old"}, "keras must be one of auto, plain, legacy, not 'old'"),
        ({"grace": float("inf")}, "grace must be a finite number from 0, not inf"),
        ({"stall": 3}, "there is no option stall; did you mean stall_timeout"),
        ({"coordinator": True}, "a coordinator needs parameter servers"),
        ({"coordinator": True, "ps": 1, "framework": "jax"}, "jax has no coordinator"),
        ({"evaluator": True, "framework": "jax"}, "workers only; remove evaluator:0 or use"),
        ({"ps": 1, "chief": True, "framework": "torch"}, "workers only; remove ps:0 or use"),
        ({"devices": 2, "framework": "torch"}, "PyTorch cannot divide a CPU into 2 devices"),
        ({"on_stall": "panic"}, "on_stall must be one of report, restart, not 'panic'"),
    ],
)
def test_a_description_that_cannot_work_starts_nothing(nothing_survives, options, said):
    with pytest.raises(ClusterError, match=said):
        Cluster(**options)


def test_keras_2_that_is_not_installed_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr(starting, "find_spec", lambda name: None)
    with pytest.raises(NotInstalled, match='pip install "tf-keras"'):
        Cluster(keras="legacy")


@pytest.mark.slow
def test_a_cluster_shows_its_tasks_under_all_their_names(cluster, tmp_path):
    one = cluster(2, chief=True, evaluator=True, name="mine")
    assert [str(task) for task in one.tasks] == ["chief:0", "worker:0", "worker:1", "evaluator:0"]
    assert isinstance(one.spec, ClusterSpec)
    assert one.tf_config(1) == one.tf_config("worker:1") == one.tf_config(Task("worker", 1))
    config = json.loads(one.tf_config("chief"))
    assert config["task"] == {"type": "chief", "index": 0}
    assert config["cluster"]["worker"] == [one.spec.addresses[Task("worker", n)] for n in (0, 1)]
    lines = repr(one).splitlines()
    assert lines[0] == "Cluster 'mine' (tensorflow, local)"
    assert lines[1] == f"  chief:0  {one.spec.addresses[Task('chief', 0)]}"
    assert one.options.root == tmp_path
    assert one.latest is None
    [machine] = one.machines
    assert machine.tasks == tuple(map(str, one.tasks))
    assert machine.warm.state == "off"
    assert not one.closed
    with pytest.raises(ClusterError, match="worker:7"):
        one.tf_config(7)
    run = one.run("main.py", source="print('x')").wait(120)
    assert run.logs("worker:1") == run.logs(1) == run.logs(Task("worker", 1)) == b"x\n"
    assert repr(run) == "<Run 1: finished>"
    assert one.latest.number == 1
    assert run.over
    assert run.cause is None


@pytest.mark.slow
def test_leaving_the_block_ends_the_cluster_whatever_happened(tmp_path, nothing_survives):
    one = Cluster(1, warm=False, directory=tmp_path)
    run = one.run("main.py", source=SLEEP)
    with pytest.raises(KeyError), one:
        raise KeyError
    assert one.closed
    assert run.state == "stopped"
    one.close()
    with pytest.raises(SupervisorLost, match="declare the cluster again"):
        one.run("main.py", source=SLEEP)
    assert repr(one) == "Cluster 'cluster': ended"


@pytest.mark.slow
def test_a_run_is_known_as_soon_as_it_is_launched(cluster):
    one = cluster(1)
    for number in range(1, 6):
        run = one.run("main.py", source="")
        assert one.latest.number == run.number == number
        assert run.status().number == number
        assert run.record.tasks == (Task("worker", 0),)
        run.wait(120)
        assert run.record.state == "finished"


@pytest.mark.slow
def test_an_earlier_run_keeps_its_end(cluster):
    one = cluster(1)
    first = one.run("main.py", source="print('first')").wait(120)
    second = one.run("main.py", source=SLEEP)
    assert (first.state, first.logs(0)) == ("finished", b"first\n")
    first.stop()
    assert second.state in ("forming", "running")
    second.stop(grace=0)


@pytest.mark.slow
def test_a_run_whose_supervisor_was_killed_is_lost(cluster):
    one = cluster(1)
    run = one.run("main.py", source=SLEEP)
    eventually(lambda: run.record.status.tasks["worker:0"].state == "running")
    os.kill(one._process.pid, signal.SIGKILL)
    while not run.over:
        time.sleep(0.01)
    assert run.state == "lost"
    assert repr(run) == "<Run 1: lost with its supervisor>"
    assert run.status().tasks["worker:0"].state == "ended"
    calls = (lambda: run.wait(1), lambda: run.ended_within(1), lambda: run.kill(0), run.stop)
    for call in (*calls, run.stacks):
        with pytest.raises(SupervisorLost):
            call()
    eventually(lambda: run.record.state == "lost", "end of the supervisor")
    assert run.record.status.over
    assert run.record.status.tasks["worker:0"].state == "ended"
    assert one.latest.state == "lost"


@pytest.mark.slow
def test_a_run_continues_when_its_client_hangs_up(cluster):
    one = cluster(1)
    run = one.run("main.py", source=SLEEP)
    [found] = clusters()
    seen = found.latest
    found._connection.close()
    eventually(lambda: found.closed)
    eventually(lambda: seen.state == "running")
    assert not seen.over
    run.stop(grace=0)
    eventually(lambda: seen.over)
    assert seen.state == "stopped"


@pytest.mark.slow
def test_many_wait_for_one_run(cluster, tmp_path):
    code = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)"
    run = cluster(1).run("main.py", source=code)
    states = []
    waiting = [
        threading.Thread(target=lambda: states.append(run.wait(120).state)) for _ in range(4)
    ]
    for thread in waiting:
        thread.start()
    assert not run.ended_within(0.01)
    for seconds in (-1, float("nan"), float("inf"), "1"):
        with pytest.raises(ClusterError, match="seconds must be a finite number from 0"):
            run.ended_within(seconds)
    (tmp_path / "go").touch()
    for thread in waiting:
        thread.join()
    assert states == ["finished"] * 4
    assert run.ended_within(0)


@pytest.mark.slow
def test_several_clusters_of_one_name_live_side_by_side(cluster):
    clusters_made = [cluster(1) for _ in range(3)]
    runs = [one.run("main.py", source="print('x')") for one in clusters_made]
    assert sorted(run.wait(120).number for run in runs) == [1, 2, 3]


@pytest.mark.slow
def test_all_clusters_are_found_or_those_of_a_directory(cluster, tmp_path):
    (tmp_path / "a").mkdir()
    cluster(1, name="here")
    cluster(1, name="there", directory="a")
    assert {one.options.name for one in clusters()} == {"here", "there"}
    assert [one.options.name for one in clusters("a")] == ["there"]
    assert list(clusters("nowhere")) == []
    [found] = clusters("a")
    found.run("main.py", source=SLEEP)
    with pytest.raises(RunActive):
        found.run("main.py", source=SLEEP)


@pytest.mark.slow
def test_a_tilde_is_the_home_directory_wherever_a_directory_is_named(
    cluster, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home/x").mkdir(parents=True)
    one = cluster(1, directory="~/x", detach=True)
    assert one.options.root == tmp_path / "home/x"
    one.run("main.py", source="import os; print(os.getcwd())", cwd="~").wait(120)
    assert one.latest.logs(0).decode() == f"{tmp_path}/home\n"
    assert [record.number for record in runs("~/x")] == [1]
    assert [found.options.root for found in clusters("~/x")] == [tmp_path / "home/x"]
    one.detach()
    with Cluster.attach("cluster", "~/x") as again:
        assert again.latest.number == 1
        again.shutdown()
    assert not (tmp_path / "~").exists()
    with pytest.raises(FileTrouble, match="~nobody-has-this-name/x names no file"):
        Cluster(1, directory="~nobody-has-this-name/x")


@pytest.mark.slow
def test_a_client_that_does_not_own_a_cluster_hangs_up_or_shuts_it_down(cluster):
    one = cluster(1, name="here")
    [guest] = clusters()
    with guest:
        assert guest.options == one.options
    eventually(lambda: guest.closed)
    assert one.run("main.py", source="print('still here')").wait(120).over
    [guest] = clusters()
    guest.shutdown()
    eventually(lambda: one.closed)
    assert list(clusters()) == []


@pytest.mark.slow
def test_ctrl_c_as_a_cluster_ends_ends_it_without_the_rest_of_the_grace(cluster):
    one = cluster(2, grace=600.0)
    run = one.run("main.py", source=DEAF)
    eventually(lambda: all(b"up" in run.logs(task) for task in range(2)), "words of the workers")
    pids = [task.pid for task in run.status().tasks.values()]

    def interrupt():
        eventually(lambda: run.state == "ending", "end that was asked for")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        one.shutdown()
    assert not [pid for pid in pids if alive(pid)]
    thread.join()


@pytest.mark.slow
def test_a_cluster_that_was_detached_is_left_running_when_its_block_ends(tmp_path):
    with Cluster(1, warm=False, directory=tmp_path) as one:
        one.detach()
    [found] = clusters(tmp_path)
    assert found.options.detach
    found.shutdown()


@pytest.mark.slow
def test_options_of_a_running_cluster_are_updated_for_later_launches(cluster):
    one = cluster(2, env={"A": "old"})
    run = one.run("main.py", source=SLEEP)
    updated = one.update(restarts=1, env={"A": "new"}, stall_timeout=5)
    assert updated == one.options
    assert (updated.restarts, updated.env, updated.stall_timeout) == (1, {"A": "new"}, 5.0)
    assert run.status().limit == 0, "it keeps what it was launched with"
    run.stop(grace=0)
    code = "import os, sys; print(os.environ['A']); sys.exit(os.environ['MWMAGIC_ATTEMPT'] == '1')"
    second = one.run("main.py", source=code).wait(120)
    assert (second.status().attempt, second.logs(0)) == (2, b"new\n")
    with pytest.raises(ClusterError, match="workers cannot be changed while"):
        one.update(workers=3)
    with pytest.raises(ClusterError, match="grace must be a finite number"):
        one.update(grace=float("nan"))
    with pytest.raises(ClusterError, match="restarts must be a whole number"):
        one.run("main.py", source=SLEEP, restarts=-1)
    third = one.run("main.py", source=SLEEP)
    with pytest.raises(ClusterError, match="grace must be a finite number"):
        third.stop(grace=float("inf"))
    for timeout in (-1, float("nan"), float("inf"), "1"):
        with pytest.raises(ClusterError, match="timeout must be a finite number from 0, not"):
            third.wait(timeout)
    for number in (-1, 0, 999, 2**40):
        with pytest.raises(ClusterError, match=f"signal must be one of .*, not {number}"):
            third.kill(0, number)
    third.stop(grace=0)


@pytest.fixture
def stranger(own_sockets):
    """A supervisor that refuses everybody."""
    path = starting.socket_directory() / "stranger-00000000-0.sock"
    refusal = {"type": "error", "id": 1, "kind": "SupervisorError", "error": "another version"}

    def serve():
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as lines:
            lines.readline()
            connection.sendall(json.dumps(refusal).encode() + b"\n")
            lines.readline()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()
    path.unlink()


@pytest.mark.slow
def test_a_cluster_that_refuses_does_not_hide_the_others(cluster, stranger):
    cluster(1, name="zzz")
    with pytest.warns(UserWarning, match="another version"):
        assert [one.options.name for one in clusters()] == ["zzz"]


@pytest.mark.slow
def test_a_request_that_is_too_large_ends_nothing(cluster, monkeypatch):
    one = cluster(1)
    with monkeypatch.context() as patch:
        patch.setattr("mwmagic.client.connection.MESSAGE_BYTES", 10_000)
        with pytest.raises(SupervisorError, match="10000 are the limit"):
            one.run("main.py", source="x" * 10_000)
    assert one.run("main.py", source="print('x')").wait(120).logs(0) == b"x\n"


@pytest.mark.slow
def test_a_long_program_and_long_output_lines_pass(cluster):
    code = "text = '" + "é" * 300_000 + "'\nprint(text)\nprint('end')"
    run = cluster(1).run("main.py", source=code).wait(120)
    assert run.logs(0).decode() == "é" * 300_000 + "\nend\n"


@pytest.mark.slow
def test_output_flows_however_many_bytes_a_character_takes(cluster):
    """What a screen reads is granted in bytes; in characters, bars would run dry."""
    code = "for number in range(60_000): print('━' * 20, number)\nprint('all')\n" + SLEEP
    run = cluster(1).run("main.py", source=code)
    log = run.directory / "attempt-1/worker-0.log"
    eventually(lambda: log.exists() and log.read_bytes().endswith(b"all\nup\n"))
    size = len(run.logs(0))
    eventually(lambda: run.status().tasks["worker:0"].size == size, "news of all output")


SWEPT = """
import os, time
from mwmagic.worker import report
units = 1
while os.path.exists("hold"):
    time.sleep(0.05)
report(val_loss=1 / units)
"""


@pytest.mark.slow
def test_a_sweep_says_what_its_trials_do_and_has_its_cluster_alone(cluster, tmp_path, capsys):
    tmp_path.joinpath("main.py").write_text(SWEPT)
    one, lines = cluster(1), []
    sweep = one.sweep("main.py", {"units": [1, 2]}, parallel=2, progress=lines.append)
    assert "trial 2 (units 2) of 2 is run 2" in lines
    assert lines[-1] == "best: trial 2 (run 2; units 2), val_loss 0.5"
    assert sweep.best().number == 2
    tmp_path.joinpath("hold").touch()
    first = threading.Thread(target=one.sweep, args=("main.py", {"units": [3]}))
    first.start()
    eventually(lambda: one.latest.number == 3)
    with pytest.raises(RunActive, match="the cluster is busy with run 3"):
        one.sweep("main.py", {"units": [4]})
    tmp_path.joinpath("hold").unlink()
    first.join()
    assert "best: trial 1 (run 3; units 3), val_loss 0.3333" in capsys.readouterr().out
    with pytest.raises(ClusterError, match="0 clusters run nothing"):
        one.sweep("main.py", {"units": [4]}, parallel=0)
    assert len(runs()) == 3
