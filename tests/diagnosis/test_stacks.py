from mwmagic.diagnosis.observation import Stack, parse, positions
from mwmagic.model.findings import Position, Whereabouts

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
  File "/home/me/src/mwmagic/agent/fork_server/zygote.py", line 219 in <module>
"""


BACKWARD = """Current thread 0x00007f3c36082b80 (most recent call first):
  File "/home/me/packages/torch/autograd/graph.py", line 842 in _engine_run_backward
  File "/home/me/packages/torch/autograd/__init__.py", line 354 in backward
  File "/lib/python3.11/site-packages/torch/_tensor.py", line 630 in backward
  File "/home/me/main.py", line 28 in train
  File "/lib/python3.11/mwmagic/worker/bootstrap.py", line 186 in _execute
"""


def test_a_stack_inside_the_framework_waits_wherever_that_lies():
    stack = parse(BACKWARD)
    assert (stack.at, stack.waits) == ("main.py:28 in train", True)


def test_a_stack_inside_the_framework_waits():
    stack = parse(COLLECTIVE)
    assert (stack.at, stack.waits) == ("main.py:28 in train", True)


def test_a_stack_in_the_users_code_does_not():
    stack = parse(SLEEPING)
    assert (stack.at, stack.waits) == ("data.py:7 in load", False)


def test_text_that_is_no_stack_is_no_place():
    assert parse("garbage\n") == Stack("garbage\n", None, waits=False)


def test_those_that_hold_up_the_others_come_first():
    stacks = {
        "worker:0": parse(COLLECTIVE),
        "worker:1": parse(SLEEPING),
        "worker:2": None,
        "worker:3": None,
    }
    assert positions(stacks, {"worker:2": "T", "worker:3": "D"}) == (
        Position("worker:1", Whereabouts.IN_USER_CODE, "data.py:7 in load"),
        Position("worker:2", Whereabouts.STOPPED),
        Position("worker:3", Whereabouts.NO_ANSWER),
        Position("worker:0", Whereabouts.IN_FRAMEWORK, "main.py:28 in train"),
    )
