"""What makes training slow: what is known about each cause, and a verdict in a sentence.

Another sentence says how long memory will last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mwmagic.model.findings import SlowCause
from mwmagic.model.values import counted

from .file import size_words

if TYPE_CHECKING:
    from mwmagic.model.findings import MemoryForecast, Slowdown

__all__ = ["forecast_words", "page", "slow_words"]


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
        "end of the dataset, with `options.threading.private_threadpool_size = 16` if Python in it "
        f"waits, since `tf.data` has only a thread for each CPU; {_INPUT}; in PyTorch, "
        "`DataLoader(num_workers=4)`",
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
    SlowCause.CODE_WAITS: KnownCause(
        "The code of a task waits",
        "waits in its own code",
        "wait in their own code",
        "its threads sleep, or wait for a file or a network, in a line of its program outside the "
        "input and the callbacks",
        "doing this less often, or in another thread",
    ),
    SlowCause.GARBAGE: KnownCause(
        "Python collects garbage",
        "collects garbage",
        "collect garbage",
        "Python's garbage collector runs for most of what the task loses",
        "`gc.freeze()` once all is loaded, fewer Python objects (NumPy arrays instead of lists), "
        "and no `gc.collect()` in each step",
    ),
    SlowCause.TRACING: KnownCause(
        "TensorFlow traces functions again",
        "traces TensorFlow functions in every step",
        "trace TensorFlow functions in every step",
        "TensorFlow builds graphs for at least three tenths of what the task loses; preparing them "
        "takes the rest",
        "making each `tf.function` once, outside the loop, and calling it with tensors instead of "
        "Python numbers, and with `reduce_retracing=True` if shapes change",
    ),
    SlowCause.MORE_WORK: KnownCause(
        "A task has more to compute",
        "has more to compute",
        "",
        "it waits less for the others than they wait for it, and its CPU time grows by as much; or "
        "it uses at least 1.5 times the CPU time of any other, in every window",
        "equal shares of each batch, and the same code on all tasks",
    ),
    SlowCause.NEIGHBOUR: KnownCause(
        "Other programs use a task's CPUs",
        "waits for a CPU that other programs use",
        "",
        "its threads, including those of its input, wait longer for a CPU than those of the others",
        "ending other programs on its machine (`top` lists them), or giving each task CPUs of its "
        "own",
    ),
    SlowCause.THROTTLED: KnownCause(
        "A task has used up its share of CPU time",
        "is throttled by the CPU limit of its container or control group",
        "are throttled by the CPU limit of their container or control group",
        "the kernel's account shows that its control group was kept from running, for at least a "
        "fifth of a step more than the others'",
        "a higher CPU limit (`docker run --cpus`, `resources.limits.cpu`, `CPUQuota`), or no more "
        "threads than the limit allows (`TF_NUM_INTRAOP_THREADS`)",
    ),
    SlowCause.STOPPED: KnownCause(
        "A task is stopped now and then",
        "is stopped now and then, as by SIGSTOP",
        "",
        "its process is found stopped in at least two of ten looks, one each second; or all of its "
        "threads stand still for more than 20 ms at a time",
        "ending what sends the signal, such as a batch system, a debugger or `kill -STOP`; a "
        "virtual machine may be paused too",
    ),
    SlowCause.PAGING: KnownCause(
        "A task runs short of memory",
        "reads pages of its memory from a disk",
        "",
        "its input takes longer, or all of its threads stand still, and each step reads pages of "
        "memory from a disk; or it reads so many pages that this takes its CPU time",
        "less memory: smaller batches, a smaller shuffle buffer, no `.cache()`; or a higher limit",
    ),
    SlowCause.COLLECTIVE: KnownCause(
        "The tasks mostly exchange gradients",
        "",
        "wait for each other's gradients",
        "each of them waits for the others for at least half of a step, without computing",
        "larger batches, `steps_per_execution` if steps take a few milliseconds, a faster network, "
        "or fewer tasks",
    ),
    SlowCause.LINK: KnownCause(
        "One link is slower than the others",
        "sends its gradients over a link that is slower than those of the others",
        "",
        "TCP has data of this task underway for at least half of each step, and of the others, "
        "except one at most, for less than half as long; no two tasks send to the same machine",
        "repairing or replacing that link, leaving its machine out, or larger batches",
    ),
    SlowCause.UNCLEAR: KnownCause(
        "A task is slower, and it is not clear why",
        "takes longer, and why is not clear",
        "",
        "it waits less for the others than they wait for it, and none of its CPU time, its input, "
        "its callbacks and its wait for CPUs covers four fifths of that",
        "`%mw_profile`, and what else runs on its machine",
    ),
}
"""The causes, in the order of the documentation."""


def slow_words(verdict: Slowdown) -> str:
    """Say which task holds up the others, why, what that costs, and what to try."""
    known = CAUSES[verdict.cause]
    return f"{_who(verdict)}{_at(verdict)}. {_gain(verdict)}Try: {known.remedy}"


def _who(verdict: Slowdown) -> str:
    known, share = CAUSES[verdict.cause], f"{verdict.share:.0%} of a step"
    if verdict.when == "in-turn":
        return f"the tasks hold each other up in turn: each time another one {known.one} ({share})"
    if verdict.task is None:
        return f"all tasks {known.all} for {share}{_link(verdict)}"
    if verdict.cause is SlowCause.LINK:
        return f"{verdict.task} {known.one}: it is busy for {share}{_link(verdict)}"
    if verdict.times is not None:
        more = f"{verdict.times:.1f} times the CPU time of the others"
        return f"{verdict.task} {known.one}: it uses {more}"
    which = "every step" if verdict.when == "always" else "some of the steps"
    return f"{verdict.task} holds up {which}: it {known.one} ({share} is lost)"


def _link(verdict: Slowdown) -> str:
    """Say how much is sent to whom, and how fast."""
    if not (verdict.rate and verdict.peer):
        return ""
    size, rate = size_words(verdict.sent), size_words(verdict.rate)
    return f"; each step sends {size} to {verdict.peer}, at {rate} a second"


def _at(verdict: Slowdown) -> str:
    return f", at {verdict.at}" if verdict.at else ""


def _gain(verdict: Slowdown) -> str:
    """Say how long a step would take without it."""
    unknown = verdict.cause in (SlowCause.COLLECTIVE, SlowCause.LINK)  # how fast it could be
    if unknown or not 0 < verdict.without < verdict.step:
        return ""
    times = verdict.step / verdict.without
    now, then = _seconds(verdict.step), _seconds(verdict.without)
    return f"Without that a step would take {then} instead of {now} ({times:.1f}x). "


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def forecast_words(forecast: MemoryForecast) -> str:
    """Say that the memory of a task grows, and for how many epochs there is some left."""
    left = f"about {counted(forecast.epochs, 'epoch')}" if forecast.epochs else "no whole epoch"
    verb = "is" if forecast.epochs <= 1 else "are"
    return f"{forecast.task} grows by {size_words(forecast.per_epoch)} an epoch; {left} {verb} left"


def page() -> str:
    """Return the table of causes, in Markdown."""
    parts = [
        f"### {one.title}\n\n*{one.sign[0].upper()}{one.sign[1:]}.* Try: {one.remedy}.\n"
        for one in CAUSES.values()
    ]
    return "\n".join(parts)
