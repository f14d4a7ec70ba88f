import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
from gangs import Gang

from mwmagic.worker import bootstrap, runtime
from mwmagic.worker.runtime import configure_heartbeat, outlast_sleep

SCRIPT = Path(__file__).parent / "coordinated_worker.py"
PARTING = SCRIPT.with_name("parting_worker.py")


class Context:
    def configure_coordination_service(
        self, service_type, coordinated_jobs=None, heartbeat_timeout_in_ms=0
    ):
        return heartbeat_timeout_in_ms


def jobs(*names):
    return [SimpleNamespace(name=name) for name in names]


@pytest.fixture
def context():
    """Stand in for TensorFlow's module, with its class and signature."""
    return SimpleNamespace(Context=type("Context", (Context,), dict(vars(Context))))


@pytest.mark.parametrize("names", [["worker"], ["chief", "worker"], ["chief"]])
def test_a_strategy_of_workers_gets_the_timeout(context, names):
    configure_heartbeat(2.5, context)
    configured = context.Context().configure_coordination_service(
        service_type="standalone", coordinated_jobs=jobs(*names)
    )
    assert configured == 2500


def test_a_session_outlasts_a_machine_that_sleeps(context, monkeypatch):
    configure_heartbeat(2.5, context)
    monkeypatch.setattr(runtime, "_least_seconds", 0.0)
    outlast_sleep()
    configure = context.Context().configure_coordination_service
    assert configure("standalone", coordinated_jobs=jobs("worker")) == 24 * 60 * 60 * 1000


def test_parameter_servers_and_the_users_own_choice_are_left_alone(context):
    configure_heartbeat(2.5, context)
    configure = context.Context().configure_coordination_service
    assert configure("standalone", coordinated_jobs=jobs("worker", "ps")) == 0
    assert configure("standalone", coordinated_jobs=jobs("worker"), heartbeat_timeout_in_ms=7) == 7
    assert configure("") == 0


@pytest.mark.parametrize("members", [{}, {"configure_coordination_service": lambda self: None}])
def test_another_interface_is_left_alone(members):
    context = SimpleNamespace(Context=type("Context", (), members))
    configure_heartbeat(2.5, context)
    assert {k: v for k, v in vars(context.Context).items() if not k.startswith("__")} == members


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("first", ["worker", "chief"])
def test_the_installed_tensorflow_has_the_setting_and_notices_a_stopped_peer(tmp_path, first):
    with Gang(tmp_path, SCRIPT, [tmp_path, 2], first=first) as gang:
        gang.until(lambda: len(list(tmp_path.glob("ready-*"))) == 2)
        [takes] = [line for line in gang.text(0).splitlines() if line.startswith("takes ")]
        assert {"heartbeat_timeout_in_ms", "coordinated_jobs"} <= set(takes.split())
        assert f"timeout 2000 /job:{first}/replica:0/task:0" in gang.text(0)
        os.kill(gang.processes[1].pid, signal.SIGSTOP)
        gang.until(lambda: gang.processes[0].poll() is not None)
        assert gang.processes[0].returncode != 0
        assert "heartbeat" in gang.text(0)


@pytest.mark.slow
@pytest.mark.tensorflow
def test_the_leader_ends_last(tmp_path):
    """If it ended first, a peer's next heartbeat would fail, and its log end with an error."""
    beats = {"MWMAGIC_HEARTBEAT": "1"}
    with Gang(tmp_path, bootstrap.__file__, [PARTING, 1.5], first="chief", env=beats) as gang:
        assert gang.wait() == [0, 0]
        assert "UNAVAILABLE" not in gang.text(1)


@pytest.mark.slow
@pytest.mark.tensorflow
def test_the_leader_does_not_wait_for_ever(tmp_path):
    with Gang(tmp_path, bootstrap.__file__, [PARTING, 600], first="chief") as gang:
        gang.until(lambda: gang.processes[0].poll() is not None)
        assert gang.processes[0].returncode == 0
        assert gang.processes[1].poll() is None
