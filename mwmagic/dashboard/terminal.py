"""What a terminal shows: a live table of a run, and tables of runs and trials in colour."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mwmagic.logs.terminal import printable
from mwmagic.words.host import host_progress, host_tone, host_usage, host_words
from mwmagic.words.run import (
    attempt_words,
    clock,
    fraction,
    headline,
    left,
    metrics,
    progress_words,
    remarks,
    run_tone,
    setbacks,
    spent,
    task_words,
    tone,
)

from .rows import FOLDED_SETBACKS_COUNT, grouped
from .static import text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mwmagic.client.run import Run
    from mwmagic.model.status import RunStatus, TaskStatus
    from mwmagic.words.sweep import TrialTable
    from mwmagic.words.table import Column, RunTable

    from .rows import HostGroup

__all__ = ["coloured", "live", "table"]

COLUMNS, LINES = 80, 25
"""The size of a terminal whose own is not known."""

REDRAW_SECONDS = 0.25
"""Time between two drawings of the table."""

BAR_COLUMNS = 20
"""Maximum width of a progress bar."""

WHOLE_COLUMNS = 2
"""How many of the first columns are never narrowed: names and states. Others take more lines."""

FOLDED = ("folder", "cause", "tags", "note")
"""The columns of a table of runs whose texts may take several lines."""

FOLDED_COLUMNS = 12
"""How narrow these may become."""

COLOURED_ROWS = 500
"""The most rows of a table that is shown in colour."""

STYLES = {"good": "green", "bad": "bold red", "run": "blue", "wait": "yellow", "stall": "yellow"}


def table(run: RunStatus) -> Group:
    """Return a run's state as a rich renderable."""
    grid = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    cells = _group_cells(run) or [_cells(name, task) for name, task in _worst_first(run.tasks)]
    for column in range(WHOLE_COLUMNS):
        whole = max((row[column].cell_len for row in cells), default=0)
        grid.add_column(no_wrap=True, min_width=whole)
    for _ in range(WHOLE_COLUMNS, 5):
        grid.add_column(overflow="fold")
    for row in cells:
        grid.add_row(*row)
    earlier = setbacks(run, FOLDED_SETBACKS_COUNT)
    return Group(_head(run), grid, *map(_text, [*earlier, *remarks(run)]))


def coloured(table: RunTable | TrialTable) -> str:
    """Return a table for the terminal: states in their colours, and the best value bold.

    A table of more than `COLOURED_ROWS` is plain: rich needs 0.5 ms for each row.
    """
    tones, console = table.tones, _console()
    if not tones or len(tones) > COLOURED_ROWS:
        return printable(repr(table))
    columns, notes = table.shown()
    if _least(columns) > console.width:
        columns = [one for one in columns if one.curves is None]
    # What is wider still has lines that the terminal folds, rather than words in pieces.
    console.width = max(console.width, _least(columns))
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        grid.add_column(_text(column.name), no_wrap=column.name not in FOLDED, overflow="fold")
    for row, kind in enumerate(tones):
        grid.add_row(*(_cell(column, row, kind) for column in columns))
    with console.capture() as drawn:
        console.print(grid, *map(_text, notes), sep="\n")
    return "\n".join(line.rstrip() for line in drawn.get().splitlines())


def _least(columns: Sequence[Column]) -> int:
    """Return how many columns of a terminal those of a table need."""
    widest = [(one, max(map(cell_len, [one.name, *one.texts]))) for one in columns]
    return sum(2 + (min(n, FOLDED_COLUMNS) if one.name in FOLDED else n) for one, n in widest)


def _cell(column: Column, row: int, kind: str) -> Text:
    style = "bold" if row == column.best else ""
    return _text(column.texts[row], STYLES.get(kind, "dim") if column.name == "state" else style)


def _console() -> Console:
    """Return the terminal, with a size if it has none: rich would show nothing at all."""
    console = Console()
    if not console.width or not console.height:  # `COLUMNS=0`
        console.size = ConsoleDimensions(console.width or COLUMNS, console.height or LINES)
    return console


def _text(text: str, style: str = "") -> Text:
    """Return text without anything that would act on the terminal, which rich lets through."""
    return Text(printable(text), style=style)


def _worst_first(tasks: dict[str, TaskStatus]) -> list[tuple[str, TaskStatus]]:
    """Return failures first, because a terminal may not show every row."""
    return sorted(tasks.items(), key=lambda item: tone(item[1]) != "bad")


def _group_cells(run: RunStatus) -> list[list[Any]]:
    """Return a line for each of several hosts, the worst first, and its tasks below it."""
    groups = sorted(grouped(run), key=lambda one: host_tone(one.host, one.tasks) != "bad")
    return [line for group in groups for line in _lines(group)]


def _lines(group: HostGroup) -> list[list[Any]]:
    host, tasks = group.host, group.tasks
    style = f"bold {STYLES.get(host_tone(host, tasks), '')}"
    texts = [host_progress(tasks), host_usage(host)]
    head = [_text(host.name, "bold"), _text(host_words(host, tasks), style), ""]
    below = [_cells(f"  {name}", task) for name, task in _worst_first(group.shown)]
    return [[*head, *map(_text, texts)], *below]


def _head(run: RunStatus) -> Text:
    spent = math.floor(max((run.ended or time.time()) - run.started, 0.0))
    besides = " · ".join(filter(None, [clock(spent), attempt_words(run)]))
    kind = run_tone(run)
    sign = "⚠ " if kind == "stall" else ""
    style = f"bold {STYLES.get(kind, '')}"
    return _text(sign + headline(run), style).append(f"  {besides}", style="not bold dim default")


def _cells(name: str, task: TaskStatus) -> list[Any]:
    kind, part = tone(task), fraction(task)
    done = 1.0 if kind == "good" and part is not None else part
    where = " · ".join(filter(None, [spent(task), progress_words(task.progress), left(task)]))
    # No blank in between: a line must not end between a name and its value.
    values = " ".join(f"{metric}={value}" for metric, value in metrics(task.progress))
    style = STYLES.get(kind, "dim")
    bar: Any = ""
    if done is not None:
        bar = ProgressBar(1.0, done, BAR_COLUMNS, complete_style=style, finished_style=style)
    return [_text(name), _text(task_words(task), style), bar, _text(where), _text(values)]


class _Picture:
    """Draws the current state of a run."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __rich__(self) -> Group:
        return table(self._run.status())


@contextmanager
def live(run: Run) -> Iterator[Console]:
    """Keep a live table of a run at the bottom of the terminal; its last state stays there.

    If the output is not a terminal, only the last state is printed.
    """
    console = _console()
    if not console.is_terminal:
        yield console
        console.out(printable(text(run.status())), highlight=False)
        return
    with Live(
        _Picture(run),
        console=console,
        refresh_per_second=1 / REDRAW_SECONDS,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield console
