"""How a peer does the work that all are compared by, as cells of a notebook."""

from __future__ import annotations

from dataclasses import dataclass, field

NOTE = """
import os, time
def note(rank):
    now = time.monotonic()
    name = f"{os.environ['BENCHMARK_NOTES']}/{rank}.{os.getpid()}"
    with open(name + ".new", "w") as file:
        file.write(str(now))
    os.rename(name + ".new", name)
"""
"""Gives a task `note(rank)`, which notes when it was called, and by which process."""

LINES = 2000
LINE = "step 5000 of a training with loss=0.4321 and accuracy=0.98765"
PRINTS = f"for line in range({LINES}): print('{LINE}', line % 10)\n"
PRINTED_BYTES = 2 * LINES * (len(LINE) + len(" 0\n"))
"""What two tasks print."""


@dataclass(frozen=True)
class Peer:
    """What may be asked of a peer with two tasks; an empty cell means that it has no such thing.

    Attributes
    ----------
    name : str
        What the table calls it.
    environment : str
        Whose pins it needs; empty for the project's own environment.
    start : tuple of str
        Cells until both tasks have noted their first line.
    trip : str
        Evaluates ``1 + 1`` on both tasks.
    prints : str
        Prints on both tasks.
    waits : str
        Notes once more on both tasks, which then sleep.
    told : str
        A further cell that waits for what becomes of them.
    restarts : tuple of str
        Cells that run a program which notes and sleeps, and is restarted after a failure.
    setup : tuple of str
        Cells that are not timed.
    names : str
        A regular expression for how it names the second task.
    words : tuple of str
        What starts its kernel, if that is a special one.
    env : dict
        Further variables for the kernel.
    """

    name: str
    environment: str
    start: tuple[str, ...]
    names: str
    trip: str = ""
    prints: str = ""
    waits: str = ""
    told: str = ""
    restarts: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    words: tuple[str, ...] = ("-m", "ipykernel_launcher")
    env: dict[str, str] = field(default_factory=dict)
