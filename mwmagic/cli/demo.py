"""The demonstration: the quickstart notebook, executed in a real kernel."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.errors import FileTrouble, MwmagicError, NotInstalled
from mwmagic.model.status import Reached
from mwmagic.record import paths, runs
from mwmagic.record.paths import demo_log
from mwmagic.words.file import exists_words
from mwmagic.words.run import reached

if TYPE_CHECKING:
    import argparse

    from mwmagic.record import Record

__all__ = ["add", "demo"]

DEMO_NOTEBOOK = "quickstart.ipynb"
CELL_SECONDS = 600
"""Time limit for a cell: the first import of TensorFlow can be slow on a cold disk."""


def add(command: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    command.add_argument(
        "--directory",
        default="mwmagic-demo",
        help="Where to put the notebook (default: mwmagic-demo).",
    )
    command.add_argument(
        "--overwrite", action="store_true", help="Replace the notebook even if you changed it."
    )
    command.set_defaults(
        action=lambda given: demo(Path(given.directory), overwrite=given.overwrite)
    )


def _notebook() -> Path:
    """Return the path of the quickstart: in this package, or in a checkout's ``notebooks``."""
    here = Path(__file__).parents[1]
    for path in (here / DEMO_NOTEBOOK, here.parent / "notebooks" / DEMO_NOTEBOOK):
        if path.exists():
            return path
    raise MwmagicError(f"{DEMO_NOTEBOOK} is missing from this installation; reinstall mwmagic")


def _check() -> None:
    wanted = ("nbclient", "tensorflow", "sklearn")
    missing = [module for module in wanted if find_spec(module) is None]
    if missing:
        raise NotInstalled(
            f'the demonstration needs {", ".join(missing)}: pip install "mwmagic[tensorflow,demo]"'
        )


def _check_own(path: Path) -> None:
    """Refuse to replace a notebook that is the user's work."""
    if path.exists() and not paths.is_as_written(path):
        other = "`--directory` names another place"
        raise FileTrouble(exists_words(path, other, known=paths.was_written(path)))


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    paths.note_written(path, data)


def _execute(path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        # TensorFlow's notices are in the notebook where it asks for them; not on the terminal.
        with demo_log(path.parent).open("w") as log:
            client.execute(stderr=log)
    finally:
        text = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
        _write(path, text.encode())


def _metrics(record: Record) -> list[str]:
    """Return a line for each worker, with its last metrics."""
    last: dict[str, Reached] = {}
    for entry in record.metrics():
        new, before = Reached.from_json(entry), last.get(entry["task"], Reached())
        last[entry["task"]] = replace(new, metrics={**before.metrics, **new.metrics})
    return [f"  {task}  {reached(progress)}" for task, progress in sorted(last.items())]


def _jupyter() -> str:
    """Return the path of this interpreter's ``jupyter`` for a shell, relative if possible."""
    command, here = Path(sys.executable).with_name("jupyter"), Path.cwd()
    return shlex.quote(str(command.relative_to(here) if command.is_relative_to(here) else command))


def demo(directory: Path, *, overwrite: bool = False) -> int:
    """Execute the quickstart in `directory` and print what the workers reached."""
    _check()
    path = directory / DEMO_NOTEBOOK
    if not overwrite:
        _check_own(path)
    directory.mkdir(parents=True, exist_ok=True)
    _write(path, _notebook().read_bytes())
    print(f"executing {path}: two workers train a model on handwritten digits ...", flush=True)
    _execute(path)
    record = runs(directory)[-1]
    print(f"run {record.number} {record.state}; the last metrics of each worker:")
    print("\n".join(_metrics(record)))
    print(f"to read and rerun the notebook: {_jupyter()} lab {shlex.quote(str(path))}")
    return 0
