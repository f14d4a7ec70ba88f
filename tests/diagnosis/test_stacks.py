from mwmagic.diagnosis.stacks import Stack, Watch, explain, parse

COLLECTIVE = """Thread 0x00007f3c2a7fc6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007f3c36082b80 (most recent call first):
  File "/lib/python3.11/tensorflow/python/eager/execute.py", line 53 in quick_execute
  File "/lib/python3.11/keras/src/utils/traceback_utils.py", line 117 in error_handler
  File "/home/me/main.py", line 28 in train
  File "/home/me/main.py", line 40 in <module>
  File "/lib/python3.11/mwmagic/worker/bootstrap.py", line 186 in _execute
"""
SLEEPING = """Current thread 0x00007f3c36082b80 (most recent call first):
  File "/home/me/data.py", line 7 in load
  File "/home/me/main.py", line 12 in <module>
  File "/home/me/src/mwmagic/worker/bootstrap.py", line 186 in _execute
  File "/home/me/src/mwmagic/agent/zygote.py", line 219 in <module>
"""


def test_a_stack_inside_the_framework_waits():
    stack = parse(COLLECTIVE)
    assert (stack.where, stack.waits) == ("main.py:28 in train", True)


def test_a_stack_in_the_users_code_does_not():
    stack = parse(SLEEPING)
    assert (stack.where, stack.waits) == ("data.py:7 in load", False)


def test_text_that_is_no_stack_is_no_place():
    assert parse("garbage\n") == Stack("garbage\n", None, waits=False)


def test_those_that_hold_up_the_others_come_first():
    stacks = {
        "worker:0": parse(COLLECTIVE),
        "worker:1": parse(SLEEPING),
        "worker:2": None,
        "worker:3": None,
    }
    assert explain(stacks, {"worker:2": "T", "worker:3": "D"}) == [
        "worker:1 is at data.py:7 in load, outside any operation of the framework",
        "worker:2 is stopped by a signal (SIGSTOP); SIGCONT lets it go on",
        "worker:3 gives no answer (in a system call that cannot be interrupted?)",
        "worker:0 waits inside an operation of the framework, at main.py:28 in train",
    ]


def test_a_dump_is_complete_when_it_grows_no_more(tmp_path):
    path = tmp_path / "worker-0.stacks"
    path.write_text("an earlier dump\n")
    watch = Watch(path)
    assert not watch.complete()
    assert watch.stack() is None
    with path.open("a") as file:
        file.write(SLEEPING)
    assert not watch.complete(), "it may still grow"
    assert watch.complete()
    assert watch.stack().where == "data.py:7 in load"
