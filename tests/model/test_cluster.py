import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mwmagic.errors import ClusterError
from mwmagic.model.cluster import TYPES, ClusterSpec, Task, find_task, make_tasks

calm = settings(deadline=None)

tasks = st.builds(Task, st.sampled_from(TYPES), st.integers(0, 10**6))


@st.composite
def clusters(draw):
    chief, evaluator = draw(st.booleans()), draw(st.booleans())
    workers = draw(st.integers(0 if chief else 1, 6))
    ps = draw(st.integers(0, 3)) if workers else 0
    return make_tasks(workers, chief=chief, ps=ps, evaluator=evaluator)


def addressed(members, start=1024):
    return [f"host-{at % 3}:{start + at}" for at in range(len(members))]


# Tasks.


@calm
@given(tasks)
def test_a_task_reads_back_from_its_name(task):
    assert Task.parse(str(task)) == Task.parse(task) == task
    assert task.slug == str(task).replace(":", "-")


@calm
@given(st.integers(0, 10**6))
def test_a_number_is_a_worker(index):
    assert Task.parse(index) == Task.parse(str(index)) == Task("worker", index)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("chief", Task("chief", 0)),
        (" ps:1 ", Task("ps", 1)),
        ("evaluator", Task("evaluator", 0)),
        ("worker:007", Task("worker", 7)),
    ],
)
def test_names_as_people_write_them(name, task):
    assert Task.parse(name) == task


BAD_NAMES = [
    ":",
    "",
    " ",
    "worker:",
    ":1",
    "WORKER:1",
    "worker1",
    "worker-1",
    "worker:-1",
    "worker:1:2",
    "-1",
    "1.0",
    "worker:1\n2",
    "\N{FULLWIDTH DIGIT ONE}",
    "worker:\N{ARABIC-INDIC DIGIT ONE}",
    "9" * 5000,
    "server:0",
    -1,
    1.0,
    math.nan,
    True,
    None,
    b"worker:1",
    ("worker", 1),
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name)[:20])
def test_what_names_no_task_is_one_error_that_says_what_exists(name):
    with pytest.raises(ClusterError) as error:
        find_task(name, make_tasks(2))
    assert str(error.value).endswith("this cluster's tasks are worker:0, worker:1")
    assert error.value.__suppress_context__
    with pytest.raises(ClusterError, match=r"is not a task's name|unknown task type|whole number"):
        Task.parse(name)


@calm
@given(st.text() | st.integers() | st.floats() | st.none() | st.booleans() | st.binary())
def test_any_name_is_a_task_or_a_cluster_error(name):
    try:
        task = Task.parse(name)
    except ClusterError:
        return
    assert task.type in TYPES
    assert task.index >= 0


@pytest.mark.parametrize("index", [-1, True, 1.0, "1", None, math.inf])
def test_an_index_is_a_whole_number_from_0(index):
    with pytest.raises(ClusterError, match="whole number from 0"):
        Task("worker", index)


def test_an_unknown_type_lists_the_types():
    with pytest.raises(ClusterError, match="'server'; the types are chief, worker, ps, evaluator"):
        Task("server", 0)


# Making tasks.


@calm
@given(clusters())
def test_tasks_are_distinct_in_rank_order_and_numbered_from_0(members):
    assert len(set(members)) == len(members)
    kinds = [task.type for task in members]
    assert kinds == sorted(kinds, key=TYPES.index)
    for kind in TYPES:
        indexes = [task.index for task in members if task.type == kind]
        assert indexes == list(range(len(indexes)))


@pytest.mark.parametrize("count", [65536, 10**30])
def test_a_count_that_is_too_large_names_the_limit(count):
    with pytest.raises(ClusterError, match="workers must be at most 65535"):
        make_tasks(count)
    with pytest.raises(ClusterError, match="ps must be at most 65535"):
        make_tasks(2, ps=count)


def test_at_least_one_task_must_train():
    with pytest.raises(ClusterError, match="at least 1 worker or a chief; this one has 0 workers"):
        make_tasks(0, evaluator=True)
    with pytest.raises(ClusterError, match=r"parameter servers \(2\) need at least 1 worker"):
        make_tasks(0, chief=True, ps=2)
    assert make_tasks(0, chief=True) == (Task("chief", 0),)


# Placing them.


@calm
@given(clusters(), st.integers(1, 60000), st.randoms(use_true_random=False))
def test_a_cluster_is_the_same_in_whatever_order_it_is_given(members, start, random: Random):
    spec = ClusterSpec.of(members, addressed(members, start))
    shuffled = list(spec.placed)
    random.shuffle(shuffled)
    again = ClusterSpec(tuple(shuffled))
    assert again == spec
    assert hash(again) == hash(spec)
    assert again.tasks == members
    assert dict(again.placed) == again.addresses


@calm
@given(clusters())
def test_the_chief_is_the_chief_or_the_first_worker(members):
    spec = ClusterSpec.of(members, addressed(members))
    assert spec.chief in (Task("chief", 0), Task("worker", 0))
    assert (spec.chief.type == "chief") == any(task.type == "chief" for task in members)
    assert all(task.type != "evaluator" for task in spec.members)
    assert set(spec.tasks) - set(spec.members) <= {Task("evaluator", 0)}


@calm
@given(clusters(), st.data())
def test_every_task_is_found_by_every_name(members, data):
    spec = ClusterSpec.of(members, addressed(members))
    task = data.draw(st.sampled_from(members))
    assert spec.find(task) == spec.find(str(task)) == task


def test_index_5_of_2_lists_the_two():
    spec = ClusterSpec.of(make_tasks(2), ["localhost:1", "localhost:2"])
    with pytest.raises(ClusterError) as error:
        spec.find(5)
    assert str(error.value) == (
        "worker:5 does not exist; this cluster's tasks are worker:0, worker:1"
    )


def test_a_large_cluster_is_listed_briefly():
    with pytest.raises(ClusterError) as error:
        find_task("ps:7", make_tasks(10_000, chief=True, ps=2))
    assert str(error.value).endswith("are chief:0, worker:0 to worker:9999, ps:0, ps:1")
    with pytest.raises(ClusterError, match="tasks are none"):
        find_task(0, ())


GOOD_ADDRESSES = [
    "localhost:1",
    "127.0.0.1:65535",
    "[::1]:2222",
    "[fe80::1]:80",
    "node-3.cluster_a.example:12345",
    "h:9",
]


@pytest.mark.parametrize("address", GOOD_ADDRESSES)
def test_addresses_that_work(address):
    assert ClusterSpec.of(make_tasks(1), [address]).addresses[Task("worker", 0)] == address


BAD_ADDRESSES = [
    "localhost",
    "localhost:",
    ":80",
    "",
    "localhost:0",
    "localhost:65536",
    "localhost:-1",
    "localhost:80.0",
    "localhost:080",
    "localhost:\N{FULLWIDTH DIGIT EIGHT}",
    "localhost: 80",
    "localhost:80\n",
    "localhost:" + "9" * 5000,
    "::1:80",
    "[::1:80",
    "[]:80",
    "[localhost]:80",
    "grpc://localhost:80",
    "a b:80",
    "-a:80",
    80,
    None,
    ("localhost", 80),
]


@pytest.mark.parametrize("address", BAD_ADDRESSES, ids=lambda address: repr(address)[:20])
def test_an_address_that_cannot_work_names_its_task(address):
    with pytest.raises(ClusterError, match=r"^worker:1 has the address"):
        ClusterSpec.of(make_tasks(2), ["localhost:80", address])


@calm
@given(st.text())
def test_any_address_works_or_is_a_cluster_error(address):
    try:
        ClusterSpec.of(make_tasks(1), [address])
    except ClusterError:
        return
    assert 1 <= int(address.rpartition(":")[2]) <= 65535


@pytest.mark.parametrize("second", ["localhost:80", "LocalHost:80"])
def test_an_address_given_twice_names_both_tasks(second):
    with pytest.raises(ClusterError, match="worker:0 and worker:1 both have the address"):
        ClusterSpec.of(make_tasks(2), ["localhost:80", second])


def test_clusters_that_cannot_be():
    worker, chief = Task("worker", 0), Task("chief", 0)
    with pytest.raises(ClusterError, match=r"2 tasks cannot be placed at 1 address$"):
        ClusterSpec.of(make_tasks(2), ["localhost:80"])
    with pytest.raises(ClusterError, match="worker:0 is placed 2 times"):
        ClusterSpec(((worker, "a:1"), (worker, "b:1")))
    with pytest.raises(ClusterError, match="worker:0 is placed 2 times"):
        ClusterSpec(((worker, "a:1"), (Task("worker", 0), "a:1")))
    with pytest.raises(ClusterError, match="there is a worker:3 but no worker:1"):
        ClusterSpec(((worker, "a:1"), (Task("worker", 2), "a:2"), (Task("worker", 3), "a:3")))
    with pytest.raises(ClusterError, match="at most one chief, not 2"):
        ClusterSpec(((chief, "a:1"), (Task("chief", 1), "a:2")))
    with pytest.raises(ClusterError, match="at most one evaluator, not 2"):
        ClusterSpec(((worker, "a:1"), (Task("evaluator", 0), "a:2"), (Task("evaluator", 1), "a:3")))
    with pytest.raises(ClusterError, match="at least 1 worker or a chief; this one has no tasks"):
        ClusterSpec(())
    with pytest.raises(ClusterError, match="this one has ps:0, evaluator:0"):
        ClusterSpec(((Task("evaluator", 0), "a:1"), (Task("ps", 0), "a:2")))


def test_a_cluster_error_is_a_value_error():
    with pytest.raises(ValueError, match="at least 1 worker"):
        make_tasks(0)
