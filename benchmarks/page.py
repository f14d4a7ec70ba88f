"""docs/performance.md, whose table is written between two marks."""

from __future__ import annotations

from pathlib import Path

from .machine import shape
from .table import LEGEND, head

PATH = Path(__file__).parents[1] / "docs" / "performance.md"
BEGIN, END = "<!-- the table: python -m benchmarks --write -->", "<!-- end of the table -->"


def name(row):
    """Return the case that a row is about; other lines have none."""
    return row.split("|")[1].strip().strip("`") if row.startswith("| `") else ""


def kept(block, names):
    """Return a block's rows about other cases, if it was measured on a machine like this one."""
    same = shape() in block
    return [row for row in block.splitlines() if same and name(row) and name(row) not in names]


def write(rows, order):
    """Put rows into the page, in the order of the cases; it keeps those of other cases."""
    before, begin, rest = PATH.read_text().partition(BEGIN)
    block, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PATH} has no {BEGIN} and {END}")
    all_rows = [*kept(block, {name(row) for row in rows}), *rows]
    ordered = sorted(
        (row for row in all_rows if name(row) in order), key=lambda row: order.index(name(row))
    )
    table = "\n".join([*head(), *ordered])
    PATH.write_text(f"{before}{BEGIN}\n\nOn {shape()}.\n\n{LEGEND}\n\n{table}\n\n{END}{after}")
