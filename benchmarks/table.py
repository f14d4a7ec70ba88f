"""Results as Markdown, in docs/internals/performance.md between two marks."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from .machine import BUSY_CORES, shape
from .ratio import ratio

PATH = Path(__file__).parents[1] / "docs" / "internals" / "performance.md"
BEGIN, END = "<!-- the table: python -m benchmarks --write -->", "<!-- end of the table -->"

HEADS = ("name", "what", "mwmagic", "compared with", "ratio", "half of the rounds", "aim")
HEADS += ("rounds", "other load", "date")
BUSY = "†"
"""Marks a row that was measured on a busy machine."""

LEGEND = (
    "Of the figures the medians are shown, of the ratios the median of the rounds' and the two "
    "values between which half of them lie. Less is better in every row. *Other load*: how many "
    f"cores everything else kept busy while the row was measured; {BUSY} marks rows with "
    f"{BUSY_CORES} or more: measured on a busy machine, so compare only their ratios."
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


def write(new, order):
    """Put rows into the page, in the order of the cases; it keeps those of other cases."""
    before, begin, rest = PATH.read_text().partition(BEGIN)
    block, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PATH} has no {BEGIN} and {END}")
    every = [*kept(block, {name(one) for one in new}), *new]
    ordered = sorted(
        (one for one in every if name(one) in order), key=lambda one: order.index(name(one))
    )
    table = "\n".join([*head(), *ordered])
    PATH.write_text(f"{before}{BEGIN}\n\nOn {shape()}.\n\n{LEGEND}\n\n{table}\n\n{END}{after}")
