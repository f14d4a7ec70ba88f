"""The recorded metrics of tasks: one line of ``metrics.jsonl`` for each entry, and their summary.

An entry comes from a task's report or from its log. If a task reports a metric, the values
of that metric in its log are ignored.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import defaultdict
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mwmagic.errors import NoRun, NotInstalled
from mwmagic.model.values import decoded, encoded, encoded_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

__all__ = [
    "GIVEN",
    "HISTORY",
    "LOGGED",
    "REPORTED",
    "STEPS",
    "USAGE",
    "Durations",
    "Extremes",
    "Preference",
    "data_frame",
    "frame_of",
    "given",
    "history",
    "metric_line",
    "metrics",
    "parsed",
    "raw_entries",
    "read_few",
    "rises",
    "rows",
    "usage",
]

REPORTED, LOGGED = "report", "log"
"""The sources of an entry."""

HISTORY = "history"
"""The kind of an entry with part of the history that a `fit` returned."""

GIVEN = "given"
"""The kind of an entry with the variables of live cells as a `fit` began."""

STEPS = "steps"
"""The kind of an entry with where the time of some steps went."""

USAGE = "usage"
"""The kind of an entry with what a task's processes, and the machine's network and GPUs, used."""

COUNT_LIMIT = 2**53
"""The largest count of steps or epochs: JavaScript and floats are exact up to here."""

WHOLE_BYTES = 2**19
"""The longest file of metrics of which `read_few` reads every line."""

ENTRIES_LIMIT = 5000
"""The most entries that it reads."""

_COUNTS = ("epoch", "epochs", "step", "steps")


def metric_line(**fields: Any) -> str:  # noqa: ANN401 - JSON values
    """Return an entry as a line; its metrics need not be finite."""
    if "metrics" in fields:
        fields["metrics"] = encoded_all(fields["metrics"])
    if "values" in fields:
        fields["values"] = [encoded(value) for value in fields["values"]]
    return json.dumps(fields, allow_nan=False)


def parsed(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the entry of a line's JSON; None if it has no metrics or is damaged."""
    if not isinstance(raw.get("metrics"), dict):
        return None
    entry = {"source": LOGGED, "kind": "print", **raw}
    try:
        entry["wall"] = float(raw["wall"])
        entry["task"], entry["attempt"] = str(raw["task"]), int(raw["attempt"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    entry |= {name: _count(raw.get(name)) for name in _COUNTS}
    entry["final"] = raw.get("final") is True
    for name in ("seconds_per_step", "samples"):
        entry[name] = _positive(raw.get(name))
    entry["metrics"] = _numbers(raw["metrics"])
    return entry


def _count(value: object) -> int | None:
    """Return a count that every reader of JSON understands."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if abs(value) <= COUNT_LIMIT else None


def _positive(value: object) -> float | None:
    """Return a time or a count of samples; None if it is damaged or unknown."""
    number = _number(value)
    return number if 0 < number < math.inf else None


def _numbers(metrics: Mapping[str, object]) -> dict[str, float]:
    """Return the metrics that are numbers."""
    found = {}
    for name, value in metrics.items():
        try:
            found[name] = decoded(value)
        except ValueError:  # noqa: PERF203 - a damaged value must not cost the others
            continue
    return found


class Preference:
    """Ignores the values in a task's log of metrics that the task reports itself."""

    def __init__(self) -> None:
        self._reported: defaultdict[tuple[str, int], set[str]] = defaultdict(set)

    def add(self, entry: Mapping[str, Any]) -> set[str]:
        """Note a report; return the metrics that it is the first to contain."""
        known = self._reported[entry["task"], entry["attempt"]]
        new = entry["metrics"].keys() - known if entry["source"] == REPORTED else set()
        known |= new
        return new

    def left(self, entry: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return an entry without metrics that are also reported; None if nothing is left."""
        if entry["source"] == REPORTED:
            return dict(entry)
        reported = self._reported[entry["task"], entry["attempt"]]
        metrics = {n: value for n, value in entry["metrics"].items() if n not in reported}
        return {**entry, "metrics": metrics} if metrics else None


def metrics(raws: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries that have metrics, in order, from the JSON of the lines."""
    entries = [entry for raw in raws if (entry := parsed(raw)) is not None]
    preference = Preference()
    for entry in entries:
        preference.add(entry)
    left = (preference.left(entry) for entry in entries if entry["metrics"])
    return [entry for entry in left if entry is not None]


def read_few(path: Path) -> list[dict[str, Any]]:
    """Return entries of a file of metrics: all of a short one, some of a long one's first task.

    Those of a validation and of an epoch's end are among them. Lines that cannot be read are left
    out.
    """
    found: list[bytes] = []
    try:
        with path.open("rb") as file:
            stride = 1 + os.fstat(file.fileno()).st_size // WHOLE_BYTES
            task = b""
            for number, line in enumerate(file):
                if stride > 1 and number == 0:
                    task = line[(at := line.find(b'"task": ')) : line.find(b",", at)]
                rare = b'"validation"' in line or b'"final": true' in line
                if number % stride == 0 or (rare and task in line):
                    found.append(line)
    except OSError:
        pass
    stride = 1 + len(found) // ENTRIES_LIMIT
    return metrics(raw_entries(found[::stride]))


def given(path: Path) -> dict[str, Any]:
    """Return the variables of live cells at the last `fit`; none if there was no `fit`."""
    found: dict[str, Any] = {}
    with suppress(OSError), path.open("rb") as file:
        for raw in raw_entries(line for line in file if b'"kind": "given"' in line):
            values = raw.get("given")
            if raw.get("kind") == GIVEN and isinstance(values, dict):
                found = values
    return found


def raw_entries(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of lines; one that is damaged costs only itself."""
    for line in lines:
        try:
            raw = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(raw, dict):
            yield raw


def history(raws: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the history of the last `fit` in the last attempt."""
    parts = [raw for raw in raws if _is_history(raw)]
    last = max(((one["attempt"], one["fit"]) for one in parts), default=None)
    if last is None:
        raise NoRun(
            "no fit of this run has ended, or none was reported: a history comes from model.fit "
            "on the chief; run.metrics() has what was reported until now"
        )
    found: defaultdict[str, list[float]] = defaultdict(list)
    for one in sorted(parts, key=lambda one: int(one["start"])):
        if (one["attempt"], one["fit"]) == last:
            found[one["name"]] += [_number(value) for value in one["values"]]
    return dict(found)


def _is_history(raw: Mapping[str, Any]) -> bool:
    counts = ("attempt", "fit", "start")
    return (
        raw.get("kind") == HISTORY
        and all(_count(raw.get(name)) is not None for name in counts)
        and isinstance(raw.get("name"), str)
        and isinstance(raw.get("values"), list)
    )


def _number(value: object) -> float:
    try:
        return decoded(value)
    except ValueError:
        return math.nan


def usage(raws: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what the tasks used, in order, from the JSON of the lines."""
    return [found for raw in raws if (found := used(raw)) is not None]


def used(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a task used, from a line's JSON; None if it says nothing of that."""
    if raw.get("kind") != USAGE or not isinstance(raw.get("usage"), dict):
        return None
    try:
        where = {"task": str(raw["task"]), "attempt": int(raw["attempt"])}
        when = {"wall": float(raw["wall"]), "seconds": float(raw["seconds"])}
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return {**where, **when, **_numbers(raw["usage"])}


def rows(entries: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Return entries as flat rows; a metric named like another column is prefixed with a dot."""
    for entry in entries:
        row = {name: value for name, value in entry.items() if name != "metrics"}
        row |= {f".{n}" if n in row else n: value for n, value in entry["metrics"].items()}
        yield row


def data_frame(entries: Iterable[Mapping[str, Any]]) -> Any:  # noqa: ANN401 - pandas may be missing
    """Return entries as a pandas DataFrame, a column for each metric."""
    return frame_of(rows(entries))


def frame_of(rows: Iterable[Mapping[str, Any]]) -> Any:  # noqa: ANN401 - pandas may be missing
    """Return rows as a pandas DataFrame."""
    try:
        pandas: Any = import_module("pandas")
    except ImportError:
        raise NotInstalled(
            "a frame needs pandas, which is not installed here: pip install pandas, "
            "or leave out frame=True"
        ) from None
    return pandas.DataFrame(list(rows))


_RISING = re.compile(
    r"acc(?:uracy)?|auc|precision|recall|f1|f1_score|iou|dice|bleu|rouge|score|reward|psnr|ssim|r2"
)


def rises(metric: str) -> bool:
    """Return whether higher values of a metric are better, judging by its name."""
    words = re.split(r"[^a-z0-9]+|_", metric.lower())
    return any(_RISING.fullmatch(word) for word in words) and "loss" not in words


class Durations:
    """The seconds that a run spends in each state."""

    def __init__(self, state: str, time: float) -> None:
        self._state = state
        self._since = self._began = time
        self._spent: dict[str, float] = defaultdict(float)

    def enter(self, state: str, time: float) -> None:
        """Note that another state begins."""
        self._spent[self._state] += time - self._since
        self._state, self._since = state, time

    def as_json(self, time: float | None) -> dict[str, Any]:
        """Return the seconds in each state and in total, until `time` or the last state's start."""
        now = self._since if time is None else time
        spent = {**self._spent, self._state: self._spent[self._state] + now - self._since}
        states = {state: round(seconds, 3) for state, seconds in spent.items()}
        return {"total": round(now - self._began, 3), "states": states}


class Extremes:
    """The last and the best value of each task's metrics, and when each was reached."""

    def __init__(self) -> None:
        self._tasks: dict[str, dict[str, dict[str, Any]]] = {}

    def add(self, task: str, entry: Mapping[str, Any]) -> None:
        """Take an entry of ``metrics.jsonl``."""
        when = {name: entry.get(name) for name in ("attempt", "epoch", "step")}
        metrics = self._tasks.setdefault(task, {})
        for name, value in entry["metrics"].items():
            reached = {"value": value, **when}
            best = metrics.get(name, {}).get("best")
            if value is not None and math.isfinite(value) and _better(name, value, best):
                best = reached
            metrics[name] = {"last": reached, "best": best}

    def as_json(self) -> dict[str, Any]:
        """Return ``last`` and ``best`` for each task and metric."""
        return {task: dict(metrics) for task, metrics in self._tasks.items()}


def _better(name: str, value: float, best: Mapping[str, Any] | None) -> bool:
    if best is None:
        return True
    return bool(value > best["value"] if rises(name) else value < best["value"])
