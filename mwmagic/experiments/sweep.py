"""A sweep on disk: its plan, its trials, and which of them are over.

A trial is over when its run's record says so, and nothing else says it. So the sweep's own files
change only when trials are planned or pruned, and a kill at any moment leaves nothing that could
contradict the record: each launch carries the sweep and the trial that it is for.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import re
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from mwmagic.errors import BadArguments, FileTrouble, NoSweep, RunActive
from mwmagic.model.messages import Launch
from mwmagic.model.status import RunState
from mwmagic.model.values import Stored
from mwmagic.record import paths, runs
from mwmagic.record.metrics import frame_of
from mwmagic.record.paths import sweeps_folder
from mwmagic.record.reader import alive, json_lines, json_object, this_process

from .parameters import parameters, settings, values
from .runs import OVER_STATES, OWN_COLUMNS, indexed, rows_of, usual_metrics
from .space import drawn, grid, size, spoken
from .trials import OPEN, Trial, TrialState, TrialStatus, groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mwmagic.record import Record

    from .runs import Facts
    from .space import Space

__all__ = [
    "OPEN",
    "Plan",
    "Sweep",
    "Trial",
    "TrialState",
    "TrialStatus",
    "combinations",
    "every",
    "listed_trials",
    "planned_sweep",
    "seed_of",
    "stored",
    "sweeps",
    "written",
]

SWEEP_VERSION = 1
"""The version of ``sweep.json``, raised with each change that a reader must know about."""

TRIALS_LIMIT = 10_000
"""The most trials of a sweep."""

SEEDS = ("seed", "random_seed")
"""What programs call the parameter that repetitions change, whatever its case."""

_NAME = re.compile(r"\d{4,}")


@dataclass(frozen=True)
class Plan(Stored):
    """What a sweep runs: the program and how, and what ends a trial early."""

    version: int = SWEEP_VERSION
    script: str = ""
    cwd: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    metric: str = ""
    stop_when: str = ""
    seed: int = 0
    draws: int = 0
    """How many combinations were drawn so far."""
    repeat: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    """The cluster's, as they were typed in a shell."""
    space: dict[str, Any] = field(default_factory=dict)
    """What is varied, as `mwmagic.experiments.space.as_json` has it."""
    study: str = ""
    """The name of the Optuna study that suggests the values; empty without one."""

    def launch(self, trial: str, more: Mapping[str, str] | None = None) -> Launch:
        """Return what starts a trial, by its label; variables of the plan count before `more`."""
        given = {**(more or {}), **self.env}
        return Launch(self.script, args=self.args, given=given, cwd=self.cwd, trial=trial)

    def declared(self) -> dict[str, Any]:
        """Return the cluster's options as they were given."""
        return {
            name: tuple(one) if isinstance(one, list) else one for name, one in self.options.items()
        }


class Sweep:
    """A sweep as its folder has it, and as the records of its runs say."""

    word = "sweep"
    """What it is called, and how the names of its files begin."""
    plans: ClassVar[type[Plan]] = Plan

    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.number = number
        self.root = path.parent.parent.parent

    def __repr__(self) -> str:
        return f"<Sweep {self.number}: {len(self.trials())} trials of {self.plan.script}>"

    @property
    def name(self) -> str:
        """What it is called, with its number."""
        return f"{self.word} {self.number}"

    @property
    def plan(self) -> Plan:
        """What it runs."""
        known = json_object(self.path / f"{self.word}.json")
        if not known:
            raise NoSweep(
                f"the plan of {self.name} in {self.path} is gone or damaged: begin another one"
            )
        plan = self.plans.from_json(known)
        if plan.version > SWEEP_VERSION:
            raise NoSweep(
                f"{self.name} was planned by a newer version of mwmagic: install that "
                "version to continue it"
            )
        return plan

    @property
    def source(self) -> str:
        """The program as it was when the sweep was planned."""
        try:
            data = (self.path / "program.py").read_bytes()
        except OSError:
            raise NoSweep(
                f"the program of {self.name} is gone from {self.path}: begin another one"
            ) from None
        return data.decode("utf-8", "surrogateescape")

    @property
    def messages(self) -> Path:
        """What it prints if it runs without a terminal."""
        return self.path / "messages.txt"

    def trials(self) -> list[Trial]:
        """Return the planned trials in their order; the last line of each counts."""
        found = [Trial.from_json(line) for line in self._lines() if "params" in line]
        return [*{one.number: one for one in found}.values()]

    def pruned(self) -> dict[str, str]:
        """Return why trials were ended early, by the names of their runs' folders."""
        return {
            str(line.get("run")): str(line["pruned"]) for line in self._lines() if "pruned" in line
        }

    def _lines(self) -> Iterator[dict[str, Any]]:
        path = self.path / "trials.jsonl"
        if not path.is_file():
            raise NoSweep(f"the trials of {self.name} are gone from {self.path}: begin another one")
        return json_lines(path)

    @property
    def going(self) -> bool:
        """Whether a process runs it, as far as that is known here."""
        holder = json_object(self.path / "writer.json")
        return alive(holder) or holder.get("host", os.uname().nodename) != os.uname().nodename

    @property
    def orphaned(self) -> bool:
        """Whether the process that ran it was killed, and it is not over."""
        holder = json_object(self.path / "writer.json")
        here = holder.get("host") == os.uname().nodename
        return here and not alive(holder) and bool(self.left())

    @property
    def key(self) -> str:
        """How the labels of its trials begin."""
        return str(self.number)

    def label(self, trial: Trial) -> str:
        """Return what the launch of a trial carries, and its record keeps."""
        return f"{self.key}/{trial.number}"

    def outcomes(self, settled: dict[str, Facts] | None = None) -> list[TrialStatus]:
        """Return all trials in their order, each with its latest run.

        `settled` has the facts of runs that were over, by their folders' names, for one who asks
        again and again; it gets those that are over now.
        """
        latest: dict[int, tuple[Record, Facts]] = {}
        records, known = runs(self.root), {} if settled is None else settled
        new = [one for one in records if one.path.name not in known]
        found = dict(zip((one.path.name for one in new), indexed(new), strict=True))
        known |= {name: facts for name, facts in found.items() if facts.state in OVER_STATES}
        for record in records:
            facts = found.get(record.path.name) or known[record.path.name]
            sweep, _, number = facts.trial.partition("/")
            if sweep == self.key and number.isdigit():
                latest[int(number)] = record, facts
        pruned = self.pruned()
        trials = []
        for trial in self.trials():
            if trial.number not in latest:
                trials.append(TrialStatus(trial, TrialState.WAITING))
                continue
            record, facts = latest[trial.number]
            state = _state(facts.state, pruned=record.path.name in pruned)
            trials.append(TrialStatus(trial, state, facts, record))
        return trials

    def left(self, *, retry: bool = False) -> list[TrialStatus]:
        """Return the trials that are not over, and with `retry` those that failed."""
        again = TrialState.FAILED
        return [
            one for one in self.outcomes() if not one.state.over or (retry and one.state is again)
        ]

    def best(self) -> Record | None:
        """Return the run of the best trial, or of its first repetition; None if none finished."""
        outcomes = self.outcomes()
        best = groups(outcomes, self.metric(outcomes))[:1]
        found = [one.record for one in outcomes if best and one.trial.number in best[0].trials]
        return found[0] if found else None

    def frame(self) -> Any:  # noqa: ANN401 - pandas may be missing
        """Return a pandas DataFrame of the trials, with what `mwmagic.runs` has of their runs."""
        return frame_of(self.rows())

    def rows(self) -> list[dict[str, Any]]:
        """Return the trials as rows: what `mwmagic.runs` has of their runs, and the trial itself.

        One that was not launched has its parameters only.
        """
        outcomes = self.outcomes()
        found = []
        for one, row in zip(outcomes, rows_of([one.known for one in outcomes]), strict=True):
            own: dict[str, Any] = {"trial": one.trial.number, "repeat": one.trial.repeat}
            own["trial state"] = one.state.value
            found.append({**own, **row, **({} if one.facts else dict.fromkeys(OWN_COLUMNS))})
        return found

    def metric(self, outcomes: Iterable[TrialStatus]) -> str:
        """Return the metric that says which trial is best; empty if there is none yet."""
        chosen = self.plan.metric
        return chosen or next(iter(usual_metrics([one.facts for one in outcomes if one.facts])), "")

    def prune(self, record: Record, why: str) -> None:
        """Note that a run is ended early, before it is."""
        self.append({"run": record.path.name, "pruned": why})

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add a line to the trials: why one is ended early, or the values that a study suggests."""
        line = json.dumps(entry) + "\n"
        path = self.path / "trials.jsonl"
        with path.open("rb+") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - 1, 0))
            whole = not end or file.read(1) == b"\n"  # else a crash has cut the last line short
            file.write((b"" if whole else b"\n") + line.encode())

    def extend(self, trials: Iterable[dict[str, Any]], **changes: Any) -> int:  # noqa: ANN401
        """Plan further combinations, and change the plan; return how many trials are new."""
        plan = self.plans.from_json({**self.plan.as_json(), **changes})
        new = _tried(trials, plan, self.trials())
        lines = [line for line in self._lines() if "params" in line or "pruned" in line]
        lines += [one.as_json() for one in new]
        _write(self.path / "trials.jsonl", lines)
        _write_file(self.path / f"{self.word}.json", json.dumps(plan.as_json()).encode())
        return len(new)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep others from becoming the writer meanwhile, if this disk has locks that work."""
        with (self.path / ".lock").open("wb") as lock:
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def check_writer(self) -> None:
        """Raise RunActive if another process runs this sweep."""
        path = self._writer
        holder = json_object(path)
        if holder and holder.get("host") != os.uname().nodename:
            raise RunActive(
                f"{self.name} is being run on {holder.get('host')}; if it is not, remove {path}"
            )
        if alive(holder) and holder.get("pid") != os.getpid():
            raise RunActive(
                f"{self.name} is being run by process {holder['pid']}: wait for its "
                "end, or stop it there"
            )

    @property
    def _writer(self) -> Path:
        return self.path / "writer.json"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the one process that runs this sweep; raise RunActive if another one is."""
        path = self._writer
        with self._locked():
            self.check_writer()
            holder = {**this_process(), "host": os.uname().nodename}
            _write_file(path, json.dumps(holder).encode())
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


_STATES = {
    RunState.FINISHED.value: TrialState.FINISHED,
    RunState.FAILED.value: TrialState.FAILED,
    RunState.STOPPED.value: TrialState.INTERRUPTED,
    RunState.LOST.value: TrialState.INTERRUPTED,
}


def _state(state: str, *, pruned: bool) -> TrialState:
    found = _STATES.get(state, TrialState.RUNNING)
    # It may have ended by itself, between the decision to prune it and the signal.
    return TrialState.PRUNED if pruned and found is TrialState.INTERRUPTED else found


_S = TypeVar("_S", bound=Sweep)


def sweeps(directory: Path | str = ".") -> list[Sweep]:
    """Return the sweeps recorded below a directory, oldest first.

    Parameters
    ----------
    directory : path
        The directory that holds ``.mwmagic``.

    Returns
    -------
    list of Sweep
        Each has ``best()``, the run of its best trial, and ``frame()``, a DataFrame of all. A
        notebook shows it as the table of its trials, with their curves.
    """
    return stored(Path(directory), Sweep)


def stored(root: Path, kind: type[_S]) -> list[_S]:
    """Return what a folder has of a kind of sweeps, oldest first."""
    folder = sweeps_folder(root, kind.word)
    try:
        names = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [kind(path, int(path.name)) for path in names]
    return sorted(found, key=lambda one: one.number)


def planned_sweep(root: Path, plan: Plan, source: str, trials: Sequence[dict[str, Any]]) -> Sweep:
    """Write a new sweep, as a whole or not at all."""
    return written(Sweep, root, plan, source, trials)


def written(
    kind: type[_S], root: Path, plan: Plan, source: str, trials: Sequence[dict[str, Any]]
) -> _S:
    """Write a new sweep of some kind, as a whole or not at all."""
    lines = [one.as_json() for one in _tried(trials, plan)]
    folder = sweeps_folder(root, kind.word)
    try:
        paths.make_private(folder)
        paths.keep_from_git(root)
        draft = Path(mkdtemp(prefix=".new-", dir=folder))
        try:
            _write_file(draft / "program.py", source.encode("utf-8", "surrogateescape"))
            _write_file(draft / f"{kind.word}.json", json.dumps(plan.as_json()).encode())
            _write(draft / "trials.jsonl", lines)
            return _numbered(root, draft, kind)
        except BaseException:
            rmtree(draft, ignore_errors=True)
            raise
    except OSError as error:
        raise FileTrouble(
            f"the {kind.word} cannot be written to {folder}: {error.strerror}"
        ) from error


def _numbered(root: Path, draft: Path, kind: type[_S]) -> _S:
    """Give a new sweep the next number."""
    number = max((one.number for one in stored(root, kind)), default=0)
    while True:
        number += 1
        path = draft.with_name(f"{number:04d}")
        try:
            draft.rename(path)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            continue  # another process has taken the number
        return kind(path, number)


def _tried(
    wanted: Iterable[dict[str, Any]], plan: Plan, there: Sequence[Trial] = ()
) -> list[Trial]:
    """Return the trials of combinations that are not there yet, each repeated as planned.

    Those that a study will suggest are all alike, and all new.
    """
    combinations, known = list(wanted), {one.key for one in there}
    number = max((one.number for one in there), default=0)
    new: list[Trial] = []
    _check_count(len(combinations) * plan.repeat)
    for again in range(plan.repeat):
        for params in combinations:
            trial = Trial(number + len(new) + 1, params, again)
            if plan.study or trial.key not in known:
                known.add(trial.key)
                new.append(trial)
    _check_count(len(there) + len(new))
    return new


def _check_count(trials: int) -> None:
    if trials > TRIALS_LIMIT:
        raise BadArguments(
            f"this is a sweep of {trials:,} trials, and one may have {TRIALS_LIMIT:,}: try fewer "
            "values, or draw some with --random N"
        )


def _write(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    _write_file(path, "".join(json.dumps(line) + "\n" for line in lines).encode())


def _write_file(path: Path, data: bytes) -> None:
    try:
        paths.replace(path, data)
    except OSError as error:
        raise FileTrouble(f"{path} cannot be written: {error.strerror}") from error


DRAWS_LIMIT = 100
"""How many times as many combinations are drawn as are wanted before too few are there."""


def combinations(
    space: Space, wanted: int, seed: int, begin: int, known: Iterable[Mapping[str, Any]] = ()
) -> tuple[list[dict[str, Any]], int]:
    """Draw so many combinations that are new; return them, and how many were drawn in all.

    `begin` is how many were drawn before. Raises BadArguments if there are too few.
    """
    _check_count(wanted)
    seen = {Trial(params=dict(one)).key for one in known}
    before, found, at = len(seen), list[dict[str, Any]](), begin
    while len(found) < wanted:
        if at - begin > DRAWS_LIMIT * (wanted + before):
            raise BadArguments(
                f"{spoken(space)} has only {before + len(found)} combinations: try all, without "
                "--random, or give a range"
            )
        one = drawn(space, seed, at)
        at += 1
        key = Trial(params=one).key
        if key not in seen:
            seen.add(key)
            found.append(one)
    return found, at


def every(space: Space) -> list[dict[str, Any]]:
    """Return all combinations, if they are not too many."""
    _check_count(size(space))
    return list(grid(space))


def listed_trials(
    given: Iterable[Mapping[str, Any]], source: str, args: Sequence[str], env: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return trials that are listed, by the parameters' whole names.

    Raises BadArguments if there is no such parameter, or it cannot be set to one of the values.
    """
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise BadArguments(
            "a sweep needs values to try, as {'units': [32, 64]}, or a list of trials, as "
            f"[{{'units': 32}}, {{'units': 64}}], not {given!r}"
        )
    asked = list(itertools.islice(given, TRIALS_LIMIT + 1))  # it may never end
    _check_count(len(asked))
    found: dict[str, dict[str, Any]] = {}
    for one in asked:
        if not isinstance(one, Mapping):
            raise BadArguments(f"a trial is a mapping such as {{'units': 32}}, not {one!r}")
        params = dict(settings(source, one, args, env).values)
        key = Trial(params=params).key
        if key in found:
            raise BadArguments(
                f"the trial {dict(one)} is listed twice: repeat=2 runs each of them twice"
            )
        found[key] = params
    if not found:
        raise BadArguments("the list of trials is empty: give some, as [{'units': 32}]")
    return [*found.values()]


def seed_of(source: str, args: Sequence[str], env: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the parameter that holds a program's seed, and its value; None if none does."""
    known = values(source, args, env)
    for one in parameters(source):
        last = one.name.rpartition(".")[2].lower()
        value = known.get(one.name)
        if last in SEEDS and not one.refusal and isinstance(value, int):
            return one.name, value
    return None
