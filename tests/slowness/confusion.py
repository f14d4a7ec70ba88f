"""How often the right task and the right cause are named: provocations against verdicts.

``python tests/slowness/confusion.py`` runs each provocation of `slowed` on the first and last of
two and of four workers, and undisturbed trainings, and prints a table; ``--write`` puts it into the
docs. ``--unseen`` runs those instead that the rules were not made with. ``--causes``, ``--tasks``
and ``--loops`` choose a part of it.

What was run is kept, and each call shows all of it and continues: ``--seconds 200`` begins no run
after that time. To begin again, remove the file of ``--results``.
"""

import argparse
import json
import os
import tempfile
import time
from collections import Counter
from contextlib import suppress
from importlib.metadata import version
from itertools import groupby, product
from operator import itemgetter
from pathlib import Path
from statistics import median

from slowed import ALL, CAUSES, LIMITS, PROGRAM, UNSEEN, accepted, limited

from mwmagic import Cluster
from mwmagic.errors import WorkerFailed

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "use" / "slow.md"
BEGIN, END = (
    "<!-- the matrix: tests/slowness/confusion.py --write -->",
    "<!-- end of the matrix -->",
)

UNDISTURBED = "base"
NOTHING = "nothing"
FAILED = "failed"
FIT = "fit"


def planned(times, undisturbed, sizes, loops):
    """Yield what is to be run, round by round, so that any part of it is balanced."""
    for number in range(max(times, undisturbed)):
        for size, loop in product(sizes, loops):
            slow = ("worker:0", f"worker:{size - 1}")
            if number < times:
                ones = (*CAUSES, *LIMITS, *UNSEEN)
                yield from ((cause, task, size, loop) for cause, task in product(ones, slow))
                yield from ((cause, "all", size, loop) for cause in ALL)
            if number < undisturbed:
                yield UNDISTURBED, "", size, loop


def left(plan, done):
    """Return what of a plan is not done yet."""
    counted = Counter((one["provoked"], one["on"], *kind(one)) for one in done)
    wanted = []
    for one in plan:
        if counted[one]:
            counted[one] -= 1
        else:
            wanted.append(one)
    return wanted


def kind(one):
    """Return what a training was that was slowed: the number of tasks, and the loop."""
    return one["tasks"], one.get("loop", FIT)


def tried(cluster, provoked, on, loop, folder):
    """Run a provocation; return what was said at the end and on the way, and how soon."""
    params = {"CAUSE": provoked, "SLOW": on or "worker:1"} | ({} if loop == FIT else {"LOOP": loop})
    run = cluster.run("main.py", source=PROGRAM, cwd=folder, params=params)
    with suppress(WorkerFailed):  # the table has it
        run.wait(timeout=300)
    record, slow = run.record, run.status().slow
    steps = [entry for entry in record.metrics() if entry["step"]]
    said = record.events("slow")
    first = said[0]["wall"] if said else None
    done = [entry["step"] for entry in steps if said and entry["wall"] <= first]
    return {
        "provoked": provoked,
        "on": on,
        "tasks": len(cluster.tasks),
        "loop": loop,
        "cause": FAILED if run.status().cause else slow.cause.value if slow else NOTHING,
        "task": (slow.task or "all") if slow else "",
        "said": [[one["cause"], one["task"] or "all"] for one in said],
        "seconds": first - steps[0]["wall"] if said and steps else None,
        "steps": max(done, default=None),
    }


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(wanted, path, seconds):
    """Run what is wanted, as far as the time allows, and add each result to a file."""
    end = time.monotonic() + seconds
    path.parent.mkdir(parents=True, exist_ok=True)
    for size, group in groupby(wanted, key=itemgetter(2)):
        if time.monotonic() > end:
            return
        with (
            limited() as env,
            tempfile.TemporaryDirectory() as folder,
            Cluster(size, directory=folder, env=env) as cluster,
        ):
            for provoked, on, _, loop in group:
                if time.monotonic() > end:
                    return
                if provoked in LIMITS and not env:
                    print(f"{provoked} is left out: no control groups can be made here")
                    continue
                found = tried(cluster, provoked, on, loop, folder)
                with path.open("a") as file:
                    file.write(json.dumps(found) + "\n")
                print(found, flush=True)


def table(done):
    """Return the results in Markdown: what was provoked, and how often what was found."""
    heads = [*CAUSES, "throttled", *ALL.values(), NOTHING]
    others = sorted({one["cause"] for one in done} - set(heads))
    heads = [*heads[:-1], *others, NOTHING]
    rows = [["provoked", "tasks", "loop", "runs", *heads, "task right", "first named after"]]
    kinds = sorted({kind(one) for one in done})
    for provoked, group in product((*CAUSES, *LIMITS, *ALL, *UNSEEN, UNDISTURBED), kinds):
        ones = [one for one in done if (one["provoked"], kind(one)) == (provoked, group)]
        if not ones:
            continue
        found = Counter(one["cause"] for one in ones)
        counts = [found[head] or "" for head in heads]
        name = "nothing" if provoked == UNDISTURBED else provoked
        rows.append([name, *group, len(ones), *counts, right_task(ones), soon(ones)])
    head, *body = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body, "", summary(done)])


def right_task(ones):
    """Return how often the task was right, of the runs in which one was slowed."""
    if ones[0]["provoked"] == UNDISTURBED:
        return ""
    return f"{sum(one['task'] == one['on'] for one in ones)} of {len(ones)}"


def soon(ones):
    """Return after how long something was said for the first time, if it was."""
    took = [one["seconds"] for one in ones if one["seconds"] is not None]
    steps = [one["steps"] for one in ones if one["steps"]]
    return f"{median(took):.1f} s, {median(steps):.0f} steps" if took and steps else ""


def true_of(one, cause, task):
    """Return whether a verdict is true of a training."""
    return task == one["on"] and cause in accepted(one["provoked"], kind(one)[1])


def summary(done):
    """Return how often all was right."""
    slowed = [one for one in done if one["provoked"] not in (UNDISTURBED, *UNSEEN)]
    quiet = [one for one in done if one["provoked"] == UNDISTURBED]
    task = sum(one["task"] == one["on"] for one in slowed)
    cause = sum(true_of(one, one["cause"], one["task"]) for one in slowed)
    passing = sum(any(not true_of(one, *said) for said in one["said"]) for one in slowed)
    accused = sum(bool(one["said"]) for one in quiet)
    found = (
        f"The right task was named in {task} of {len(slowed)} slowed trainings, with the right "
        f"cause in {cause}; {passing} had another verdict on the way. Something was reported in "
        f"{accused} of {len(quiet)} undisturbed ones."
    )
    unseen = [one for one in done if one["provoked"] in UNSEEN]
    return found if not unseen else f"{found} {held_out(unseen)}"


def held_out(unseen):
    """Return how often what the rules were not made with got a verdict that is true of it."""
    named = [one for one in unseen if one["cause"] != NOTHING]
    wrong = sum(not true_of(one, one["cause"], one["task"]) for one in named)
    unclear = sum(one["cause"] == "unclear" and one["task"] == one["on"] for one in named)
    passing = sum(any(not true_of(one, *said) for said in one["said"]) for one in unseen)
    return (
        f"Of {len(unseen)} trainings that were slowed in ways that the rules were not made with, "
        f"{len(named) - wrong - unclear} got the right task and a cause that is true, {unclear} "
        f"the task without a cause, {wrong} a wrong verdict and {len(unseen) - len(named)} none; "
        f"{passing} had a wrong one on the way or at the end."
    )


def write(text):
    """Put a table into the page."""
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PAGE} has no {BEGIN} and {END}")
    cpus = len(os.sched_getaffinity(0))
    packages = " and ".join(f"{name} {version(name)}" for name in ("tensorflow", "keras"))
    where = f"On {cpus} CPUs with {packages}:"
    PAGE.write_text(f"{before}{BEGIN}\n\n{where}\n\n{text}\n\n{END}{after}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--times", type=int, default=3, help="runs of each provocation on each task"
    )
    parser.add_argument("--undisturbed", type=int, default=10, help="undisturbed runs")
    parser.add_argument("--tasks", type=int, nargs="+", default=[2, 4], help="sizes of the cluster")
    loops = ("fit", "loop", "executions")
    parser.add_argument("--loops", nargs="+", choices=loops, default=loops, help="kinds of loops")
    causes = (*CAUSES, *LIMITS, *ALL, UNDISTURBED)
    every = (*causes, *UNSEEN)
    parser.add_argument("--causes", nargs="+", choices=every, default=causes, help="provocations")
    what = "run what the rules were not made with"
    parser.add_argument("--unseen", dest="causes", action="store_const", const=UNSEEN, help=what)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no more after that")
    parser.add_argument("--results", type=Path, default=ROOT / ".mwmagic" / "confusion.jsonl")
    parser.add_argument("--write", action="store_true", help="put the table into docs/use/slow.md")
    given = parser.parse_args()
    plan = list(planned(given.times, given.undisturbed, given.tasks, given.loops))
    plan = [one for one in plan if one[0] in given.causes]
    wanted = left(plan, read(given.results))
    run(wanted, given.results, given.seconds)
    done = read(given.results)
    print(f"\n{table(done)}\n\n{len(left(plan, done))} of {len(plan)} runs are left")
    if given.write:
        write(table(done))


if __name__ == "__main__":
    main()
