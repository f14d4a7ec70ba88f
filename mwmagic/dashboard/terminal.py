"""A live table of a run in a terminal."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mwmagic.diagnosis import Cause
from mwmagic.status import remarks

from .rows import fraction, left, metrics, place, tone

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mwmagic.api import Run

__all__ = ["live", "show", "table"]

PER_SECOND = 4
"""Drawings per second."""

STYLES = {"good": "green", "bad": "bold red", "run": "blue", "wait": "yellow"}


def table(run: Mapping[str, Any]) -> Group:
    """Return a run's state as rich draws it.

    Parameters
    ----------
    run : mapping
        A snapshot of it.
    """
    grid = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, task in run["tasks"].items():
        grid.add_row(*_cells(name, task))
    parts: list[Any] = [Text(f"run {run['number']}: {run['words']}", style="bold"), grid]
    if run["cause"]:
        lines = Cause.from_dict(run["cause"]).lines()
        parts.append(Text("\n".join(lines), style="red"))
    return Group(*parts, *map(Text, remarks(run)))


def _cells(name: str, task: Mapping[str, Any]) -> list[Any]:
    from mwmagic.status import task_words

    kind, part, rest = tone(task), fraction(task), left(task)
    done = 1.0 if kind == "good" and part is not None else part
    where = place(task["progress"]) + (f" · {rest:.0f} s left" if rest else "")
    values = "  ".join(f"{metric} {value}" for metric, value in metrics(task["progress"]))
    style = STYLES.get(kind, "dim")
    bar = "" if done is None else ProgressBar(total=1.0, completed=done, width=20)
    return [Text(name), Text(task_words(task), style=style), bar, Text(where), Text(values)]


class _Picture:
    """Draws the run as it is at that moment."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __rich__(self) -> Group:
        return table(self._run.status())


@contextmanager
def live(run: Run, console: Console | None = None) -> Iterator[None]:
    """Keep a table of a run at the bottom of the terminal meanwhile; it stays there at last.

    Where the output is no terminal, only its last state is printed.
    """
    with Live(
        _Picture(run),
        console=console or Console(),
        refresh_per_second=PER_SECOND,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield


def show(run: Run, console: Console | None = None) -> Run:
    """Wait for a run, with a live table of it.

    Raises
    ------
    RunFailed, SupervisorLost
        As `Run.wait` does.
    """
    with live(run, console):
        return run.wait()
