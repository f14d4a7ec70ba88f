"""What is done with recorded runs, for magics and the command line alike: notes, tags, removals."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from mwmagic.errors import FileTrouble, WaitTimeout
from mwmagic.experiments.cleaning import removals, remove
from mwmagic.experiments.filters import Filter, check_names
from mwmagic.experiments.runs import facts_of
from mwmagic.model.option import read_count, read_duration
from mwmagic.model.status import RunState
from mwmagic.model.values import counted, finite
from mwmagic.record.reader import annotate
from mwmagic.words.failure import explain, headline
from mwmagic.words.file import file_words
from mwmagic.words.run import blame
from mwmagic.words.run import headline as run_headline
from mwmagic.words.slowness import slow_words
from mwmagic.words.table import described

from .arguments import add_params, reader

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from mwmagic.experiments.cleaning import Removal
    from mwmagic.model.findings import Cause
    from mwmagic.record import Record

__all__ = [
    "add_cleaning",
    "add_note",
    "add_rerun",
    "add_run",
    "add_tags",
    "clean",
    "explained",
    "note",
    "shown",
    "tag",
    "wait_until",
]

REMOVALS_LIMIT = 20
"""How many runs a list of removals names."""

RECORD_SECONDS = 0.25
"""The pause between two looks at a record."""


def add_run(parser: argparse.ArgumentParser, *, latest: bool = True) -> None:
    """Add the number of a run to a parser."""
    add = parser.add_argument
    what = "Its number from mwmagic runs" + (" (default: the latest)." if latest else ".")
    many: dict[str, Any] = {"nargs": "?"} if latest else {}
    add("run", type=reader(read_count), metavar="RUN", help=what, **many)


def add_rerun(parser: argparse.ArgumentParser) -> None:
    """Add what a repetition of a run takes to a parser."""
    add_run(parser)
    add_params(parser)
    what = "Another number of workers than the run had."
    parser.add_argument("--workers", "-n", type=reader(read_count), metavar="N", help=what)


def add_note(parser: argparse.ArgumentParser) -> None:
    """Add what a note needs to a parser."""
    add_run(parser, latest=False)
    what = "The note, in quotes; without it the note is shown, and an empty one removes it."
    parser.add_argument("text", nargs="?", metavar="TEXT", help=what)


def note(record: Record, given: argparse.Namespace) -> str:
    """Write a note to a run, or show it; return what to print."""
    if given.text is None:
        return record.note or f"run {record.number} has no note"
    now = annotate(record, note=given.text)
    return f"run {record.number}: {now.note}" if now.note else f"run {record.number} has no note"


def add_tags(parser: argparse.ArgumentParser) -> None:
    """Add what tags need to a parser."""
    add_run(parser, latest=False)
    add = parser.add_argument
    add("tags", nargs="*", default=[], metavar="TAG", help="Tags to give it, one word each.")
    what = "A tag to remove. May be repeated."
    add("--remove", action="append", default=[], metavar="TAG", help=what)


def tag(record: Record, given: argparse.Namespace) -> str:
    """Give a run tags, take some away, or show them; return what to print."""
    tags = record.tags
    if given.tags or given.remove:
        tags = annotate(record, add=given.tags, remove=given.remove).tags
    return f"run {record.number}: {', '.join(tags)}" if tags else f"run {record.number} has no tags"


def add_cleaning(parser: argparse.ArgumentParser) -> None:
    """Add what chooses the runs to remove to a parser."""
    add = parser.add_argument
    add("--keep", type=reader(read_count), metavar="N", help="Keep the latest N runs.")
    what = "Remove only runs that began longer ago, such as 30d or 12h."
    add("--older", type=reader(read_duration), metavar="TIME", help=what)
    add("--yes", action="store_true", help="Remove them; without it they are only listed.")


def clean(records: Sequence[Record], given: argparse.Namespace) -> Iterator[str]:
    """List the runs that may go, and remove them if that was asked for; yield what to print.

    FileTrouble is raised at the end if a run could not be removed.
    """
    found = removals(records, keep=given.keep, older=given.older)
    if not found:
        yield (
            "nothing to remove: every run is to be kept, has a tag, is a trial of a sweep or a "
            "scaling study, or is not over"
        )
        return
    if not given.yes:
        for one in found[:REMOVALS_LIMIT]:
            yield f"  {one.record.number}  {one.record.name}  {_megabytes(one.size)}"
        if len(found) > REMOVALS_LIMIT:
            yield f"  and {len(found) - REMOVALS_LIMIT} more, up to run {found[-1].record.number}"
        yield f"this would remove {_freed(found, 'free')}; add --yes to do it"
        return
    removed, failures = [], []
    for one in found:
        try:
            remove(one)
        except OSError as error:  # noqa: PERF203 - the others go
            number, why = one.record.number, file_words(error, one.record.path)
            failures.append(f"run {number} could not be removed completely: {why}")
        else:
            removed.append(one)
    if removed:
        yield f"removed {_freed(removed, 'freed')}"
    if failures:
        more = f" (and {counted(len(failures) - 1, 'other run')} like it)" if failures[1:] else ""
        raise FileTrouble(failures[0] + more)


def _freed(found: Sequence[Removal], verb: str) -> str:
    return f"{counted(len(found), 'run')} and {verb} {_megabytes(sum(one.size for one in found))}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def shown(record: Record) -> dict[str, Any]:
    """Return all facts of a run as JSON values; docs/agents.md has the fields."""
    record = record.read_once()
    info, status = record.info, record.status
    launch = next(iter(record.launches), {})
    tasks = {
        name: {
            "state": task.state.value,
            "exit_code": task.code,
            "signal": task.signal,
            "log": task.log,
        }
        for name, task in status.tasks.items()
    }
    known = {
        **described(facts_of(record, curves=False), record),
        "status": run_headline(status),
        "over": status.over,
        "args": launch.get("args", []),
        "env": launch.get("given", {}),
        "cwd": launch.get("cwd", ""),
        "options": info.get("options", {}),
        "versions": info.get("versions", {}),
        "git": info.get("git"),
        "workers": tasks,
    }
    found: dict[str, Any] = finite(known)
    return found


def explained(record: Record) -> tuple[dict[str, Any], list[str]]:
    """Return why a run failed: as JSON values, whose fields docs/agents.md has, and in words."""
    status = record.status
    cause = status.cause
    lines = blame(status)
    if not lines:
        why = "it did not fail" if status.over else "it has not failed"
        if status.state is RunState.LOST:
            why = "its supervisor is gone, and nothing recorded says why"
        lines = [f"run {record.number} is {status.state.value}: {why}"]
    slow = status.slow
    if slow is not None:
        lines = [*lines, slow_words(slow)]
    found: dict[str, Any] = {
        "number": record.number,
        "state": status.state.value,
        "failed": cause is not None,
        "cause": "",
        "task": "",
        "headline": "",
        "exception": None,
        "where": None,
        "known": None,
        "meaning": "",
        "remedy": "",
        "link": "",
        "slow": slow and {**slow.as_json(), "without": slow.without, "text": slow_words(slow)},
        "text": lines,
    }
    if cause is not None:
        found |= _cause(cause)
    return found, lines


def _cause(cause: Cause) -> dict[str, Any]:
    from mwmagic.diagnosis.table import ENTRIES

    where = cause.where
    entry = ENTRIES.get(cause.known or "")
    advice = [line.strip() for line in explain(cause)]
    remedy = next((one.removeprefix("Try: ") for one in advice if one.startswith("Try: ")), "")
    return {
        "cause": cause.symptom.value,
        "task": cause.task,
        "headline": headline(cause),
        "exception": cause.exception,
        "where": where.as_json() if where else None,
        "known": cause.known,
        "meaning": entry.meaning if entry else "",
        "remedy": remedy,
        "link": entry.link if entry else "",
    }


def wait_until(
    record: Record,
    until: str | None,
    timeout: float | None,
    look: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait until a run is over, or until a filter is true of it, as ``--where`` takes it.

    Return whether it is true; without a filter, whether the run finished. BadArguments is raised if
    the filter names what the run has not got to its end, and WaitTimeout after `timeout` seconds;
    `look` is called with the seconds between two looks.
    """
    check = Filter(until) if until else None
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        now = record.read_once()
        status = now.status
        if check is not None:
            values = facts_of(now, curves=False).values()
            if check(values):
                return True
            if status.settled:
                check_names(check.names, values)
        if status.settled:
            return check is None and status.result.value == "finished"
        if end is not None and time.monotonic() >= end:
            raise WaitTimeout(f"run {record.number} is still going after {timeout:g} s")
        look(RECORD_SECONDS)
