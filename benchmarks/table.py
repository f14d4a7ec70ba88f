"""Results as Markdown."""

from __future__ import annotations

from statistics import median

from .load import BUSY_CORES
from .ratio import ratio

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
