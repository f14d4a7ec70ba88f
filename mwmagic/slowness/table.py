"""What is known about each cause of slow training: its sentence, its sign, and what to try."""

from __future__ import annotations

from dataclasses import dataclass

from mwmagic.model.slowness import SlowCause

__all__ = ["CAUSES", "KnownCause"]


@dataclass(frozen=True)
class KnownCause:
    """What is known about a cause."""

    title: str
    one: str
    """What one task does, as the verb of a sentence."""
    all: str
    """What all tasks do; empty if it concerns one task only."""
    sign: str
    """How the task differs from the others."""
    remedy: str


_INPUT = "`.cache()` keeps what `tf.data` would repeat in each epoch"

CAUSES = {
    SlowCause.INPUT_WAITS: KnownCause(
        "A task waits for its input",
        "waits for its input",
        "wait for their input",
        "its input takes longer, but its CPU time does not: it sleeps, waits for a disk or a "
        "network, or handles one element at a time",
        "`.map(..., num_parallel_calls=tf.data.AUTOTUNE)` and `.prefetch(tf.data.AUTOTUNE)` at the "
        f"end of the dataset; {_INPUT}",
    ),
    SlowCause.INPUT_COMPUTES: KnownCause(
        "A task computes its input",
        "computes its input",
        "compute their input",
        "its input takes longer, and its CPU time grows by about as much",
        f"TensorFlow's operations instead of Python or NumPy in `.map`; {_INPUT}",
    ),
    SlowCause.CALLBACKS: KnownCause(
        "The callbacks of a task take long",
        "is in its callbacks",
        "are in their callbacks",
        "its callbacks take longer at each step, without their wait for those of other tasks",
        "doing it less often, such as once an epoch, or on all tasks alike",
    ),
    SlowCause.MORE_WORK: KnownCause(
        "A task has more to compute",
        "has more to compute in every step",
        "",
        "the task uses at least 1.5 times the CPU time of any other, in every window, and loses "
        "no time to its input or its callbacks",
        "equal shares of each batch, and the same code on all tasks",
    ),
    SlowCause.STOPPED: KnownCause(
        "A task is stopped now and then",
        "is stopped now and then by a signal (SIGSTOP)",
        "",
        "its process is looked at once a second, and is found stopped in at least two of ten looks",
        "ending what sends the signal: a batch system, a debugger, `kill -STOP`",
    ),
    SlowCause.PAGING: KnownCause(
        "A task runs short of memory",
        "reads pages of its memory from a disk",
        "",
        "its input takes longer, and each step reads pages of memory from a disk",
        "less memory: smaller batches, a smaller shuffle buffer, no `.cache()`; or a higher limit",
    ),
}
"""The causes, in the order of the documentation."""
