"""What looks at a worker's threads leaves no trace."""

import gc
import threading
import weakref

import pytest
from processes import eventually

from mwmagic.worker.exit import _awaited
from mwmagic.worker.looks import ThreadLooks


class Held:
    """What a frame holds, as that of `fit` holds its iterator."""


@pytest.fixture
def uncollected():
    gc.disable()
    yield
    gc.enable()


def looked_at():
    held = Held()
    looks = ThreadLooks()
    eventually(lambda: looks.took, "a look")
    looks.end()
    eventually(lambda: "mwmagic-steps" not in {one.name for one in threading.enumerate()})
    return weakref.ref(held)


def awaited():
    held = Held()
    assert _awaited(threading.get_ident())
    return weakref.ref(held)


@pytest.mark.parametrize("look", [looked_at, awaited])
def test_frames_that_were_looked_at_are_freed_without_the_garbage_collector(uncollected, look):
    assert look()() is None


LOADER = "def __next__(sample):\n    return sample()\n"


def test_a_line_that_a_loader_runs_in_the_main_thread_belongs_to_the_input():
    names = {}
    exec(compile(LOADER, "/x/torch/utils/data/dataloader.py", "exec"), names)
    looks = ThreadLooks()
    names["__next__"](lambda: eventually(lambda: looks.input > 0.05, "looks at the loader"))
    looks.end()
    assert set(looks.lines()) == {"at_input"}
