"""``python -m benchmarks``: measures, and prints one table in Markdown."""

from __future__ import annotations

import argparse
import sys
import time

from . import table
from .case import Plan
from .catalogue import CASES
from .machine import shape
from .runner import adopt, run


def chosen(names, quick):
    """Return the cases whose names begin as the user wrote, or all."""
    unknown = [name for name in names if not any(one.name.startswith(name) for one in CASES)]
    if unknown:
        raise SystemExit(f"No row is named {', '.join(unknown)}: --list names all.")
    if not names:
        return [one for one in CASES if not (quick and one.slow)]
    return [one for one in CASES if one.name.startswith(tuple(names))]


def arguments():
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="rows, or how their names begin; all by default")
    parser.add_argument("--list", action="store_true", help="name the rows and measure nothing")
    parser.add_argument("--quick", action="store_true", help="about five minutes for everything")
    parser.add_argument("--rounds", type=int, help="how often to measure each row")
    parser.add_argument("--write", action="store_true", help="put the rows into the page in docs/")
    return parser.parse_args()


def main():
    given = arguments()
    cases = chosen(given.names, given.quick)
    if given.list:
        print("\n".join(f"{one.name:20} {one.about}" for one in cases))
        return 0
    adopt()
    plan = Plan(given.quick, given.rounds)
    failed = False
    print(f"On {shape()}.\n")
    print("\n".join(table.head()), flush=True)
    for case in cases:
        result = run(case, plan)
        failed |= bool(result.failure) and not result.failure.startswith("skipped")
        rows = table.rows(result, time.strftime("%Y-%m-%d"))
        print("\n".join(rows), flush=True)
        if given.write:
            table.write(rows, [one.name for one in CASES])
    print(f"\n{table.LEGEND}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
