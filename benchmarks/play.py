"""Measures one case: ``python -m benchmarks.play NAME PLAN ANSWER``, as the runner starts it."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

from .case import Plan, Skipped
from .catalogue import CASES


def played(name, plan):
    """Return a case's lines, or why there are none."""
    [case] = [one for one in CASES if one.name == name]
    try:
        return {"lines": [line.as_json() for line in case.measure(plan)]}
    except Skipped as reason:
        return {"failure": f"skipped: {reason}"}
    except Exception as error:  # noqa: BLE001 - the other cases go on
        traceback.print_exc()
        return {"failure": f"failed: {type(error).__name__}: {error}".splitlines()[0]}


if __name__ == "__main__":
    found = played(sys.argv[1], Plan(**json.loads(sys.argv[2])))
    Path(sys.argv[3]).write_text(json.dumps(found))
