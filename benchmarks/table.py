"""Results as Markdown, in docs/internals/performance.md between two marks."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from .machine import BUSY_CORES, shape
from .ratio import ratio

PATH = Path(__file__).parents[1] / "docs" / "internals" / "performance.md"
BEGIN, END = "<!-- the table: python -m benchmarks --write -->", "<!-- end of the table -->"

NOTICED_BEGIN, NOTICED_END = "<!-- what you notice -->", "<!-- end of what you notice -->"

NOTICED = (
    ("first-step", "Enter to the first trained step, warm", "from Enter to the first trained step"),
    (
        "restart-2",
        "SIGKILL of one worker to all running again, 2 tasks, warm",
        "from a worker's death until both run again",
    ),
    ("peer-ipyparallel", "SIGKILL of a task", "from a worker's death until the notebook says so"),
    (
        "peer-ipyparallel",
        "processes left",
        "processes left 5 s after the notebook's kernel was killed",
    ),
    (
        "peer-ipyparallel",
        "a cell's round trip",
        "a live cell, from the notebook to both workers and back",
    ),
    ("throughput", "400 steps", "400 steps of training"),
    (
        "page-1000",
        "print to pixels, 2 workers x 1000 lines/s, 99 %",
        "from a worker's print to the page, 99 % of 2,000 lines a second",
    ),
    ("runs", "the table of 10,000 runs (aim", "the table of 10,000 recorded runs"),
)
"""What a person notices, with which the page begins: a case, how its row begins, and words."""

HEADS = ("name", "what", "mwmagic", "compared with", "ratio", "half of the rounds", "aim")
HEADS += ("rounds", "other load", "date")
BUSY = "†"
"""Marks a row that was measured on a busy machine."""

LEGEND = (
    "A figure is the median of its rounds. A ratio is the median of the rounds' ratios, and half "
    "of the rounds lie between the two values behind it. Less is better in every row. *Other "
    "load* is the number of cores that everything else kept busy while the row was measured; rows "
    f"with {BUSY_CORES} or more have a {BUSY}: compare only their ratios."
)


def cells(texts):
    return "| " + " | ".join(str(text).replace("|", "\\|") for text in texts) + " |"


def head():
    return [cells(HEADS), "|" + "---|" * len(HEADS)]


def figure(values, unit):
    return f"{median(values):.3g} {unit}".strip() if values else ""


def rows(result, date):
    """Return a result's rows; one that was not measured says why."""
    load = f"{result.other:.2f}{BUSY if result.other >= BUSY_CORES else ''}"
    end = (load, date)
    if result.failure:
        return [cells((f"`{result.name}`", result.failure, *[""] * 6, *end))]
    return [cells((f"`{result.name}`", *row(line), *end)) for line in result.lines]


def row(line):
    found = ratio(line.ours, line.theirs)
    against = " ".join(filter(None, (line.against, figure(line.theirs, line.unit))))
    parts = [f"{found.median:.2f}", f"{found.low:.2f} to {found.high:.2f}"] if found else ["", ""]
    what = f"{line.what} ({line.note})" if line.note else line.what
    aim = "" if line.aim is None else f"{line.aim:g}"
    return what, figure(line.ours, line.unit), against, *parts, aim, len(line.ours)


def name(row):
    """Return the case that a row is about; other lines have none."""
    return row.split("|")[1].strip().strip("`") if row.startswith("| `") else ""


def kept(block, names):
    """Return a block's rows about other cases, if it was measured on a machine like this one."""
    same = shape() in block
    return [row for row in block.splitlines() if same and name(row) and name(row) not in names]


def noticed(table):
    """Return the rows of what a person notices, from those of the table that are there."""
    lines = ["| what you notice, with two workers | mwmagic | compared with |", "|---|---|---|"]
    lines += [
        cells((words, *(part.strip() for part in parts[2:4])))
        for case, begin, words in NOTICED
        for row in table
        if name(row) == case and (parts := row.split(" | "))[1].startswith(begin)
    ]
    return "\n".join(lines)


def placed(text, begin, end, block):
    """Return a page with another block between two marks."""
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"{PATH} has no {begin} and {end}")
    return f"{before}{begin}\n\n{block}\n\n{end}{after}"


def write(new, order):
    """Put rows into the page, in the order of the cases; it keeps those of other cases."""
    text = PATH.read_text()
    block = text.partition(BEGIN)[2].partition(END)[0]
    every = [*kept(block, {name(one) for one in new}), *new]
    ordered = sorted(
        (one for one in every if name(one) in order), key=lambda one: order.index(name(one))
    )
    table = "\n".join([*head(), *ordered])
    text = placed(text, BEGIN, END, f"On {shape()}.\n\n{LEGEND}\n\n{table}")
    PATH.write_text(placed(text, NOTICED_BEGIN, NOTICED_END, noticed(ordered)))
