"""Run the rows of keras_rows.py in a gang, and compare what gangs came to."""

import ast
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from gangs import Gang

SCRIPT = Path(__file__).parent / "keras_rows.py"
# What is in another order in Keras 2, or not there at all.
NOT_IN_KERAS2 = "optimizer/"


def keras_version():
    """Return that of the installed Keras, a release or a nightly build, without importing it."""
    source = Path(importlib.util.find_spec("keras").origin).parent / "src" / "version.py"
    return re.search(r'__version__ = "(.+)"', source.read_text())[1]


@dataclass(frozen=True)
class Row:
    """What keras_rows.py says of a row, read without importing TensorFlow."""

    name: str
    title: str
    keras2: bool = True
    single: bool = True
    tolerance: float = 2e-5


def rows_of(script):
    """Return the rows that a script has, by name."""
    return {row.name: row for row in _rows(script)}


def _rows(script):
    for function in ast.parse(script.read_text()).body:
        for call in getattr(function, "decorator_list", ()):
            if isinstance(call, ast.Call) and call.func.id == "row":
                options = {k.arg: ast.literal_eval(k.value) for k in call.keywords}
                yield Row(function.name, ast.literal_eval(call.args[0]), **options)


ROWS = rows_of(SCRIPT)


@dataclass
class Outcome:
    """What each task of a gang made of the rows, what it printed, and where it wrote."""

    directory: Path
    tasks: list
    logs: list

    def of(self, row, task=0):
        found = self.tasks[task].items()
        return {key.partition("/")[2]: v for key, v in found if key.startswith(f"{row}/")}

    def error(self, row):
        errors = [str(self.of(row, task).get("error", "")) for task in range(len(self.tasks))]
        return "; ".join(filter(None, errors)) or None

    def read(self, row):
        """Read what the tasks made of a row, and tell whether it went well on all."""
        for i, task in enumerate(self.tasks):
            path = self.directory / f"{i}-{row}.npz"
            if path.exists():
                with np.load(path) as saved:
                    task.update({f"{row}/{key}": value for key, value in saved.items()})
        return all(self.of(row, i) for i in range(len(self.tasks))) and self.error(row) is None


def run_rows(directory, workers, rows=(), *, nursery=None, known=ROWS, script=SCRIPT, **env):
    """Run rows in gangs: one that fails is its gang's last, and the rest is run in another."""
    given = {"workers": workers, "env": env, "nursery": nursery}
    left = [name for name in rows or known if known[name].keras2 or "ROWS_KERAS" not in env]
    outcome = Outcome(directory, [{} for _ in range(workers)], [""] * workers)
    while left:
        with Gang(directory, script, [directory, *left], **given) as gang:
            gang.wait()
            gang.linger()
            outcome.logs = [log + gang.text(i) for i, log in enumerate(outcome.logs)]
            tails = gang.tails()
        passed = [name for name in left if outcome.read(name)]
        assert passed == left[: len(passed)], tails
        failed = left[len(passed) : len(passed) + 1]
        assert not failed or any(f"{failed[0]}/error" in task for task in outcome.tasks), tails
        left = left[len(passed) + 1 :]
    return outcome


def gang(workers, rows=(), **options):
    """Return a fixture: rows, run once for all the tests that look at them; see `run_rows`."""

    def run(with_keras, tmp_path_factory):
        nursery = None if "ROWS_KERAS" in options else with_keras
        directory = tmp_path_factory.mktemp("rows")
        return run_rows(directory, workers, rows, nursery=nursery, **options)

    return pytest.fixture(scope="module")(run)


def differences(found, expected, row, without=()):
    """Say where two outcomes of a row differ, beyond float32's rounding."""
    keep = [key for key in expected if not key.startswith(tuple(without))]
    if set(keep) - set(found):
        return [f"{row.name}: no {sorted(set(keep) - set(found))}"]
    return [
        f"{row.name}/{key}: {found[key].ravel()[:6]} instead of {expected[key].ravel()[:6]}"
        for key in keep
        if not _close(found[key], expected[key], row.tolerance)
    ]


def _close(found, expected, tolerance):
    if found.dtype.kind in "US" or found.shape != expected.shape:
        return found.shape == expected.shape and str(found) == str(expected)
    return np.allclose(found, expected, rtol=10 * tolerance, atol=tolerance)


def verdict(outcome, single, row, without=()):
    """Return a cell of the table in docs/use/keras.md."""
    found, error = outcome.of(row.name), outcome.error(row.name)
    if error is not None:
        return "refused" if error.startswith("KerasRefused") else "fails"
    if not found:
        return "not compared"
    if not row.single:
        return "same on all"
    return "other numbers" if differences(found, single.of(row.name), row, without) else "same"
