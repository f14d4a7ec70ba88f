import math

import pytest

from mwmagic.gang import (
    PORT_TRIES,
    REPLACEMENT_TRIES,
    Backoff,
    CancelTimer,
    Deadline,
    EndAll,
    Ended,
    EndTask,
    Exited,
    Failing,
    FailureKind,
    Gang,
    KillAgain,
    Launched,
    Policy,
    ProgramsOver,
    Rebind,
    Restart,
    RestartTask,
    Role,
    SetTimer,
    StartTask,
    Stop,
    Timer,
    TrainingPoint,
    roles,
)
from mwmagic.model.cluster import Task, make_tasks
from mwmagic.model.status import STUCK_TRIES, GivenUp, RunState
from mwmagic.model.variables import RESUME_CODE

CHIEF, PS, EVALUATOR = Task("chief", 0), Task("ps", 0), Task("evaluator", 0)
W0, W1, W2 = (Task("worker", index) for index in range(3))
at = TrainingPoint
USED_UP = Ended(RunState.FAILED, GivenUp.RESTARTS)
STUCK = Ended(RunState.FAILED, GivenUp.PROGRESS)
SERVED = {"workers": 2, "chief": True, "ps": 1}


def forming(workers=2, *, chief=False, ps=0, evaluator=False, **policy):
    tasks = make_tasks(workers, chief=chief, ps=ps, evaluator=evaluator)
    return Gang(tasks, Policy(**policy), 100.0)


def running(workers=2, **options):
    gang = forming(workers, **options)
    for task in gang.tasks:
        gang.handle(Launched(task, 100.0))
    assert gang.state is RunState.RUNNING
    return gang


def exit_(gang, task, code=1, failure=FailureKind.PRIMARY, time=101.0):
    return gang.handle(Exited(task, gang.attempt, code, failure, time))


def exit_all(gang, code=None, failure=FailureKind.CONSEQUENCE, time=101.0):
    """Let all who are left go; return the last answer."""
    left = [task for task in gang.tasks if task in gang.alive]
    return [exit_(gang, task, code, failure, time) for task in left][-1]


def fail(gang, code=1, failure=FailureKind.PRIMARY, time=101.0):
    """Fail with the first task, end the others and return the last answer."""
    exit_(gang, gang.tasks[0], code, failure, time)
    return exit_all(gang, time=time)


def starts(gang, attempt=1):
    return [StartTask(task, attempt) for task in gang.tasks]


# Roles and policy.


def test_without_parameter_servers_every_worker_is_a_peer():
    assert roles(make_tasks(2, chief=True, evaluator=True)) == {
        CHIEF: Role.PEER,
        W0: Role.PEER,
        W1: Role.PEER,
        EVALUATOR: Role.EVALUATOR,
    }


def test_with_parameter_servers_the_coordinator_is_the_only_peer():
    assert roles(make_tasks(**SERVED)) == {
        CHIEF: Role.PEER,
        W0: Role.REPLACEABLE,
        W1: Role.REPLACEABLE,
        PS: Role.SERVER,
    }


def test_backoff_doubles_up_to_its_limit():
    policy = Policy(backoff=0.5, backoff_limit=3.0)
    assert [policy.delay(short) for short in range(6)] == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]
    assert policy.delay(10**9) == 3.0
    assert Policy(backoff=0.0).delay(10**9) == 0.0


# Forming.


def test_tasks_start_as_they_are_launched_and_the_last_completes_the_gang():
    gang = forming(3)
    assert gang.missing == (W0, W1, W2)
    assert gang.handle(Launched(W1)) == [StartTask(W1, 1)]
    assert gang.handle(Launched(W0)) == [StartTask(W0, 1)]
    assert (gang.state, gang.missing, gang.alive) == (RunState.FORMING, (W2,), {W0, W1})
    assert gang.launched(W1)
    assert not gang.launched(W2)
    assert gang.handle(Launched(W2)) == [StartTask(W2, 1)]
    assert (gang.state, gang.missing) == (RunState.RUNNING, ())


def test_a_task_launched_again_while_others_are_missing_is_replaced():
    gang = forming()
    gang.handle(Launched(W0))
    assert gang.handle(Launched(W0)) == [EndTask(W0, 1, 0.0), SetTimer(KillAgain(W0), 2.0)]
    assert gang.alive == {W0}
    assert gang.handle(Timer(KillAgain(W0))) == [EndTask(W0, 1, 0.0), SetTimer(KillAgain(W0), 2.0)]
    assert exit_(gang, W0, 1) == [StartTask(W0, 1)]
    assert gang.handle(Timer(KillAgain(W0))) == []
    assert gang.handle(Launched(W1)) == [StartTask(W1, 1)]
    assert gang.state is RunState.RUNNING


def test_a_task_that_is_gone_starts_again_when_launched_again():
    gang = forming()
    gang.handle(Launched(W0))
    assert exit_(gang, W0, 0) == []
    assert gang.handle(Launched(W0)) == [StartTask(W0, 1)]
    gang.handle(Launched(W1))
    assert exit_(gang, W1, 0) == []
    assert exit_(gang, W0, 0) == [Ended(RunState.FINISHED)]


def test_a_replacement_that_the_old_process_outlives_is_judged_by_its_own_exit():
    gang = forming(restarts=1)
    gang.handle(Launched(W0))
    gang.handle(Launched(W0))
    gang.handle(Stop(time=100.5))
    assert exit_(gang, W0, None, FailureKind.CONSEQUENCE) == [
        CancelTimer(Deadline()),
        Ended(RunState.STOPPED),
    ]


def test_a_replacement_is_forgotten_when_the_gang_fails_first():
    gang = forming(3, restarts=2)
    gang.handle(Launched(W0))
    gang.handle(Launched(W1))
    gang.handle(Launched(W0))
    exit_(gang, W1)
    exit_(gang, W0)
    assert gang.handle(Timer(Backoff(), 102.0)) == [StartTask(W0, 2), StartTask(W1, 2)]
    assert gang.state is RunState.FORMING
    assert exit_(gang, W0, time=103.0) == [EndAll(2, 0.0), SetTimer(Deadline(), 2.0)]


def test_a_failure_while_others_are_missing_is_retried_without_them():
    gang = forming(restarts=1)
    gang.handle(Launched(W0))
    assert exit_(gang, W0) == [SetTimer(Backoff(), 0.0)]
    assert gang.handle(Timer(Backoff())) == [StartTask(W0, 2)]
    assert gang.state is RunState.FORMING
    assert gang.handle(Launched(W1)) == [StartTask(W1, 2)]
    assert gang.state is RunState.RUNNING


@pytest.mark.parametrize("state", [RunState.ENDING, RunState.BACKOFF])
def test_a_task_launched_between_attempts_starts_with_the_next(state):
    gang = forming(3, restarts=1)
    gang.handle(Launched(W0))
    gang.handle(Launched(W1))
    exit_(gang, W0)
    if state is RunState.BACKOFF:
        exit_(gang, W1)
    assert gang.state is state
    assert gang.handle(Launched(W2)) == []
    exit_(gang, W1)
    assert gang.handle(Timer(Backoff())) == starts(gang, 2)
    assert gang.state is RunState.RUNNING


def test_a_launch_while_all_run_changes_nothing():
    gang = running()
    assert gang.handle(Launched(W0)) == []
    exit_(gang, W0, 0)
    assert gang.handle(Launched(W0)) == []
    assert gang.alive == {W1}


# The end of a good run.


def test_the_run_is_finished_when_every_peer_is():
    gang = running()
    assert exit_(gang, W1, 0) == []
    assert gang.state is RunState.RUNNING
    assert exit_(gang, W0, 0) == [Ended(RunState.FINISHED)]
    assert gang.handle(Stop()) == gang.handle(Restart()) == gang.handle(Launched(W0)) == []
    assert gang.state is RunState.FINISHED


def test_an_evaluator_finishes_when_training_is_done():
    gang = running(**SERVED, evaluator=True, grace=4.0, evaluation=50.0)
    assert exit_(gang, CHIEF, 0) == [SetTimer(Deadline(), 50.0)]
    assert gang.evaluating
    assert exit_(gang, PS, 1) == exit_(gang, W0, 1) == [], "they are needed no more"
    assert gang.handle(Stop(W1)) == [EndTask(W1, 1, 4.0), SetTimer(KillAgain(W1), 6.0)]
    assert exit_(gang, EVALUATOR, 0) == [EndAll(1, 4.0), SetTimer(Deadline(), 6.0)]
    assert not gang.evaluating
    assert exit_all(gang) == [CancelTimer(Deadline()), Ended(RunState.FINISHED)]


@pytest.mark.parametrize("stop", [Stop(EVALUATOR, 7.0), Stop(None, 7.0)])
def test_an_endless_evaluator_is_stopped_or_runs_out_of_time(stop):
    gang = running(evaluator=True)
    assert exit_(gang, W0, 0) == []
    assert exit_(gang, W1, 0) == [SetTimer(Deadline(), 600.0)]
    assert gang.handle(stop) == [EndAll(1, 7.0), SetTimer(Deadline(), 9.0)]
    assert gang.handle(Timer(Deadline(), 110.0)) == [EndAll(1, 0.0), SetTimer(Deadline(), 2.0)]
    assert exit_(gang, EVALUATOR, None)[-1] == Ended(RunState.FINISHED)


def test_a_stopped_evaluator_holds_up_no_task():
    gang = running(1, evaluator=True)
    gang.handle(Stop(EVALUATOR))
    assert exit_(gang, W0, 0)[0] == EndAll(1, 3.0)


def test_a_parameter_server_is_ended_when_training_is_done():
    gang = running(**SERVED, grace=4.0)
    assert exit_(gang, CHIEF, 0) == [EndAll(1, 4.0), SetTimer(Deadline(), 6.0)]
    assert gang.handle(Timer(Deadline(), 107.0)) == [EndAll(1, 0.0), SetTimer(Deadline(), 2.0)]
    assert exit_all(gang, time=108.0) == [CancelTimer(Deadline()), Ended(RunState.FINISHED)]


def test_a_run_is_done_without_an_evaluator_that_was_never_launched():
    gang = forming(evaluator=True)
    gang.handle(Launched(W0))
    gang.handle(Launched(W1))
    exit_(gang, W0, 0)
    assert exit_(gang, W1, 0) == [Ended(RunState.FINISHED)]


def test_a_peer_that_is_done_early_is_not_a_failure_but_starts_again_with_the_others():
    gang = running(restarts=1)
    assert exit_(gang, W0, 0) == []
    assert exit_(gang, W1, 1, FailureKind.CONSEQUENCE, 110.0) == [SetTimer(Backoff(), 0.0)]
    assert gang.handle(Timer(Backoff(), 111.0)) == starts(gang, 2)
    assert exit_(gang, W1, 0, time=112.0) == []
    assert exit_(gang, W0, 0, time=112.0) == [Ended(RunState.FINISHED)]


def test_failures_after_training_is_done_are_nobodys():
    gang = running(**SERVED)
    exit_(gang, CHIEF, 0)
    assert exit_(gang, PS, 1) == []
    assert exit_all(gang)[-1] == Ended(RunState.FINISHED)


# Failure.


def test_a_failure_ends_the_others_at_once_and_the_run_when_they_are_gone():
    gang = running(3)
    assert exit_(gang, W1) == [EndAll(1, 0.0), SetTimer(Deadline(), 2.0)]
    assert exit_(gang, W0, None, FailureKind.CONSEQUENCE) == []
    assert gang.handle(Timer(Deadline())) == [EndAll(1, 0.0), SetTimer(Deadline(), 2.0)]
    assert exit_(gang, W2, None, FailureKind.CONSEQUENCE) == [
        CancelTimer(Deadline()),
        Ended(RunState.FAILED),
    ]


@pytest.mark.parametrize("code", [1, 137, -9, None])
def test_anything_but_0_is_a_failure(code):
    gang = forming(1)
    gang.handle(Launched(W0))
    assert exit_(gang, W0, code) == [Ended(RunState.FAILED)]


def test_a_failure_is_retried_with_growing_backoff_up_to_the_limit():
    gang = running(restarts=3)
    for attempt, backoff in ((1, 0.0), (2, 0.5), (3, 1.0)):
        assert fail(gang)[-1] == SetTimer(Backoff(), backoff)
        assert (gang.state, gang.restarts) == (RunState.BACKOFF, attempt)
        assert gang.handle(Timer(Backoff(), 102.0)) == starts(gang, attempt + 1)
    assert fail(gang)[-1] == USED_UP
    assert (gang.attempt, gang.restarts) == (4, 3)


def attempt(gang, point, lasted=1.0):
    """Let an attempt come to a point and fail, and restart; return the delay or the end."""
    begun = gang.time
    first, *others = gang.tasks
    gang.handle(Exited(first, gang.attempt, 1, time=begun + lasted))  # it reports nothing
    for task in others:
        *_, last = gang.handle(Exited(task, gang.attempt, None, time=begun + lasted, reached=point))
    if isinstance(last, Ended):
        return last
    gang.handle(Timer(Backoff(), begun + lasted))
    return last.seconds


def delays(gang, *attempts):
    return [attempt(gang, *one) for one in attempts]


def test_an_attempt_that_does_not_get_as_far_as_the_last_one_is_followed_by_a_delay():
    first, second = at(1, 5), at(2, 1)
    gang = running(restarts=9)
    assert delays(gang, (first, 9.0), (second, 1.0)) == [0.0, 0.0]
    assert delays(gang, (first, 90.0), (at(), 90.0), (first, 1.0)) == [0.5, 1.0, STUCK]
    gang = running(restarts=9)
    assert delays(gang, (second,), (first,), (at(2, 0),), (at(3),)) == [
        0.0,
        0.5,
        0.0,
        0.0,
    ]


def test_where_no_step_is_known_the_time_counts():
    gang = running(restarts=9)
    assert delays(gang, (None, 5.0), (None, 5.5), (None, 4.0)) == [0.0, 0.5, 1.0]
    assert delays(gang, (None, 5.0), (at(1, 1), 1.0), (None, 9.0)) == [0.0, 0.5, 0.0]
    assert delays(gang, (at(1, 2), 1.0), (at(1, 2), 1.0)) == [0.5, 0.0]


def test_attempts_without_a_new_step_end_the_run_and_unknown_progress_is_not_none():
    gang = running(restarts=99, healthy=5.0)
    long = (at(3, 5), 600.0)
    assert delays(gang, long, *[long] * STUCK_TRIES)[-1] == STUCK
    gang = running(restarts=99)
    assert delays(gang, *[(None,)] * 9)[-1] == 30.0
    gang = running(restarts=99)
    same = (at(1, 1),)
    assert STUCK not in delays(gang, same, same, same, (None,), same, same, (at(1, 2),), same, same)
    assert attempt(gang, *same) == STUCK


def test_a_process_that_saved_made_progress_and_a_restart_on_request_begins_again():
    gang = running(restarts=99)
    point = at(1, 1)
    delays(gang, (point,), (point,), (point,))
    gang.handle(Exited(W0, gang.attempt, RESUME_CODE, time=gang.time + 60.0, reached=point))
    gang.handle(Exited(W1, gang.attempt, RESUME_CODE, time=gang.time, reached=point))
    gang.handle(Timer(Backoff(), gang.time))
    assert delays(gang, (point,), (point,)) == [0.0, 0.0]
    gang.handle(Restart(gang.time))
    exit_all(gang, time=gang.time)
    assert delays(gang, (at(),), (at(),), (at(),)) == [0.0, 0.0, 0.0]


def test_an_evaluator_does_not_train_and_a_taken_port_is_no_attempt():
    gang = running(1, evaluator=True, restarts=9)
    for _ in range(STUCK_TRIES):
        begun = gang.time
        gang.handle(Exited(EVALUATOR, gang.attempt, 0, time=begun, reached=at(9, 9)))
        (last,) = gang.handle(Exited(W0, gang.attempt, 1, time=begun, reached=at(1, 1)))
        gang.handle(Timer(last.due, begun))
    assert gang.progress.stuck == STUCK_TRIES - 1
    gang.handle(Exited(EVALUATOR, gang.attempt, 0, time=gang.time))
    taken = Exited(W0, gang.attempt, 1, FailureKind.PORT, gang.time, at(1, 1))
    assert Rebind() in gang.handle(taken)
    assert gang.progress.stuck == STUCK_TRIES - 1


def test_a_healthy_attempt_gives_the_restarts_back():
    gang = running(restarts=1, healthy=60.0)
    fail(gang)
    gang.handle(Timer(Backoff(), 200.0))
    assert fail(gang, time=261.0)[-1] == SetTimer(Backoff(), 0.0)
    gang.handle(Timer(Backoff(), 300.0))
    assert fail(gang, time=359.0)[-1] == USED_UP


def test_an_attempt_is_as_old_as_its_failure_not_as_its_last_exit():
    gang = running(restarts=1, healthy=60.0)
    fail(gang)
    gang.handle(Timer(Backoff(), 200.0))
    exit_(gang, W0, time=201.0)
    assert exit_(gang, W1, time=400.0)[-1] == USED_UP


def test_waiting_for_a_launch_makes_no_attempt_healthy():
    gang = forming(restarts=1, healthy=60.0)
    gang.handle(Launched(W0, 100.0))
    exit_(gang, W0)
    gang.handle(Timer(Backoff(), 102.0))
    gang.handle(Launched(W1, 500.0))
    assert fail(gang, time=501.0)[-1] == USED_UP


def test_what_cannot_succeed_is_not_retried():
    gang = running(restarts=3)
    assert fail(gang, failure=FailureKind.PERMANENT)[-1] == Ended(RunState.FAILED)


def test_what_cannot_succeed_decides_also_when_it_comes_second():
    gang = running(3, restarts=3)
    exit_(gang, W0)
    exit_(gang, W1, 1, FailureKind.PERMANENT)
    assert exit_all(gang)[-1] == Ended(RunState.FAILED)


def test_exits_of_an_earlier_attempt_and_second_reports_are_ignored():
    gang = running(restarts=1)
    first = Exited(W0, 1, 1, time=101.0)
    gang.handle(first)
    assert gang.handle(first) == []
    exit_all(gang)
    assert gang.handle(first) == []
    gang.handle(Timer(Backoff()))
    assert gang.handle(first) == []
    assert (gang.state, gang.alive) == (RunState.RUNNING, {W0, W1})


def test_timers_of_another_time_are_ignored():
    gang = running(**SERVED)
    dues = (Backoff(), Deadline(), RestartTask(W0), KillAgain(W0))
    assert [gang.handle(Timer(due)) for due in dues] == [[], [], [], []]


# Consequences.


def test_after_a_consequence_the_true_cause_gets_time_to_come():
    gang = running(3, settle=0.4)
    assert exit_(gang, W0, 1, FailureKind.CONSEQUENCE) == [SetTimer(Deadline(), 0.4)]
    assert exit_(gang, W1, 1, FailureKind.CONSEQUENCE) == []
    assert exit_(gang, W2, 1, FailureKind.PERMANENT) == [
        CancelTimer(Deadline()),
        Ended(RunState.FAILED),
    ]


def test_the_true_cause_ends_the_wait_for_it():
    gang = running(3)
    exit_(gang, W0, 1, FailureKind.CONSEQUENCE)
    assert exit_(gang, W1) == [EndAll(1, 0.0), SetTimer(Deadline(), 2.0)]


def test_a_consequence_alone_is_a_failure_when_no_cause_comes():
    gang = running(restarts=1)
    exit_(gang, W0, 1, FailureKind.CONSEQUENCE)
    assert gang.handle(Timer(Deadline())) == [EndAll(1, 0.0), SetTimer(Deadline(), 2.0)]
    assert exit_all(gang)[-1] == SetTimer(Backoff(), 0.0)


def test_an_evaluators_crash_is_not_the_cause():
    gang = running(3, evaluator=True)
    exit_(gang, W0, 1, FailureKind.CONSEQUENCE)
    assert exit_(gang, EVALUATOR) == []
    assert gang.handle(Timer(Deadline()))


# Taken ports.


def test_a_taken_port_moves_the_gang_once_all_are_gone():
    gang = running()
    assert exit_(gang, W0, 1, FailureKind.PORT) == [EndAll(1, 0.0), SetTimer(Deadline(), 2.0)]
    assert exit_all(gang) == [CancelTimer(Deadline()), Rebind(), *starts(gang, 2)]
    assert (gang.state, gang.restarts) == (RunState.RUNNING, 0)


def test_ports_taken_again_and_again_are_a_failure():
    gang = running(restarts=1)
    for _ in range(PORT_TRIES):
        assert Rebind() in fail(gang, failure=FailureKind.PORT)
    assert fail(gang, failure=FailureKind.PORT)[-1] == SetTimer(Backoff(), 0.0)
    gang.handle(Timer(Backoff()))
    for _ in range(PORT_TRIES):
        assert Rebind() in fail(gang, failure=FailureKind.PORT)
    assert fail(gang, failure=FailureKind.PORT)[-1] == USED_UP


def test_a_taken_port_decides_over_other_failures():
    gang = running(3)
    exit_(gang, W0)
    exit_(gang, W1, 1, FailureKind.PORT)
    assert Rebind() in exit_all(gang)


# Exit 42.


def test_exit_42_lets_the_others_save_and_resumes_without_counting():
    gang = running(3, resume=5.0, saving=20.0)
    assert exit_(gang, W0, RESUME_CODE, time=105.0) == [SetTimer(Deadline(), 20.0)]
    assert exit_(gang, W1, RESUME_CODE, time=105.5) == []
    assert exit_(gang, W2, RESUME_CODE, time=106.0) == [
        CancelTimer(Deadline()),
        SetTimer(Backoff(), 0.0),
    ]
    assert gang.handle(Timer(Backoff(), 106.0)) == starts(gang, 2)
    assert gang.restarts == 0


def test_a_task_that_does_not_save_in_time_is_ended_and_resumed():
    gang = running()
    exit_(gang, W0, RESUME_CODE, time=110.0)
    assert gang.handle(Timer(Deadline(), 140.0)) == [EndAll(1, 0.0), SetTimer(Deadline(), 2.0)]
    assert exit_all(gang, time=140.1)[-1] == SetTimer(Backoff(), 0.0)


@pytest.mark.parametrize("failure", [FailureKind.PRIMARY, FailureKind.CONSEQUENCE])
def test_exit_42_is_never_a_consequence_and_gives_time_to_save_also_when_second(failure):
    gang = running(3, saving=20.0)
    exit_(gang, W0, 1, FailureKind.CONSEQUENCE, 110.0)
    assert exit_(gang, W1, RESUME_CODE, failure, 110.1) == [SetTimer(Deadline(), 20.0)]
    assert exit_(gang, W2, 1, time=111.0)[-1] == SetTimer(Backoff(), 0.0)


def test_exit_42_right_after_the_start_counts_as_a_failure():
    gang = running(restarts=1, resume=5.0)
    assert fail(gang, RESUME_CODE, time=104.9)[-1] == SetTimer(Backoff(), 0.0)
    gang.handle(Timer(Backoff(), 105.0))
    assert fail(gang, RESUME_CODE, time=109.9)[-1] == USED_UP


def test_what_cannot_succeed_is_not_resumed():
    gang = running(3)
    exit_(gang, W0, RESUME_CODE, time=110.0)
    assert exit_(gang, W1, 1, FailureKind.PERMANENT, 110.1) == [
        EndAll(1, 0.0),
        SetTimer(Deadline(), 2.0),
    ]
    assert exit_(gang, W2, RESUME_CODE, time=111.0)[-1] == Ended(RunState.FAILED)


# Parameter servers.


def test_a_worker_beside_parameter_servers_is_replaced_alone():
    gang = running(**SERVED)
    assert exit_(gang, W1, None) == [SetTimer(RestartTask(W1), 0.0)]
    assert gang.alive == {CHIEF, W0, PS}
    assert gang.handle(Timer(RestartTask(W1), 101.5)) == [StartTask(W1, 1)]
    assert gang.handle(Timer(RestartTask(W1), 101.5)) == []
    assert (gang.state, gang.attempt, gang.restarts) == (RunState.RUNNING, 1, 0)


def die_again(gang, task, time, times):
    delays = []
    for _ in range(times):
        (timer,) = exit_(gang, task, None, time=time)
        delays.append(timer.seconds)
        gang.handle(Timer(timer.due, time))
    return delays


def test_a_worker_that_dies_at_once_for_ever_is_everybodys_failure():
    gang = running(**SERVED)
    assert die_again(gang, W0, 101.0, REPLACEMENT_TRIES) == [0.0, 0.5, 1.0]
    assert die_again(gang, W1, 101.0, REPLACEMENT_TRIES) == [0.0, 0.5, 1.0]
    assert exit_(gang, W0, None) == [EndAll(1, 0.0), SetTimer(Deadline(), 2.0)]
    assert exit_all(gang)[-1] == Ended(RunState.FAILED)


def test_restarts_allow_more_replacements_and_then_start_all_with_a_clean_slate():
    gang = running(**SERVED, restarts=5)
    assert len(die_again(gang, W0, 101.0, 5)) == 5
    exit_(gang, W0, None)
    assert exit_all(gang)[-1] == SetTimer(Backoff(), 0.0)
    gang.handle(Timer(Backoff(), 102.0))
    assert die_again(gang, W0, 103.0, 5)[0] == 0.0


def test_a_healthy_workers_replacements_count_from_0():
    gang = running(**SERVED, healthy=60.0)
    die_again(gang, W0, 101.0, REPLACEMENT_TRIES)
    assert die_again(gang, W0, 161.0, REPLACEMENT_TRIES) == [0.0, 0.5, 1.0]
    assert gang.handle(Exited(W0, 1, None, time=162.0))[0] == EndAll(1, 0.0)


def test_a_worker_that_cannot_start_is_everybodys_failure():
    gang = running(**SERVED, restarts=3)
    exit_(gang, W0, 1, FailureKind.PERMANENT)
    assert exit_all(gang)[-1] == Ended(RunState.FAILED)


def test_a_worker_beside_parameter_servers_may_end_well():
    gang = running(**SERVED)
    assert exit_(gang, W0, 0) == []
    assert gang.state is RunState.RUNNING


@pytest.mark.parametrize("code", [0, 1])
def test_a_lost_parameter_server_ends_the_run(code):
    gang = running(**SERVED)
    assert exit_(gang, PS, code) == [EndAll(1, 0.0), SetTimer(Deadline(), 2.0)]
    assert exit_all(gang)[-1] == Ended(RunState.FAILED)


def test_nobody_is_replaced_in_a_gang_that_ends():
    gang = running(**SERVED)
    exit_(gang, W0, None)
    exit_(gang, CHIEF, 0)
    assert gang.handle(Timer(RestartTask(W0))) == []
    assert exit_(gang, W1, None) == []
    assert exit_(gang, PS, None)[-1] == Ended(RunState.FINISHED)


def test_a_replacement_does_not_wait_over_into_the_next_attempt():
    gang = running(**SERVED, restarts=1)
    exit_(gang, W0, None)
    exit_(gang, PS)
    exit_all(gang)
    assert gang.handle(Timer(RestartTask(W0), 101.1)) == []
    assert gang.handle(Timer(Backoff(), 101.2)) == starts(gang, 2)
    assert gang.handle(Timer(RestartTask(W0), 101.5)) == []


def test_workers_without_a_coordinator_of_their_own_serve_until_stopped():
    gang = running(2, ps=1)
    exit_(gang, W0, 0)
    exit_(gang, W1, 0)
    assert gang.state is RunState.RUNNING
    assert gang.handle(Stop(time=102.0)) == [EndAll(1, 3.0), SetTimer(Deadline(), 5.0)]
    assert exit_(gang, PS, None)[-1] == Ended(RunState.STOPPED)


# Evaluators.


@pytest.mark.parametrize("code", [0, 1, None])
def test_an_evaluators_exit_ends_no_other_task(code):
    gang = running(evaluator=True)
    assert exit_(gang, EVALUATOR, code) == []
    assert gang.state is RunState.RUNNING


def test_an_evaluator_starts_again_with_the_others():
    gang = running(evaluator=True, restarts=1)
    fail(gang)
    assert gang.handle(Timer(Backoff())) == starts(gang, 2)


# Stopping.


def test_a_stop_gives_grace_and_then_kills_until_all_are_gone():
    gang = running(grace=3.0)
    assert gang.handle(Stop(time=101.0)) == [EndAll(1, 3.0), SetTimer(Deadline(), 5.0)]
    assert gang.handle(Timer(Deadline(), 106.0)) == [EndAll(1, 0.0), SetTimer(Deadline(), 2.0)]
    assert gang.handle(Timer(Deadline(), 108.0)) == [EndAll(1, 0.0), SetTimer(Deadline(), 2.0)]
    assert exit_all(gang)[-1] == Ended(RunState.STOPPED)


def test_a_second_stop_can_shorten_the_grace_and_not_lengthen_it():
    gang = running()
    assert gang.handle(Stop(grace=10.0, time=101.0))[0] == EndAll(1, 10.0)
    assert gang.handle(Stop(grace=20.0, time=102.0)) == []
    assert gang.handle(Stop(grace=9.0, time=102.0)) == []
    assert gang.handle(Stop(grace=0.0, time=103.0)) == [EndAll(1, 0.0), SetTimer(Deadline(), 2.0)]


@pytest.mark.parametrize("task", [W1, CHIEF, None])
def test_stopping_a_peer_stops_the_run(task):
    gang = running(2, chief=True)
    assert gang.handle(Stop(task, time=101.0))[0] == EndAll(1, 3.0)
    assert exit_all(gang, 0)[-1] == Ended(RunState.STOPPED)


def test_stopping_a_parameter_server_stops_the_run():
    gang = running(**SERVED)
    assert gang.handle(Stop(PS, time=101.0))[0] == EndAll(1, 3.0)


def test_stopping_before_anything_was_launched():
    assert forming().handle(Stop()) == [Ended(RunState.STOPPED)]


def test_stopping_in_backoff():
    gang = running(restarts=1)
    fail(gang)
    assert gang.handle(Stop()) == [CancelTimer(Backoff()), Ended(RunState.STOPPED)]
    assert gang.handle(Timer(Backoff())) == []


def test_a_failure_that_would_be_retried_is_not_after_a_stop():
    gang = running(restarts=1)
    exit_(gang, W0)
    gang.handle(Stop())
    assert exit_all(gang)[-1] == Ended(RunState.STOPPED)


@pytest.mark.parametrize("failure", [FailureKind.PRIMARY, FailureKind.CONSEQUENCE])
def test_a_stop_does_not_hide_a_failure_that_ends_the_run_anyway(failure):
    gang = running()
    exit_(gang, W0, 1, failure)
    gang.handle(Stop(time=101.1))
    assert exit_all(gang)[-1] == Ended(RunState.FAILED)


def test_a_stop_does_not_spoil_a_finished_training():
    gang = running(**SERVED)
    exit_(gang, CHIEF, 0)
    assert gang.handle(Stop(grace=0.0, time=101.5)) == [EndAll(1, 0.0), SetTimer(Deadline(), 2.0)]
    assert exit_all(gang)[-1] == Ended(RunState.FINISHED)


def test_a_stop_ends_the_wait_for_a_cause_gently():
    gang = running(3, restarts=1)
    exit_(gang, W0, 1, FailureKind.CONSEQUENCE)
    assert gang.handle(Stop(grace=7.0, time=101.1)) == [EndAll(1, 7.0), SetTimer(Deadline(), 9.0)]


def test_an_evaluator_is_stopped_alone_and_stays_so():
    gang = running(evaluator=True, restarts=1)
    assert gang.handle(Stop(EVALUATOR)) == [
        EndTask(EVALUATOR, 1, 3.0),
        SetTimer(KillAgain(EVALUATOR), 5.0),
    ]
    assert gang.handle(Timer(KillAgain(EVALUATOR)))[0] == EndTask(EVALUATOR, 1, 0.0)
    assert exit_(gang, EVALUATOR, None) == []
    assert gang.handle(Timer(KillAgain(EVALUATOR))) == []
    fail(gang)
    assert gang.handle(Timer(Backoff())) == [StartTask(W0, 2), StartTask(W1, 2)]
    gang.handle(Restart())
    assert exit_all(gang)[1:] == starts(gang, 3)


def test_a_worker_beside_parameter_servers_is_stopped_alone():
    gang = running(**SERVED)
    assert gang.handle(Stop(W0, grace=0.0))[0] == EndTask(W0, 1, 0.0)
    assert exit_(gang, W0, None) == []
    exit_(gang, W1, None)
    assert gang.handle(Stop(W1)) == []
    assert gang.handle(Timer(RestartTask(W1))) == []
    assert gang.state is RunState.RUNNING


def test_an_evaluator_stopped_and_launched_while_forming():
    gang = forming(evaluator=True)
    gang.handle(Launched(EVALUATOR))
    gang.handle(Stop(EVALUATOR))
    gang.handle(Launched(EVALUATOR))
    assert exit_(gang, EVALUATOR, None) == [StartTask(EVALUATOR, 1)]
    gang.handle(Launched(EVALUATOR))
    gang.handle(Stop(EVALUATOR))
    assert exit_(gang, EVALUATOR, None) == []


def test_stopping_one_task_of_a_gang_that_ends_changes_nothing():
    gang = running(evaluator=True)
    exit_(gang, W0)
    assert gang.handle(Stop(EVALUATOR)) == []


# Restarting.


def test_a_restart_ends_all_and_starts_all_uncounted():
    gang = running(restarts=1)
    fail(gang)
    gang.handle(Timer(Backoff()))
    assert gang.restarts == 1
    assert gang.handle(Restart(103.0)) == [EndAll(2, 0.0), SetTimer(Deadline(), 2.0)]
    assert exit_all(gang) == [CancelTimer(Deadline()), *starts(gang, 3)]
    assert (gang.state, gang.restarts) == (RunState.RUNNING, 0)


def test_a_restart_in_backoff_does_not_wait():
    gang = running(restarts=1)
    fail(gang)
    assert gang.handle(Restart()) == [CancelTimer(Backoff()), *starts(gang, 2)]


def test_a_restart_while_forming_starts_the_launched_tasks():
    gang = forming(3)
    gang.handle(Launched(W0))
    gang.handle(Launched(W1))
    exit_(gang, W1, 0)
    gang.handle(Restart())
    assert exit_(gang, W0, None)[1:] == [StartTask(W0, 2), StartTask(W1, 2)]
    assert gang.state is RunState.FORMING
    assert gang.handle(Launched(W2)) == [StartTask(W2, 2)]


def test_a_restart_overrules_a_failure_and_a_finish():
    for code in (0, 1):
        gang = running(**SERVED)
        exit_(gang, CHIEF, code)
        gang.handle(Restart(101.1))
        exit_(gang, PS, 1, FailureKind.PERMANENT)
        assert exit_all(gang)[1:] == starts(gang, 2)


def test_a_restart_does_not_overrule_a_stop():
    gang = running()
    gang.handle(Stop())
    assert gang.handle(Restart()) == []
    assert exit_all(gang)[-1] == Ended(RunState.STOPPED)


def test_a_stop_overrules_a_restart():
    gang = running()
    gang.handle(Restart(101.0))
    assert gang.handle(Stop(time=101.1)) == []
    assert exit_all(gang)[-1] == Ended(RunState.STOPPED)


def test_an_unlimited_number_of_restarts_never_overflows():
    gang = running(restarts=10**9)
    gang.restarts = gang.progress.short = 10**6
    fail(gang)
    gang.handle(Timer(Backoff(), 101.0))
    gang.progress.short = 10**6
    assert fail(gang)[-1] == SetTimer(Backoff(), 30.0)
    assert math.isfinite(gang.policy.delay(10**6))


# Processes that stay.


@pytest.mark.parametrize("failed", [True, False])
def test_processes_stay_until_the_run_is_stopped_which_keeps_its_result(failed):
    gang = running(stays=True)
    assert gang.handle(ProgramsOver(failed, 101.0)) == []
    result = RunState.FAILED if failed else RunState.FINISHED
    assert (gang.state, gang.outcome, gang.alive) == (RunState.KEPT, result, {W0, W1})
    assert EndAll(1, gang.policy.grace) in gang.handle(Stop(time=102.0))
    gang.handle(Stop(grace=0.0, time=102.5))
    assert exit_all(gang, time=103.0)[-1] == Ended(result)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(
    ("code", "failure"),
    [(0, FailureKind.PRIMARY), (RESUME_CODE, FailureKind.PRIMARY), (None, FailureKind.PRIMARY)],
)
def test_any_exit_of_a_process_that_stays_is_a_failure(code, failure, kept):
    gang = running(stays=True)
    if kept:
        gang.handle(ProgramsOver(failed=False, time=101.0))
    exit_(gang, W1, code, failure, time=102.0)
    gang.handle(Timer(Deadline(), 103.0))
    assert exit_(gang, W0, None, FailureKind.CONSEQUENCE, 103.0)[-1] == Ended(RunState.FAILED)


def test_a_restart_runs_programs_whose_processes_stayed_again():
    gang = running(stays=True)
    gang.handle(ProgramsOver(failed=True, time=101.0))
    gang.handle(Restart(102.0))
    assert exit_all(gang, time=103.0)[-2:] == starts(gang, attempt=2)
    assert (gang.state, gang.outcome) == (RunState.RUNNING, None)


# Programs that failed, and whose processes are still ending.


def failing(gang, task, code=1, failure=FailureKind.PRIMARY, time=101.0):
    return gang.handle(Failing(task, gang.attempt, code, failure, time))


def test_a_failure_ends_the_others_while_its_process_is_still_ending():
    gang = running(2, restarts=1)
    assert failing(gang, W0) == [EndAll(1, 0.0), SetTimer(Deadline(), 2.0)]
    assert gang.state is RunState.ENDING
    assert gang.alive == {W0, W1}
    assert exit_(gang, W0) == []
    assert gang.state is RunState.ENDING, "the other one is still there"
    exit_(gang, W1, None)
    assert gang.state is RunState.BACKOFF
    assert gang.restarts == 1


def test_a_consequence_that_is_still_ending_leaves_time_for_the_cause():
    gang = running(2)
    assert failing(gang, W0, failure=FailureKind.CONSEQUENCE) == [SetTimer(Deadline(), 0.5)]
    assert failing(gang, W1)[0] == EndAll(1, 0.0)


@pytest.mark.parametrize(
    ("shape", "task"),
    [({"ps": 1, "chief": True}, W0), ({"evaluator": True}, EVALUATOR), ({"stays": True}, W0)],
)
def test_a_failure_that_ends_no_others_counts_when_the_process_has_ended(shape, task):
    gang = running(2, **shape)
    assert failing(gang, task) == []
    assert gang.state is RunState.RUNNING


def test_a_failure_of_an_earlier_attempt_is_ignored():
    gang = running(2)
    assert gang.handle(Failing(W0, gang.attempt + 1, 1)) == []
    exit_(gang, W0)
    assert failing(gang, W0) == []
