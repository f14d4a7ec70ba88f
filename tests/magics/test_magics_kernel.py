"""The magics in a real kernel, with small real processes."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import IPython
import psutil
import pytest
from processes import eventually

import mwmagic
from mwmagic import Cluster
from mwmagic.agent.wire import LABEL
from mwmagic.record import runs

pytestmark = pytest.mark.slow

SEVEN = IPython.version_info[0] < 8
"""Whether the kernel completes as IPython 7 does, which Colab has."""

DECLARE = "%mw_cluster 2 --no-warm --grace 0.2"
HELLO = """%%mw_worker
import json, os
task = json.loads(os.environ["TF_CONFIG"])["task"]
print("hello from", task["index"], flush=True)
"""
LEFT = (
    "the cluster 'cluster' is running (run 1: running), but it is not the one that magics act on: "
    "`%mw_cluster --name cluster` selects it; then `%mw_stop` stops its run and "
    "`%mw_stop --cluster` ends it\n"
)
"""What is said of a detached cluster before the next kernel has taken it up."""

SLEEP = "%%mw_worker\nimport time\nprint('up', flush=True)\ntime.sleep(600)\n"
RAISE = """%%mw_worker
import json, os
def train(index):
    if index == 1:
        raise ValueError("the learning rate must be positive")
train(json.loads(os.environ["TF_CONFIG"])["task"]["index"])
import time; time.sleep(600)
"""


def everything(kernel):
    """Return the processes below the kernel."""
    return psutil.Process(kernel.manager.provisioner.process.pid).children(recursive=True)


def waits(process):
    """Return whether a process has no task: it is there for the next start."""
    with suppress(psutil.Error):
        label = process.environ().get(LABEL, "")
        return "zygote" in process.cmdline() and not label.strip()
    return True  # it has just ended


def passes(process):
    """Return whether a process is there for a moment only: git tells the record of the code."""
    with suppress(psutil.Error):
        return process.name() == "git"
    return True


def ours(kernel):
    """Return the processes below the kernel that do something: supervisor, agent, workers."""
    return [one for one in everything(kernel) if not waits(one) and not passes(one)]


def test_a_cell_runs_on_every_task_and_the_log_tells(kernel, tmp_path):
    declared = kernel.run(DECLARE)
    assert declared.value.splitlines()[0] == "Cluster 'cluster' (tensorflow, local)"
    assert kernel.run(HELLO).error is None
    assert (tmp_path / "main.py").read_text() == HELLO.partition("\n")[2]
    waited = kernel.run("%mw_wait")
    assert waited.value is None, "the line that it shows says so"
    assert kernel.run("%mw_logs 1").text == "hello from 1\n"
    assert kernel.run("%mw_logs").text == (
        "--- worker:0 ---\nhello from 0\n--- worker:1 ---\nhello from 1\n"
    )
    [status] = [data for data in waited.shown.values() if "text/html" in data]
    assert {"text/plain": "run 1: finished"} in waited.shown.values()
    assert status["text/plain"] == "run 1: finished\n  worker:0  finished\n  worker:1  finished"
    assert "<table>" in status["text/html"]


def test_two_cells_make_one_run(kernel):
    kernel.run(DECLARE)
    wait = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)"
    first = kernel.run(f"%%mw_worker --index 0\nprint('first')\n{wait}")
    [status] = first.shown.values()
    assert status["text/plain"].startswith("run 1: waiting for worker:1, not launched")
    assert "waiting for worker:1, not launched" in kernel.run("%mw_status").value
    kernel.run("%%mw_worker --index 1\nprint('second')\nopen('go', 'w').close()")
    kernel.run("run = %mw_wait")
    assert kernel.run("str(run)").value == "'<Run 1: finished>'"
    assert kernel.run("%mw_logs 0").text == "first\n"
    assert kernel.run("%mw_logs 1").text == "second\n"


def test_a_failure_is_one_clean_message_and_fails_the_cell(kernel):
    kernel.run(DECLARE)
    kernel.run(RAISE)
    error = kernel.run("%mw_wait").error
    assert error.startswith(
        "WorkerFailed: run 1 failed: worker:1 exited with code 1: "
        "ValueError: the learning rate must be positive"
    )
    assert 'raise ValueError("the learning rate must be positive")' in error
    assert "line 4 (In [3], line 5), in train" in error
    assert f"{Path(mwmagic.__file__).parent}/" not in error, "nothing of how the library did it"


def test_a_cluster_ends_at_once_though_its_supervisor_was_stopped(kernel):
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    eventually(lambda: len(ours(kernel)) == 4)
    [supervisor] = [one for one in ours(kernel) if "mwmagic.supervisor" in str(one.cmdline())]
    supervisor.suspend()
    began = time.monotonic()
    assert "nothing is left running" in kernel.run("%mw_stop --cluster").text
    assert time.monotonic() - began < 45
    assert everything(kernel) == []


def test_wait_can_be_interrupted_and_the_run_goes_on(kernel):
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    request = kernel.send("%mw_wait")
    while kernel.client.get_iopub_msg(timeout=120)["msg_type"] != "display_data":
        pass  # until it shows what it waits for
    kernel.manager.interrupt_kernel()
    error = kernel.collect(request).error
    assert error.startswith("WaitInterrupted: stopped waiting; run 1 is still going")
    assert "finished" not in kernel.run("%mw_status").value
    assert kernel.run("%mw_stop").text == "stopped run 1\n"


def test_a_wait_that_times_out_says_how_long_it_was_and_what_to_do(kernel):
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    said = "WaitTimeout: run 1 is still going after 0.3 s ("
    step = "). `%mw_wait` waits again, `%mw_stop` stops it"
    for line in ("%mw_wait --timeout 0.3", "%mw_wait --timeout 0.3 --quiet"):
        error = kernel.run(line).error
        assert error.startswith(said)
        assert error.endswith(step)
    kernel.run("%mw_stop")


def test_stop_ends_the_run_and_the_cluster_only_where_that_is_asked_for(kernel):
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    eventually(lambda: len(ours(kernel)) == 4)
    assert kernel.run("%mw_stop").text == "stopped run 1\n"
    eventually(lambda: len(ours(kernel)) == 2)
    told = "nothing is running; `%mw_stop --cluster` ends the cluster 'cluster'\n"
    assert [kernel.run("%mw_stop").text for _ in range(2)] == [told] * 2
    assert len(ours(kernel)) == 2, "the cluster is still there"
    idle = "NoRun: nothing is running that --grace could give time"
    assert kernel.run("%mw_stop --grace 1").error.startswith(idle)
    error = kernel.run("%mw_stop 1 --cluster").error
    assert error.startswith("BadArguments: --cluster ends every task, not only 1")
    assert "nothing is left running" in kernel.run("%mw_stop --cluster --grace 1").text
    assert everything(kernel) == []
    assert kernel.run("%mw_wait").error.startswith("NoCluster: ")
    assert kernel.run("%mw_stop").text == "nothing is running\n"
    assert kernel.run("%mw_stop --grace 1").error.startswith(idle)
    assert kernel.run("%mw_stop 1").error.startswith("NoRun: nothing is running, so there is no 1")
    assert kernel.run("%mw_status").value.startswith("run 1: stopped")


def test_stop_names_what_this_notebook_leaves_running(kernel):
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    kernel.run(DECLARE + " --name second")
    assert kernel.run("%mw_stop --cluster").text == f"ended the cluster 'second'\n{LEFT}"
    kernel.run("%mw_cluster --name cluster")
    stopped = "stopped run 1\nended the cluster 'cluster'; nothing is left running\n"
    assert kernel.run("%mw_stop --cluster").text == stopped


def test_a_wait_raises_the_failure_also_if_a_person_answers_too_late(kernel, tmp_path):
    kernel.run(DECLARE)
    kernel.collect(kernel.client.execute("%%mw_worker\ninput('name? ')", allow_stdin=True))
    eventually(lambda: "ask for input; `%mw_wait` answers" in kernel.run("%mw_status").value)
    request = kernel.client.execute("%mw_wait", allow_stdin=True)
    assert kernel.client.get_stdin_msg(timeout=120)["content"]["prompt"].endswith("] name? ")
    [record] = runs(tmp_path)
    os.kill(eventually(lambda: record.status.tasks["worker:1"].pid), signal.SIGKILL)
    eventually(lambda: record.status.over)
    kernel.client.input("Ada")
    error = kernel.collect(request).error
    assert error.startswith("WorkerFailed: run 1 failed: worker:1 killed by SIGKILL")


def test_a_wait_without_anyone_to_answer_raises_the_failure(kernel):
    kernel.run(DECLARE)
    kernel.collect(kernel.client.execute("%%mw_worker\ninput('name? ')", allow_stdin=True))
    eventually(lambda: "ask for input; `%mw_wait` answers" in kernel.run("%mw_status").value)
    alone = kernel.client.execute("%mw_wait", allow_stdin=False, stop_on_error=False)
    assert kernel.collect(alone).error.startswith("WorkerFailed: run 1 failed: worker:")


def test_what_the_debugger_prints_is_shown_where_one_types(kernel):
    kernel.run(DECLARE)
    program = "%%mw_worker\nimport os\nrank = int(os.environ['MWMAGIC_TASK'][-1])\nsecret = 6 * 7\n"
    cell = program + "if rank:\n    breakpoint()\n    print('on')\n"
    kernel.collect(kernel.client.execute(cell, allow_stdin=True))
    request = kernel.client.execute("%mw_wait", allow_stdin=True)
    for answer in ("p secret", "c"):
        assert kernel.client.get_stdin_msg(timeout=120)["content"]["prompt"] == "[1] (Pdb) "
        kernel.client.input(answer)
    waited = kernel.collect(request)
    assert waited.error is None
    assert "[1] -> " in waited.text
    assert "[1] 42\n" in waited.text


def test_a_killed_kernel_leaves_nothing(kernel):
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    eventually(lambda: len(ours(kernel)) == 4)
    left = everything(kernel)
    os.kill(kernel.manager.provisioner.process.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(left, timeout=120)
    assert not alive


def test_a_run_is_lost_with_its_supervisor(kernel, tmp_path):
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    eventually(lambda: all(task.pid for task in runs(tmp_path)[-1].status.tasks.values()))
    below = psutil.Process(kernel.manager.provisioner.process.pid).children()
    [supervisor] = [one for one in below if "supervisor" in " ".join(one.cmdline())]
    registry = "get_ipython().magics_manager.registry"
    assert kernel.run(f"run = {registry}['MWMagic'].session.latest()").error is None
    os.kill(supervisor.pid, signal.SIGKILL)
    assert kernel.run("import time\nwhile not run.over: time.sleep(0.01)").error is None
    assert kernel.run("str(run)").value == "'<Run 1: lost with its supervisor>'"
    assert kernel.run("%mw_status").value == (
        "run 1: lost with its supervisor\n  worker:0  lost\n  worker:1  lost"
    )
    assert re.search(r"\n1 +main .* lost ", kernel.run("%mw_runs").value)


def test_what_needs_a_cluster_says_that_its_run_was_lost_with_the_supervisor(kernel, tmp_path):
    kernel.run(f"cluster = {DECLARE} --quiet")
    kernel.run(SLEEP)
    eventually(lambda: len(ours(kernel)) == 4)
    [supervisor] = [one for one in ours(kernel) if "mwmagic.supervisor" in str(one.cmdline())]
    supervisor.kill()
    eventually(lambda: kernel.run("cluster.closed").value == "True")
    told = (
        "run 1 was lost: the supervisor of the cluster 'cluster' was killed, and its workers ended "
        "with it. `%mw_logs` shows what they printed (in "
        f"{runs(tmp_path)[-1].path}); `%mw_cluster` with its options declares another cluster"
    )
    for line in ("%mw_wait", "%mw_stacks", "%mw_kill 1", "%mw_restart", SLEEP):
        assert kernel.run(line).error == f"SupervisorLost: {told}", line
    for line in ("%mw_stop", "%mw_stop --cluster"):
        assert kernel.run(line).text == f"{told}\n"
    shown = "Cluster 'cluster': its supervisor was killed, and run 1 was lost with it"
    assert kernel.run("cluster").value == shown
    assert "worker:1" in kernel.run(DECLARE).value


def test_a_detached_cluster_is_found_by_the_next_kernel(kernel):
    kernel.run(DECLARE + " --detach")
    kernel.run(SLEEP)
    kernel.restart(now=True)
    for line in ("%mw_stop", "%mw_stop --cluster"):
        assert kernel.run(line).text == LEFT
    assert kernel.run("%mw_stop 1").error == f"NoCluster: {LEFT.rstrip()}"
    assert kernel.run("%mw_cluster 3").error.startswith("RunActive: the cluster 'cluster' is busy")
    assert "reusing the cluster 'cluster'" in kernel.run("%mw_cluster --name cluster").text
    assert "run 1: running" in kernel.run("%mw_status").value
    assert kernel.run("%mw_stop --cluster").error is None
    assert kernel.run("%mw_stop").text == "nothing is running\n"


def test_the_cluster_of_another_kernel_is_named_and_left_alone(kernel, tmp_path):
    with Cluster(1, warm=False, directory=str(tmp_path)) as cluster:
        told = (
            "the cluster 'cluster' is running (without a run), but it belongs to another process; "
            "end it there\n"
        )
        assert kernel.run("%mw_stop --cluster").text == told
        assert not cluster.closed


def test_declaring_again_reuses_replaces_or_refuses(kernel):
    kernel.run(DECLARE)
    assert "reusing the cluster" in kernel.run(DECLARE).text
    assert "worker:2" in kernel.run("%mw_cluster 3 --no-warm").value
    kernel.run(SLEEP)
    error = kernel.run(DECLARE).error
    assert error.startswith("RunActive: the cluster 'cluster' is busy with run 1")
    assert kernel.run(SLEEP).error.startswith("RunActive: run 1 is still going")


def test_declaring_again_with_other_options_updates_the_cluster(kernel):
    kernel.run(DECLARE)
    before = ours(kernel)
    told = kernel.run(DECLARE + " --env GIVEN=yes --stall-timeout 7 --restarts 1").text
    assert told == (
        "updated the cluster 'cluster': restarts 1 (was 0), stall timeout 7.0 (was 60.0), "
        "env GIVEN\n"
    )
    kernel.run(SLEEP)
    told = kernel.run("%mw_cluster --on-stall restart").text
    assert told == (
        "updated the cluster 'cluster': on stall restart (was report)\n"
        "run 1 keeps its options; later launches get the new ones\n"
    )
    kernel.run("%mw_stop")
    eventually(lambda: ours(kernel) == before)  # git, asked about the folder, may still be there
    assert "reusing the cluster" in kernel.run("%mw_cluster 2").text
    kernel.run("cluster = %mw_cluster --quiet")
    names = ("restarts", "grace", "stall_timeout", "on_stall", "env", "warm")
    shown = kernel.run(f"[getattr(cluster.options, name) for name in {names}]").value
    assert shown == "[1, 0.2, 7.0, 'restart', {'GIVEN': 'yes'}, False]"
    kernel.run("%%mw_worker\nimport os; print(os.environ['GIVEN'])")
    kernel.run("%mw_wait")
    assert kernel.run("%mw_logs 0").text == "yes\n"


def test_a_cluster_that_is_running_can_be_detached(kernel):
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    assert kernel.run(DECLARE + " --detach").text == "updated the cluster 'cluster': detach\n"
    assert "reusing the cluster" in kernel.run(DECLARE).text, "it stays detached"
    kernel.restart(now=True)
    assert "reusing the cluster 'cluster'" in kernel.run("%mw_cluster").text
    assert "run 1: running" in kernel.run("%mw_status").value
    assert kernel.run("%mw_stop --cluster").error is None


def test_a_declaration_that_replaces_stops_a_live_session_first(kernel):
    kernel.run(DECLARE)
    kernel.run("%%mw_live\nx = 1")
    assert kernel.run("%mw_cluster 1").error.startswith("RunActive: the cluster 'cluster' is busy")
    told = kernel.run("%mw_cluster 1 --no-warm --replace").text
    assert "stopped run 1\nreplaced the cluster 'cluster': " in told
    assert "worker:1" not in kernel.run("%mw_cluster").value


def test_what_cannot_be_updated_replaces_the_cluster_or_is_refused(kernel):
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    error = kernel.run("%mw_cluster --chief --ps 2").error
    assert error.startswith("RunActive: the cluster 'cluster' is busy with run 1")
    assert "it must be replaced to get chief, ps 2 (was 0)" in error
    assert "`%mw_stop` the run first, add --replace" in error
    kernel.run("%mw_stop")
    replaced = kernel.run("%mw_cluster --chief --ps 2")
    # Before it stands how many CPUs five tasks share, where there are fewer.
    assert replaced.text.endswith("replaced the cluster 'cluster': chief, ps 2 (was 0)\n")
    tasks = ["chief:0", "worker:0", "worker:1", "ps:0", "ps:1"]
    assert [line.split()[0] for line in replaced.value.splitlines()[1:]] == tasks
    assert kernel.run(DECLARE).text == "replaced the cluster 'cluster': no chief, ps 0 (was 2)\n"


def test_a_default_that_cannot_work_is_refused_where_it_is_used(kernel):
    kernel.run("%config MWMagic.grace = float('inf')")
    error = kernel.run("%mw_cluster 2").error
    assert error.startswith("ClusterError: grace must be a finite number from 0, not inf")


def test_kill_restart_and_runs(kernel):
    kernel.run(DECLARE)
    kernel.run(SLEEP)
    eventually(lambda: "up" in kernel.run("%mw_logs 1").text)
    assert kernel.run("%mw_kill 1").text == "sent SIGKILL to worker:1\n"
    assert "worker:1 killed by SIGKILL" in kernel.run("%mw_wait").error
    assert kernel.run("%mw_stop 1").error.startswith("NoRun: nothing is running, so there is no 1")
    assert kernel.run("%mw_restart").error is None
    table = kernel.run("%mw_runs").value.splitlines()
    assert [line.split()[0] for line in table[1:-1]] == ["1", "2"]
    assert table[-1].startswith("the same in all: program=main, tasks=2")
    assert "  failed  " in table[1]
    assert table[1].endswith("worker:1 killed by SIGKILL at your request")
    kernel.run("%mw_stop")


def test_modules_beside_the_code_are_recorded_and_a_restart_says_which_changed(kernel, tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("import deep\n")
    (tmp_path / "deep.py").write_text("long = 1\n" + "#" * 2**20)
    (tmp_path / "helper.py").write_text("value = 1\n")
    (tmp_path / "stranger.py").write_text("value = 1\n")
    kernel.run(DECLARE)
    kernel.run("%%mw_worker\nimport helper, pack\nprint(helper.value)")
    kernel.run("%mw_wait")
    assert "changed" not in kernel.run("%mw_restart").text
    kernel.run("%mw_wait")
    (tmp_path / "helper.py").write_text("value = 2\n")
    told = kernel.run("%mw_restart").text
    assert told.startswith("helper.py has changed since run 2 was launched")
    kernel.run("%mw_wait")
    first, second, third = runs(tmp_path)
    assert [*first.modules()] == [*second.modules()] == ["helper.py", "pack/__init__.py", "deep.py"]
    assert (second.paths.modules / "helper.py").read_text() == "value = 1\n"
    assert (third.paths.modules / "helper.py").read_text() == "value = 2\n"
    assert not (first.paths.modules / "deep.py").exists(), "it is too long"
    assert second.changed_modules() == ["helper.py"]
    assert third.changed_modules() == []


SAVES = """%%mw_worker {}
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path("saved").touch(), sys.exit()))
print("up", flush=True)
time.sleep(600)
"""


def test_an_edited_cell_replaces_the_run_that_is_going_where_that_is_asked_for(kernel, tmp_path):
    kernel.run(DECLARE.replace("0.2", "20"))
    kernel.run(SAVES.format(""))
    eventually(lambda: kernel.run("%mw_logs 0").text == "up\n")
    refused = kernel.run(SAVES.format("").replace("up", "edited"))
    assert "or launch this with --replace" in refused.error
    replaced = kernel.run(SAVES.format("--replace").replace("up", "edited"))
    assert (replaced.error, replaced.text) == (None, "stopped run 1 (stopped)\n")
    assert (tmp_path / "saved").exists(), "it was stopped politely"
    eventually(lambda: kernel.run("%mw_logs 0").text == "edited\n")
    kernel.run("%config MWMagic.replace = True")
    assert "replace" in kernel.run("%mw_cluster 2").text
    assert kernel.run(SAVES.format("")).text == "stopped run 2 (stopped)\n"
    broken = kernel.run("%%mw_worker --index 5\nprint()").error
    assert "worker:5 does not exist" in broken
    assert not runs(tmp_path)[-1].status.over, "what cannot be launched stops nothing"
    kernel.run("%mw_stop --grace 0")


def test_options_variables_and_results(kernel):
    kernel.run(DECLARE)
    kernel.run("value = 'x y'; where = 'other.py'")
    cell = "%%mw_worker --file {where} --args '{value}' --env A=$value --quiet -o run  # comment\n"
    body = "import os, sys\nprint(sys.argv, os.environ['A'], '{value}', '$value')"
    result = kernel.run(cell.replace("--env A=$value", '--env "A=$value"') + body)
    assert (result.error, result.value, result.shown) == (None, None, {})
    assert kernel.run("run.wait().state").value == "'finished'"
    assert kernel.run("%mw_logs 0").text == "['other.py', 'x', 'y'] x y {value} $value\n"
    kernel.run("log = None\n%mw_logs 0 -o log")
    assert kernel.run("log.count('other.py')").value == "1"


def test_a_result_can_be_assigned_whatever_the_cell_shows(kernel):
    kernel.run(DECLARE)
    kernel.run(HELLO)
    [*_, shown] = kernel.run("run = %mw_wait --quiet\nrun").shown.values()
    assert shown["text/plain"].startswith("run 1: finished\n  worker:0  finished")
    assert kernel.run("str(run)").value == "'<Run 1: finished>'"
    silent = kernel.run("%mw_wait --quiet")
    assert (silent.text, silent.value) == ("", None)
    printed = kernel.run("log = %mw_logs 0")
    assert (printed.text, printed.value) == ("hello from 0\n", None)
    assert kernel.run("%mw_logs 0").value is None, "it is printed"
    assert kernel.run("log").value == "'hello from 0'"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%mw_cluster", "say how many workers to declare: `%mw_cluster 2`"),
        ("%mw_cluster two", "argument N: workers must be a whole number from 0, not 'two'"),
        ("%mw_cluster 2 --grace inf", "grace must be a finite number from 0, not 'inf'"),
        ("%mw_cluster 0", "a cluster needs at least 1 worker"),
        ("%mw_cluster 2 --gpu", "unrecognized arguments: --gpu; did you mean --gpus?\n`%mw_cl"),
        ("%mw_cluster 2 --env A", "'A' is not NAME=VALUE"),
        ("%mw_cluster 2 --keras new", "invalid choice: 'new'"),
        (
            "%mw_export",
            "required: {script,slurm,live,tensorboard,mlflow,csv,svg,png}\n`%mw_export --help`",
        ),
        ("%mw_wait", "no cluster was declared; `%mw_cluster 2` declares one"),
        ("%mw_logs 0 'unclosed", "No closing quotation"),
        ("%mw_kill 1 --signal NOPE", "there is no signal 'NOPE'"),
        ("%%mw_worker --index 0\npass", "no cluster was declared"),
    ],
)
def test_bad_input_is_one_clear_error(kernel, line, message):
    error = kernel.run(line).error
    assert message in error
    assert "Traceback" not in error
    assert "usage:" not in error


def test_an_unknown_task_leaves_the_file_as_it_was(kernel, tmp_path):
    kernel.run(DECLARE)
    (tmp_path / "main.py").write_text("mine")
    error = kernel.run("%%mw_worker --index 5\nprint()").error
    assert "worker:5 does not exist; this cluster's tasks are worker:0, worker:1" in error
    assert (tmp_path / "main.py").read_text() == "mine"


def offers(kernel, line, wanted):
    """Return whether just these are offered; IPython 7 adds names of Python's."""
    found = kernel.complete(line)
    return set(wanted) <= set(found) if SEVEN else found == wanted


def test_more_tasks_than_cpus_are_pointed_out(kernel):
    cpus = psutil.cpu_count()
    said = kernel.run(f"%mw_cluster {3 * cpus} --no-warm").text
    assert f"{3 * cpus} tasks share {cpus} CPU" in said
    assert "a step takes 3.0 times as long" in said
    kernel.run("%mw_stop --cluster")
    assert "CPU" not in kernel.run(f"%mw_cluster {cpus} --no-warm").text


def test_help_and_completion(kernel):
    assert "Number of workers" in kernel.run("%mw_cluster --help").text
    assert "--framework" in kernel.complete("%mw_cluster 2 --fr")
    assert "--restarts" in kernel.complete("x = %mw_cluster --")
    assert set(kernel.complete("%mw_cluster --keras ")) >= {"auto", "plain", "legacy"}
    assert "--index" in kernel.complete("%%mw_worker --in")
    assert "--index" not in kernel.complete("%%mw_worker\nx = 1 --in")
    kinds = ["csv", "live", "mlflow", "png", "script", "slurm", "svg", "tensorboard"]
    assert offers(kernel, "%mw_export ", kinds)
    assert offers(kernel, "%mw_export --file x s", ["script", "slurm", "svg"])
    assert "chief:0" not in kernel.complete("%mw_logs "), "there is no cluster yet"
    assert "1" not in kernel.complete("%mw_show "), "and no run"
    kernel.run("%mw_cluster 12 --chief --no-warm")
    tasks = ["chief:0", *(f"worker:{index}" for index in range(12))]
    for magic in ("%mw_logs ", "%mw_logs --raw --tail 5 ", "%mw_kill ", "%mw_stop "):
        assert offers(kernel, magic, tasks)
    assert offers(kernel, "%mw_logs w", tasks[1:])
    assert "worker:0" not in kernel.complete("%mw_logs worker:1 ")
    if not SEVEN:  # which takes what follows a colon for a name of Python's
        assert kernel.complete("%mw_logs worker:") == tasks[1:]


def test_what_is_recorded_is_completed_without_a_cluster(kernel):
    kernel.run(DECLARE)
    for _ in range(2):
        kernel.run(HELLO)
        kernel.run("%mw_wait")
    for magic in ("%mw_show ", "%mw_logs --run ", "%mw_logs 0 --run "):
        assert offers(kernel, magic, ["1", "2"])
    kernel.run("%mw_stop --cluster")
    for _ in range(2):
        assert offers(kernel, "%mw_logs ", ["worker:0", "worker:1"])
        assert offers(kernel, "%mw_logs --run 1 w", ["worker:0", "worker:1"])
        assert offers(kernel, "%mw_show ", ["1", "2"])
        assert "worker:0" not in kernel.complete("%mw_kill "), "nothing is running"
        kernel.restart(now=True)


def test_the_extension_is_imported_as_far_as_it_is_used(kernel):
    """Every notebook loads it, and its first cell should not wait for what later ones use."""
    loaded = "sorted(n for n in sys.modules if n.startswith('mwmagic.') and n.count('.') == 2)"
    loaded = kernel.run(f"import sys\n{loaded}").value
    assert "mwmagic.magics.extension" in loaded
    for unused in ("client.cluster", "magics.session", "record.reader", "dashboard.static"):
        assert f"mwmagic.{unused}" not in loaded
    told = kernel.client.inspect("%mw_cluster", reply=True, timeout=120)["content"]["data"]
    assert "Number of workers" in told["text/plain"]
    declared = "from mwmagic import Cluster\ncluster = Cluster(1, warm=False)\n"
    shown = kernel.run(f"{declared}run = cluster.run('main.py', source='')\nrun.wait()\nrun")
    assert "run 1: finished" in str(shown.shown)
    assert kernel.run("cluster.close()").error is None


def test_unloading_what_was_not_used_leaves_nothing(kernel):
    assert kernel.run("%unload_ext mwmagic").error is None
    assert "--restarts" not in kernel.complete("%mw_cluster --")
    assert kernel.run("%load_ext mwmagic").error is None
    assert kernel.run("%reload_ext mwmagic").error is None
    assert kernel.run(DECLARE).error is None


def test_unloading_leaves_nothing(kernel):
    kernel.run(DECLARE)
    assert kernel.run("%unload_ext mwmagic").error is None
    assert everything(kernel) == []
    assert (
        kernel.run(
            "sorted(n for n in get_ipython().magics_manager.lsmagic()['line'] if 'mw_' in n)"
        ).value
        == "[]"
    )
    assert "--restarts" not in kernel.complete("%mw_cluster --")
    assert kernel.run("%config MWMagic.restarts = 2").error is None
    assert kernel.run("%load_ext mwmagic").error is None
    assert kernel.run("%reload_ext mwmagic").error is None
    assert kernel.run(DECLARE).error is None


SAVE = """%%mw_worker
import os, pathlib, signal, sys, time
def save(*_):
    time.sleep(0.5)
    pathlib.Path("saved-" + os.environ["MWMAGIC_TASK"]).touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
time.sleep(600)
"""


def training(kernel):
    """Launch workers that save when they get SIGTERM; return what runs once they would."""
    kernel.run("%mw_cluster 2 --no-warm --grace 10")
    kernel.run(SAVE)
    eventually(lambda: kernel.run("%mw_logs").text.count("up") == 2)
    return eventually(lambda: len(found := ours(kernel)) == 4 and found)


def saved(tmp_path):
    return sorted(path.name for path in tmp_path.glob("saved-*"))


def test_unloading_lets_the_workers_save(kernel, tmp_path):
    training(kernel)
    assert kernel.run("%unload_ext mwmagic").error is None
    assert saved(tmp_path) == ["saved-worker:0", "saved-worker:1"]
    assert everything(kernel) == []


def test_reloading_keeps_what_runs(kernel, tmp_path):
    before = sorted(one.pid for one in training(kernel))
    assert kernel.run("%reload_ext mwmagic").error is None
    eventually(lambda: sorted(one.pid for one in ours(kernel)) == before)
    assert "stopped" not in kernel.run("%mw_status").value
    assert kernel.run("%mw_stop").text == "stopped run 1\n"
    assert saved(tmp_path) == ["saved-worker:0", "saved-worker:1"]
    assert "ended the cluster" in kernel.run("%mw_stop --cluster").text
    assert everything(kernel) == []


@pytest.mark.parametrize("end", ["shut down", "exit"])
def test_a_kernel_that_ends_lets_the_workers_save(kernel, tmp_path, end):
    training(kernel)
    left = everything(kernel)
    if end == "exit":
        kernel.send("exit")
        kernel.manager.provisioner.process.wait(120)
    kernel.manager.shutdown_kernel()
    _, alive = psutil.wait_procs(left, timeout=120)
    assert alive == []
    assert saved(tmp_path) == ["saved-worker:0", "saved-worker:1"]
    assert runs(tmp_path)[-1].state == "stopped"


def test_configured_defaults(kernel):
    kernel.run("%config MWMagic.restarts = 1")
    kernel.run(DECLARE)
    kernel.run("%%mw_worker\nimport os, sys\nsys.exit(os.environ['MWMAGIC_ATTEMPT'] == '1')")
    kernel.run("run = %mw_wait")
    assert kernel.run("str(run)").value == "'<Run 1: finished>'"
    assert "finished (attempt 2)" in kernel.run("%mw_runs").value


def test_a_default_that_is_configured_later_updates_the_cluster(kernel):
    kernel.run("%config MWMagic.grace = 0.2")
    kernel.run("%mw_cluster 2 --no-warm --restarts 1")
    assert "reusing the cluster" in kernel.run("%mw_cluster 2").text
    kernel.run("%config MWMagic.restarts = 3")
    told = kernel.run("%mw_cluster 2").text
    assert told == "updated the cluster 'cluster': restarts 3 (was 1)\n"
    assert "restarts 2 (was 3)" in kernel.run("%mw_cluster 2 --restarts 2").text, (
        "what is typed holds"
    )
    assert "reusing the cluster" in kernel.run("%mw_cluster 2").text, "and stays"
