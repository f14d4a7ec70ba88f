"""Which task a failure is put down to, from the ends of processes."""

from __future__ import annotations

import errno
import json
from dataclasses import replace

import pytest

from mwmagic.diagnosis import Exit, diagnose, kind
from mwmagic.diagnosis.first import is_consequence
from mwmagic.diagnosis.known import KnownFailure, recognise
from mwmagic.diagnosis.running import REMARKS, STALLS
from mwmagic.diagnosis.table import ENTRIES, KNOWN
from mwmagic.gang import FailureKind
from mwmagic.model.findings import Cause, Finding, Symptom
from mwmagic.words.failure import explain, headline

# As TensorFlow 2.21 and JAX 0.10 say it.
RESET = (
    "Graph execution error:\n\nDetected at node CollectiveReduceV2 defined at (most recent call "
    'last):\n  File "main.py", line 9, in <module>\n\nCollective ops is aborted by: '
    "recvmsg:Connection reset by peer\nAdditional GRPC error information from remote target "
    "/job:worker/replica:0/task:1 while calling /tensorflow.WorkerService/RecvBuf:\n"
    ':UNKNOWN:Error received from peer  {grpc_status:14, grpc_message:"recvmsg:Connection reset '
    'by peer"}\nThe error could be from a previous operation. Restart your program to reset.'
)
UNHEALTHY = (
    "Collective ops is aborted by: Error reported from /job:worker/task:1: The following tasks "
    "are unhealthy (stopped sending heartbeats):\n/job:worker/replica:0/task:1\nThe tasks have "
    "crashed. Check the task logs for an earlier error, or scheduler events to debug further."
)
NO_LEADER = (
    "Collective ops is aborted by: Deadline Exceeded\n\n"
    "RPC: /tensorflow.CoordinationService/Heartbeat"
)
MISMATCH = (
    "Collective ops is aborted by: Collective instance 120 expected type 0 and data_type 9 but "
    "got type 0 and data_type 1"
)
JAX = (
    "F1121 04:04:52.315532    4511 client.h:80] Terminating process because the JAX distributed "
    "service detected fatal errors. This most likely indicates that another task died; see the "
    "other task logs for more details. absl::Status: UNAVAILABLE: The following tasks are "
    "unhealthy (stopped sending heartbeats):\n1\nThe tasks have crashed."
)


def raised(kind, message="", time=1.0, source=""):
    where = {"file": "main.py", "line": 9, "function": "<module>", "source": source}
    return {"type": kind, "message": message, "time": time, "where": where}


def end(index, code=1, *, time=2.0, signal=None, **fields):
    return Exit(f"worker:{index}", 1, None if signal else code, signal, time, **fields)


def hurt(index, message=RESET, *, time=1.0, source=""):
    return end(index, report=raised("UnavailableError", message, time, source), time=time + 1)


def test_nobody_failed():
    assert diagnose([]) is None
    assert diagnose([end(0, 0), end(1, signal=9, ended=True)]) is None


@pytest.mark.parametrize("order", [1, -1])
def test_the_first_failure_is_what_was_raised_first_not_what_ended_first(order):
    late = end(0, report=raised("ValueError", "bad", time=1.0), time=3.0)
    early = end(1, signal=9, time=1.02)
    cause = diagnose([late, early][::order])
    assert (cause.task, cause.exception) == ("worker:0", "ValueError: bad")
    assert cause.consequences == ()


@pytest.mark.parametrize("message", [RESET, UNHEALTHY, NO_LEADER])
def test_a_consequence_is_not_blamed_however_early(message):
    cause = diagnose([hurt(0, message, time=0.5), hurt(2, message, time=0.6), end(1, signal=9)])
    assert cause.finding == Finding(Symptom.KILLED, "worker:1", signal=9)
    assert cause.consequences == ("worker:0", "worker:2")


def test_many_consequences_are_counted():
    cause = diagnose([*(hurt(index) for index in range(2, 5000)), end(1, signal=9)])
    assert len(cause.consequences) == 4998
    assert "worker:9 and 4990 more failed as a consequence." in explain(cause)[4]


def test_a_task_that_says_why_it_ends_may_be_ended_before_it_has():
    killed = end(0, signal=9, report=raised("UnavailableError", RESET, time=0.9))
    assert is_consequence(killed)
    assert diagnose([killed, end(1, 3)]).task == "worker:1"


def test_a_mismatch_is_never_a_consequence():
    cause = diagnose([end(1, report=raised("InternalError", MISMATCH))])
    assert (cause.task, cause.known) == ("worker:1", "uneven-steps")


@pytest.mark.parametrize(
    ("message", "blamed"), [(RESET, 1), (UNHEALTHY, 1), (NO_LEADER, 0), ("Socket closed", None)]
)
def test_only_consequences_name_the_task_that_caused_them(message, blamed):
    others = [index for index in range(3) if index != blamed]
    ends = [hurt(index, message) for index in others]
    if blamed is not None:
        ends.append(end(blamed, signal=9, ended=True, time=5.0))
    cause = diagnose(ends)
    if blamed is None:
        assert cause.finding == Finding(Symptom.EXITED, "worker:0", code=1)
        assert cause.consequences == ("worker:1", "worker:2")
    else:
        assert cause.task == f"worker:{blamed}"
        assert cause.symptom is Symptom.SILENT
        assert cause.known == "silent"
        assert cause.consequences == tuple(f"worker:{index}" for index in others)


def test_a_machine_that_did_not_answer_is_the_cause_of_consequences():
    cut = {"away": "b", "unanswered": 8.0}
    beside = end(2, signal=9, ended=True, away="b")
    for ends in (
        [hurt(0, UNHEALTHY), replace(hurt(1, NO_LEADER), **cut), beside],
        [hurt(0, UNHEALTHY), end(1, signal=9, ended=True, **cut), beside],
    ):
        cause = diagnose(ends)
        assert (cause.task, cause.known) == ("worker:1", "cut-off")
        assert cause.consequences[0] == "worker:0"
        said = "host b with worker:1, worker:2 did not answer for 8.0 s"
        assert headline(cause) == said


def test_a_machine_that_fell_silent_as_its_task_finished_is_the_cause():
    finished = end(1, 0, time=0.5, away="b", unanswered=1.6)
    cause = diagnose([hurt(0, UNHEALTHY), finished])
    assert (cause.task, cause.known, cause.consequences) == ("worker:1", "cut-off", ("worker:0",))
    answered = replace(finished, unanswered=0.9)
    assert diagnose([hurt(0, UNHEALTHY), answered]).symptom is Symptom.FINISHED_EARLY


def test_a_machine_that_did_not_answer_is_not_the_cause_of_other_failures():
    late = {"away": "b", "unanswered": 3.0}
    assert diagnose([hurt(0), end(1, 0, time=0.5, **late)]).symptom is Symptom.FINISHED_EARLY
    stopped = end(1, signal=9, ended=True, stopped=True, **late)
    assert diagnose([hurt(0, UNHEALTHY), stopped]).symptom is Symptom.STOPPED_BY_SIGNAL
    assert diagnose([hurt(0), end(1, 3, **late)]).symptom is Symptom.EXITED
    assert diagnose([hurt(0), replace(hurt(1), away="b", unanswered=0.9)]).task == "worker:0"


def test_two_tasks_on_different_machines_that_blame_each_other_lost_each_other():
    def on(index, message, away, time=1.0):
        return replace(hurt(index, message, time=time, source="fit()"), away=away)

    of_zero = RESET.replace("task:1", "task:0")
    for late in (NO_LEADER, of_zero):  # what a worker says of the leader, and of any peer
        pair = [on(0, UNHEALTHY, None, 1.1), on(1, late, "b")]
        for ends in (pair, [*pair, on(2, UNHEALTHY, "c", 1.2)]):
            cause = diagnose(ends)
            expected = Finding(Symptom.LOST_EACH_OTHER, "worker:1", peer="worker:0")
            assert (cause.finding, cause.known) == (expected, "lost-each-other")
            assert cause.consequences == tuple(end.task for end in ends[2:])
            assert cause.where.source == "fit()"
            said = "worker:1 and worker:0 lost each other: each reports that the other is gone"
            assert headline(cause) == said


def test_tasks_that_do_not_blame_each_other_did_not_lose_each_other():
    of_zero, of_two = (RESET.replace("task:1", f"task:{index}") for index in (0, 2))

    def symptom(*ends):
        placed = (replace(end, away=away) for end, away in zip(ends, "abc", strict=False))
        return diagnose(list(placed)).symptom

    assert symptom(hurt(0, UNHEALTHY), hurt(1, "Socket closed")) is Symptom.EXITED
    assert symptom(hurt(0, RESET), hurt(1, of_zero), end(2, signal=9)) is Symptom.KILLED
    asked = end(2, signal=9, ended=True)
    assert symptom(hurt(0, of_two), hurt(1, of_two), asked) is Symptom.SILENT
    here = [hurt(0, RESET), hurt(1, of_zero)]
    assert diagnose(here).symptom is Symptom.EXITED


def test_a_stopped_process_is_reported():
    stopped = end(1, signal=9, ended=True, stopped=True)
    cause = diagnose([hurt(0, UNHEALTHY), stopped])
    assert (cause.symptom, cause.known) == (Symptom.STOPPED_BY_SIGNAL, "stopped")


@pytest.mark.parametrize(
    ("source", "symptom", "known"),
    [
        ("total()", Symptom.FINISHED_EARLY, "left-early"),
        ("saver.save('x')", Symptom.FINISHED_DURING_SAVE, "save-on-one"),
    ],
)
def test_a_task_that_finished_early_is_to_blame(source, symptom, known):
    cause = diagnose([hurt(0, source=source, time=1.0), end(1, 0, time=0.5)])
    assert (cause.task, cause.known, cause.consequences) == ("worker:1", known, ("worker:0",))
    assert (cause.symptom, cause.finding.peer) == (symptom, "worker:0")
    assert explain(cause)[1:3] == [
        "  worker:0 was at main.py, line 9, in <module>",
        f"    {source}",
    ]


def test_the_lines_of_a_task_that_finished_early_are_its_own():
    tail = "one\nmwmagic: repaired Keras 3.15.1 for several workers\ntwo\n"
    cause = diagnose([hurt(0), end(1, 0, time=0.5, tail=tail)])
    assert cause.log == ("one", "two")


def test_jax_names_ranks_and_aborts():
    aborted = end(0, signal=6, tail=JAX)
    assert kind(aborted) is FailureKind.CONSEQUENCE
    cause = diagnose([aborted, end(1, signal=9, ended=True)])
    assert (cause.task, cause.known) == ("worker:1", "silent")
    lost = end(
        0, report=raised("ValueError", "UNKNOWN: Gloo AllGather failed: Connection closed by peer")
    )
    assert is_consequence(lost)


def test_a_connection_of_the_users_own_is_no_consequence():
    own = end(0, report=raised("ConnectionRefusedError", "[Errno 111] Connection refused"))
    assert kind(own) is FailureKind.PRIMARY


@pytest.mark.parametrize(
    ("exit_", "expected"),
    [
        (
            end(0, report=raised("ModuleNotFoundError", "No module named 'x'")),
            FailureKind.PERMANENT,
        ),
        (end(0, report=raised("SyntaxError", "invalid syntax")), FailureKind.PERMANENT),
        (end(0, tail="E0000 add_port.cc:83] Failed to add port to server"), FailureKind.PORT),
        (end(0, None, detail="cannot run python: No such file"), FailureKind.PERMANENT),
        (end(0, None, host="a", lost=True), FailureKind.PRIMARY),
        (
            end(0, detail="processes [7] could not be ended and may still write"),
            FailureKind.PRIMARY,
        ),
        (end(0, signal=9), FailureKind.PRIMARY),
        (end(0, signal=9, ended=True), FailureKind.CONSEQUENCE),
    ],
)
def test_kinds(exit_, expected):
    assert kind(exit_) is expected


def test_how_a_process_ended():
    assert end(0, 3).finding == Finding(Symptom.EXITED, "worker:0", code=3)
    assert end(0, signal=9, oom=True).finding.symptom is Symptom.OUT_OF_MEMORY
    assert end(0, None).finding.symptom is Symptom.UNKNOWN
    assert end(0, None, detail="no file").finding.symptom is Symptom.NOT_STARTED
    lost = Finding(Symptom.AGENT_LOST, "worker:0", host="a")
    assert end(0, None, lost=True, host="a").finding == lost
    stalled = end(0, signal=9, stalled=7.0).finding
    assert (stalled.symptom, stalled.seconds) == (Symptom.STALLED, 7.0)
    assert end(0, signal=9, requested=True).finding.requested
    assert not end(0, 3, requested=True).finding.requested
    assert end(0, detail="the log lost 5 bytes").finding.detail == "the log lost 5 bytes"


def test_a_requested_signal_is_no_known_failure():
    assert diagnose([end(0, signal=9)]).known == "killed"
    assert diagnose([end(0, signal=9, requested=True)]).known is None


def test_why_a_process_could_not_be_started_is_recognised():
    full = {"detail": "cannot write the log x: No space left on device", "errno": errno.ENOSPC}
    assert diagnose([end(0, None, **full)]).known == "disk-full"


def test_an_agents_own_words_are_no_sign():
    cause = diagnose([end(0, None, detail="cannot enter /No space left on device: Is a file")])
    assert cause.known is None


def test_a_finding_matches_by_its_symptom_and_the_fields_that_are_set():
    table = [
        KnownFailure("a", "", "", "", "", symptoms=(Finding(Symptom.KILLED, signal=9),)),
        KnownFailure("b", "", "", "", "", symptoms=(Finding(Symptom.KILLED),)),
    ]
    killed = Finding(Symptom.KILLED, "worker:0", signal=9)
    assert recognise(table, [killed]).known.name == "a"
    assert recognise(table, [Finding(Symptom.KILLED, signal=15)]).known.name == "b"
    assert recognise(table, [Finding(Symptom.EXITED, code=9)]) is None
    assert recognise(table, ["killed by SIGKILL"]) is None, "our own words are no evidence"


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        7,
        [],
        {},
        {"finding": 7},
        {"finding": {"symptom": []}},
        {"finding": {"code": "x"}},
        {"where": 3, "consequences": 5, "log": {"a": 1}, "newer": True},
    ],
)
def test_a_damaged_cause_reads_as_an_unknown_one(damaged):
    cause = Cause.from_json(damaged)
    assert cause.symptom is Symptom.UNKNOWN
    assert explain(cause)


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (raised("ValueError", "bad"), 1),
        (raised("SystemExit", "3"), 3),
        (raised("SystemExit", "no data"), 1),
    ],
)
def test_a_task_that_failed_before_it_was_ended_is_said_to_have_failed(report, code):
    found = end(0, signal=9, cut=True, report=report).finding
    assert found == Finding(Symptom.EXITED, "worker:0", code=code)


def test_a_program_that_prints_a_consequence_and_exits_is_not_the_cause():
    printed = f"training failed: {RESET}"
    caught = end(0, report=raised("SystemExit", "1", time=1.0), tail=printed)
    lost = end(1, None, time=6.0, lost=True, away="h52")
    assert diagnose([caught, lost]).finding.task == "worker:1"
    assert kind(end(0, report=raised("SystemExit", "1"), tail="no data")) is FailureKind.PRIMARY


def test_an_exception_is_reported_without_dumps():
    message = (
        "Attempt to convert a value (PerReplica:{\n  0: <tf.Tensor: shape=(2, 4), numpy=\n"
        "array([[0., 0.]])>\n}) with an unsupported type (<class 'PerReplica'>) to a Tensor."
    )
    assert end(0, report=raised("ValueError", message)).exception == (
        "ValueError: Attempt to convert a value (PerReplica:{...}) with an unsupported type "
        "(<class 'PerReplica'>) to a Tensor."
    )
    told = end(0, report=raised("UnavailableError", RESET)).exception.split("\n")
    assert told[0] == (
        "UnavailableError: Collective ops is aborted by: recvmsg:Connection reset by peer"
    )
    assert end(0, report=raised("KeyboardInterrupt")).exception == "KeyboardInterrupt"
    assert end(0, 3, report=raised("SystemExit", "3")).exception is None
    assert end(0, report=raised("SystemExit", "no data")).exception == "SystemExit: no data"


def test_an_exception_is_reported_whole_up_to_a_few_lines():
    told = end(0, report=raised("ValueError", "one\n\n  two\nthree")).exception
    assert told == "ValueError: one\n  two\nthree"
    long = end(0, report=raised("ValueError", "\n".join(map(str, range(99))))).exception
    assert long == "ValueError: 0\n1\n2\n3\n4\n5\n..."
    assert len(end(0, report=raised("ValueError", "x" * 9000)).exception) < 1300
    cause = diagnose([end(0, report=raised("ValueError", "one\ntwo"))])
    assert explain(cause)[:2] == ["worker:0 exited with code 1: ValueError: one", "    two"]


def chained(**fields):
    """A report of an exception that came from another."""
    origin = {**raised("OSError", "Connection reset by peer"), **fields}
    return {**raised("RuntimeError", "no data"), "origins": [origin]}


def test_what_an_exception_came_from_is_reported_with_its_line():
    cause = diagnose([end(0, report=chained())])
    assert explain(cause) == [
        "worker:0 exited with code 1: RuntimeError: no data",
        "  at main.py, line 9, in <module>",
        "  It came from OSError: Connection reset by peer",
        "  at main.py, line 9, in <module>",
    ]
    assert Cause.from_json(json.loads(json.dumps(cause.as_json()))) == cause
    handled = diagnose([end(0, report=chained(handled=True, where=None))])
    assert explain(handled)[2:] == [
        "  It was raised while handling OSError: Connection reset by peer"
    ]


def test_what_an_exception_was_raised_from_says_what_kind_of_failure_it_is():
    assert kind(end(0, report=chained(type="UnavailableError"))) is FailureKind.CONSEQUENCE
    assert kind(end(0, report=chained(type="ConnectionResetError"))) is FailureKind.PRIMARY
    assert kind(end(0, report=chained(type="ImportError"))) is FailureKind.PERMANENT
    handled = end(0, report=chained(type="ImportError", handled=True))
    assert kind(handled) is FailureKind.PRIMARY


def test_the_files_of_a_report_are_evidence_if_the_traceback_was_never_printed():
    files = ["/home/me/main.py", "/lib/tensorflow/kubernetes_cluster_resolver.py"]
    report = {**raised("ImportError", "The client must be installed"), "files": files}
    assert diagnose([end(0, report=report)]).known == "other-resolver"
    assert diagnose([end(0, report={**report, "files": 3})]).known is None


@pytest.mark.parametrize("origins", [None, 3, "x", [3], [{}], [{"where": 3}], [{"origins": 3}]])
def test_a_report_may_hold_anything(origins):
    report = {**raised("ValueError", "bad"), "origins": origins, "where": {"line": "x"}}
    assert diagnose([end(0, report=report)]).exception == "ValueError: bad"


def test_without_a_report_the_log_tells():
    tail = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n"
        '  File "/lib/python3.11/ctypes/__init__.py", line 519 in string_at\n'
        '  File "/home/me/main.py", line 2 in <module>\n'
    )
    cause = diagnose([end(0, signal=11, tail=tail, script="/home/me/main.py")])
    assert (cause.symptom, cause.finding.signal) == (Symptom.KILLED, 11)
    assert cause.known == "crash"
    assert (cause.where.file, cause.where.line) == ("/home/me/main.py", 2)


def test_a_line_of_a_cell_is_reported_as_the_notebook_counts_it():
    report = raised("ValueError", "bad")
    told = diagnose([end(0, report=report, script="main.py", cell="In [7]")])
    assert explain(told)[1] == "  at main.py, line 9 (In [7], line 10), in <module>"
    other = diagnose([end(0, report=report, script="/elsewhere/main.py", cell="In [7]")])
    assert explain(other)[1] == "  at main.py, line 9, in <module>"


def test_the_log_of_a_cause_has_no_notices():
    notice = "I0000 00:00:1795.1 42 grpc_server_lib.cc:467] Started server with target: grpc://a:1"
    cause = diagnose([end(0, signal=9, tail=f"one\n{notice}\n\ntwo\n")])
    assert cause.log == ("one", "two")
    assert explain(cause)[-3:] == ["  The last lines that worker:0 printed:", "    one", "    two"]


def test_a_cause_says_it_all_and_survives_json():
    cause = diagnose(
        [
            end(
                0,
                report=raised("ModuleNotFoundError", "No module named 'x.y'", source="import x.y"),
            ),
            hurt(1),
        ]
    )
    assert explain(cause) == [
        "worker:0 exited with code 1: ModuleNotFoundError: No module named 'x.y'",
        "  at main.py, line 9, in <module>",
        "    import x.y",
        f"  {ENTRIES['module-missing'].meaning.format('x.y')}",
        f"  Try: {ENTRIES['module-missing'].remedy.format('x.y')}.",
        "  See https://ipython.readthedocs.io/en/stable/interactive/magics.html#magic-pip",
        "  worker:1 failed as a consequence.",
    ]
    assert cause.gaps == ("x.y",)
    assert Cause.from_json(json.loads(json.dumps(cause.as_json()))) == cause


def test_signs_match_literally_but_for_their_gaps():
    table = [
        KnownFailure("a", "", "", "", "", signs=("in (a.b) ... of ...",)),
        KnownFailure("b", "", "", "", "", signs=("b",)),
    ]
    found = recognise(table, ["nothing", "b\nin (a.b) x of y z\nmore"])
    assert (found.known.name, found.gaps) == ("a", ("x", "y z"))
    assert recognise(table, ["in (aXb) x of y", "b"]).known.name == "b"
    assert recognise(table, ["in (aX) x of y"]) is None


def test_every_entry_is_whole():
    entries = (*KNOWN, *REMARKS, *STALLS)
    assert len({known.name for known in entries}) == len(entries)
    for known in entries:
        assert known.signs or known.symptoms
        assert known.link.startswith("https://")
        assert known.meaning.endswith(".")
        assert not known.remedy.endswith(".")
