"""What is done with recorded runs, for magics and the command line alike.

They get notes and tags, are shown, repeated and removed.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mwmagic.errors import BadArguments, ClusterError, FileTrouble, NoRun, WaitTimeout
from mwmagic.experiments.filters import Filter, check_names
from mwmagic.experiments.parameters import parameters, settings, unset
from mwmagic.experiments.runs import facts_of, indexed
from mwmagic.experiments.scaling import Scaling
from mwmagic.experiments.sweep import Sweep, stored
from mwmagic.model.option import read_count, read_duration
from mwmagic.model.options import OPTIONS, ClusterOptions
from mwmagic.model.status import RunState
from mwmagic.model.values import counted, finite
from mwmagic.record.paths import keep_number
from mwmagic.record.provenance import versions
from mwmagic.record.reader import annotate
from mwmagic.words.comparison import inherited_words, unlike_words
from mwmagic.words.failure import advice, headline
from mwmagic.words.file import file_words
from mwmagic.words.run import blame, remarks
from mwmagic.words.run import headline as run_headline
from mwmagic.words.slowness import slow_words
from mwmagic.words.table import described

from .arguments import add_params, reader
from .run import program_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from mwmagic.model.findings import Cause
    from mwmagic.record import Record

    from .cluster import Cluster
    from .run import Run

__all__ = [
    "Rerun",
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
    what = "The number of a recorded run" + (" (default: the latest)." if latest else ".")
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
    """Return all facts of a run as JSON values; docs/use/agents.md has the fields."""
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
    """Return why a run failed, as JSON values (docs/use/agents.md has the fields) and in words."""
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
    lines = [*lines, *remarks(status, timed=False)]
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
    meaning, remedy = advice(cause)
    return {
        "cause": cause.symptom.value,
        "task": cause.task,
        "headline": headline(cause),
        "exception": cause.exception,
        "where": where.as_json() if where else None,
        "known": cause.known,
        "meaning": meaning,
        "remedy": remedy,
        "link": entry.link if entry else "",
    }


def wait_until(record: Record, until: str | None, timeout: float | None) -> bool:
    """Wait until a run is over, or until a filter is true of it, as ``--where`` takes it.

    The filter may also have the ``epoch`` and the ``step`` that the run has reached.
    Return whether it is true; without a filter, whether the run finished. BadArguments is raised if
    the filter names what the run has not got to its end, and WaitTimeout after `timeout` seconds.
    """
    check = Filter(until) if until else None
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        now = record.read_once()
        status = now.status
        if check is not None:
            values = {**status.reached, **facts_of(now, curves=False).values()}
            if check(values):
                return True
            if status.settled:
                check_names(check.names, values)
        if status.settled:
            return check is None and status.result.value == "finished"
        if end is not None and time.monotonic() >= end:
            raise WaitTimeout(f"run {record.number} is still going after {timeout:g} s")
        time.sleep(RECORD_SECONDS)


@dataclass(frozen=True)
class _Part:
    """What some tasks, or all of them if none are named, ran."""

    tasks: tuple[str, ...]
    script: str
    source: str
    args: tuple[str, ...]
    env: dict[str, str]
    cwd: str


class Rerun:
    """A recorded run, as it can be launched again with other workers or parameters.

    `options` are those of its cluster, with that number of workers. Live cells, missing code, an
    unknown parameter, and another number of workers for tasks that ran different programs are
    refused.
    """

    def __init__(
        self,
        record: Record,
        workers: int | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self._record = record = record.read_once()
        known = record.part("launches")
        launches = {str(task): one for task, one in known.items() if isinstance(one, dict)}
        if record.status.live:
            raise BadArguments(
                f"run {record.number} is a session of live cells, which has no program to run "
                f"again; `%mw_export live {record.number}` writes one"
            )
        if not launches:
            raise NoRun(
                f"the record of run {record.number} does not say what was launched; launch it from "
                "its cell or file"
            )
        self._params = params or {}
        self._parts = [_without(one, self._params) for one in _parts(record, launches)]
        options = ClusterOptions.from_json(record.part("options"))
        if workers is not None and workers != options.workers:
            if len(self._parts) > 1:
                raise BadArguments(
                    f"the tasks of run {record.number} ran different programs, so it is not "
                    "known which one more workers would run: leave out --workers"
                )
            options = replace(options, workers=workers)
        self.options = options

    def declaration(self) -> dict[str, Any]:
        """Return the options that declare such a cluster from a shell."""
        own = {name: getattr(self.options, name) for name, one in OPTIONS.items() if one.command}
        return {
            name: value
            for name, value in own.items()
            if value != OPTIONS[name].default or name == "workers"
        }

    def unlike(self) -> list[str]:
        """Say what cannot be as it was: versions, modules beside the program, and variables."""
        record = self._record
        folder = record.folder or Path()
        changed = record.changed_modules()
        gone = [name for name in changed if not (folder / name).exists()]
        was = record.part("versions")
        now = versions([name for name in was if name not in ("python", "mwmagic")])
        differ = {name: (one, now.get(name)) for name, one in was.items() if one != now.get(name)}
        changed = [one for one in changed if one not in gone]
        lines = unlike_words(record.number, differ, changed, gone)
        return lines + inherited_words(record.number, self._read(), record.inherited, os.environ)

    def _read(self) -> list[str]:
        """Return the variables that the programs read and that are given neither then nor now."""
        found: dict[str, None] = {}
        for part in self._parts:
            env = settings(part.source, self._params, part.args, part.env).env
            found |= dict.fromkeys(
                one.variable
                for one in parameters(part.source)
                if one.variable and not one.refusal and one.variable not in {*part.env, *env}
            )
        return list(found)

    def check(self, cluster: Cluster) -> None:
        """Refuse a cluster of another shape."""
        asked, there = self.options.members, cluster.tasks
        if asked != there:
            raise ClusterError(
                f"run {self._record.number} needs {counted(len(asked), 'task')} "
                f"({asked[0]} to {asked[-1]}), and this cluster has {len(there)}: declare such a "
                f"cluster with `%mw_cluster {self.options.workers}`, or repeat the run on this one "
                f"with --workers {cluster.options.workers}"
            )

    def launch(self, cluster: Cluster, *, answered: bool = False) -> Run:
        """Launch it on a cluster."""
        run: Run | None = None
        for part in self._parts:
            for task in part.tasks or (None,):
                run = cluster.run(
                    part.script,
                    source=part.source,
                    args=part.args,
                    env=part.env,
                    cwd=part.cwd,
                    params=self._params,
                    task=task,
                    restarts=self.options.restarts,
                    answered=answered,
                )
        if run is None:
            raise NoRun(
                f"the record of run {self._record.number} does not say what was launched; launch "
                "it from its cell or file"
            )
        return run


def _without(part: _Part, params: Mapping[str, Any]) -> _Part:
    """Leave out the arguments and variables that set parameters to what they were."""
    args, env = unset(part.source, params, part.args, part.env)
    settings(part.source, params, args, env)
    return replace(part, args=args, env=env)


def _parts(record: Record, launches: Mapping[str, Mapping[str, Any]]) -> list[_Part]:
    """Return what the tasks ran; those that ran the same are together."""
    found: list[_Part] = []
    groups: list[tuple[Mapping[str, Any], list[str]]] = []
    for task, launch in launches.items():
        same = next((tasks for one, tasks in groups if one == launch), None)
        if same is None:
            groups.append((launch, [task]))
        else:
            same.append(task)
    for launch, tasks in groups:
        name, cwd = str(launch.get("source", "")), str(launch.get("cwd", ""))
        if not Path(cwd).is_dir():
            raise NoRun(
                f"the folder {cwd or '?'} in which run {record.number} ran is gone; launch it from "
                "its cell or file elsewhere"
            )
        try:
            text = program_text(record.path / Path(name).name)
        except OSError:
            raise NoRun(
                f"the code of run {record.number} is gone from {record.path}; launch it from its "
                "cell or file"
            ) from None
        args, given = launch.get("args"), launch.get("given")
        found.append(
            _Part(
                tuple(tasks) if len(groups) > 1 else (),
                str(launch.get("script", name)),
                text,
                tuple(map(str, args)) if isinstance(args, list) else (),
                {str(key): str(one) for key, one in given.items()}
                if isinstance(given, dict)
                else {},
                cwd,
            )
        )
    return found


LOST_SECONDS = 86400.0
"""How long the record of a run that was lost must be unchanged."""

BLOCK_BYTES = 512
"""The unit in which the system reports what a file takes up."""


@dataclass(frozen=True)
class Removal:
    """A run that may go, and how many bytes its files take up."""

    record: Record
    size: int


def removals(
    records: Sequence[Record], *, keep: int | None = None, older: float | None = None
) -> list[Removal]:
    """Return the runs that may go; those with a tag, and those that are not over, stay.

    So do the trials of a sweep or a scaling study that is there: without them it would run again.
    The latest `keep` runs stay, and those that began within `older` seconds. The oldest come first;
    BadArguments is raised if neither is given.
    """
    if keep is None and older is None:
        raise BadArguments(
            "say which runs may go: --keep 50 keeps the latest, --older 30d is an age"
        )
    first = len(records) if keep is None else max(len(records) - keep, 0)
    limit = time.time() if older is None else time.time() - older
    roots = {record.root for record in records}
    kinds: tuple[type[Sweep], ...] = (Sweep, Scaling)
    needed = {(root, one.key) for root in roots for kind in kinds for one in stored(root, kind)}
    found = []
    for record, facts in zip(records[:first], indexed(records[:first]), strict=True):
        if facts.tags or not RunState(facts.state).final:
            continue
        if (record.root, facts.trial.partition("/")[0]) in needed:
            continue
        size, changed = _measured(record)
        lost = facts.state == RunState.LOST.value
        # Its supervisor may be alive on another machine that shares the disk.
        active = lost and changed > time.time() - LOST_SECONDS
        began = changed if facts.started is None else facts.started
        if began <= limit and not active:
            found.append(Removal(record, size))
    return found


def remove(removal: Removal) -> None:
    """Remove a run's record; no other run gets its number, by which sweeps and notes name it.

    Raises OSError if a part of it cannot be removed.
    """
    record = removal.record
    keep_number(record.root, record.number)
    shutil.rmtree(record.path)


def _measured(record: Record) -> tuple[int, float]:
    """Return how many bytes a record takes up, and when one of its files was last changed."""
    size, changed = 0, 0.0
    for folder, _, names in os.walk(record.path):
        for path in (folder, *(f"{folder}/{name}" for name in names)):
            try:
                status = os.lstat(path)
            except OSError:  # it is gone, and so is its size
                continue
            size += status.st_blocks * BLOCK_BYTES
            changed = max(changed, status.st_mtime)
    return size, changed
