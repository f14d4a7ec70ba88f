"""Recorded runs for other tools: as event files, CSV and pictures of curves, and in MLflow."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

from mwmagic.client.arguments import chosen, reader
from mwmagic.errors import BadArguments, FileTrouble, NoRun
from mwmagic.experiments.compare import axes_of, chosen_curves, figure
from mwmagic.experiments.trackers import event_file, run_folder, to_mlflow
from mwmagic.model.option import read_count, read_list
from mwmagic.model.values import encodable
from mwmagic.record import paths
from mwmagic.record.metrics import rows
from mwmagic.record.paths import expanded
from mwmagic.words.file import file_words, present_words

from .runs import curves_picture, run_label

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from mwmagic.record import Record

__all__ = ["FORMATS", "add_export", "check_options", "export_runs"]

FORMATS = ("tensorboard", "mlflow", "csv", "svg", "png")
"""What recorded runs are exported as."""


def add_export(parser: argparse.ArgumentParser) -> None:
    """Add what is exported, and where to, to a parser that has the format."""
    add = parser.add_argument
    what = "The numbers of recorded runs (default: the latest)."
    add("runs", nargs="*", default=[], type=reader(read_count), metavar="RUN", help=what)
    what = (
        "The file to write, or TensorBoard's folder (default: main.sh, main.sbatch, live.py, "
        "run-3.csv, tensorboard and so on)."
    )
    add("--file", metavar="FILE", help=what)
    what = "The metrics of a picture, separated by commas (default: a loss and an accuracy)."
    add("--metric", dest="metrics", type=read_list, default=(), metavar="NAME", help=what)
    what = "Where MLflow keeps its runs, such as sqlite:///mlflow.db (default: MLflow's own)."
    add("--uri", metavar="URI", help=what)
    add("--experiment", metavar="NAME", help="The experiment in MLflow (default: Default).")


def check_options(given: argparse.Namespace) -> None:
    """Refuse what would have no effect."""
    if given.kind == "mlflow" and given.file:
        raise BadArguments("MLflow has a place of its own, which --uri names: leave out --file")
    if given.metrics and given.kind not in ("svg", "png"):
        raise BadArguments(f"--metric is for svg and png, and {given.kind} has all metrics")
    for name in ("uri", "experiment"):
        if getattr(given, name) and given.kind != "mlflow":
            raise BadArguments(f"--{name} is for mlflow, not for {given.kind}")


def export_runs(records: Sequence[Record], given: argparse.Namespace) -> Iterator[str]:
    """Export the runs that `add_export` has read; yield what to print."""
    check_options(given)
    if not records:
        raise NoRun(f"no runs are recorded in {Path.cwd()}, so there is nothing to export")
    wanted = chosen(records, given.runs) if given.runs else list(records[-1:])
    if given.kind == "mlflow":
        yield from _to_mlflow(wanted, given)
        return
    files = _FILES[given.kind](wanted, given)
    _write(files, overwrite=given.overwrite)
    if given.kind == "tensorboard":
        folder = next(iter(files)).parent.parent
        names = ", ".join(path.parent.name for path in files)
        yield f"wrote {names} to {folder}: `tensorboard --logdir {folder}` shows them"
    else:
        yield from (f"wrote {path}" for path in files)


def _to_mlflow(records: Sequence[Record], given: argparse.Namespace) -> Iterator[str]:
    for one in records:
        found, there = to_mlflow(one, given.uri, given.experiment, overwrite=given.overwrite)
        yield (
            f"run {one.number} is in MLflow already, as {found}: --overwrite exports it again"
            if there
            else f"run {one.number} is run {found} of MLflow"
        )


def _tensorboard(records: Sequence[Record], given: argparse.Namespace) -> dict[Path, bytes]:
    folder = expanded(given.file or "tensorboard")
    files = {}
    for one in records:
        name, content = event_file(one)
        files[run_folder(folder, one.number) / name] = content
    return files


def _named(records: Sequence[Record], given: argparse.Namespace) -> Path:
    numbers = "-".join(str(one.number) for one in records)
    return expanded(given.file or f"run{'s' if len(records) > 1 else ''}-{numbers}.{given.kind}")


def _csv(records: Sequence[Record], given: argparse.Namespace) -> dict[Path, bytes]:
    entries = []
    for one in records:
        found = [{"run": one.number, **entry} for entry in one.metrics()]
        if not found:
            raise NoRun(f"run {one.number} has no metrics to write: leave it out")
        entries += found
    lines = list(rows(entries))
    text = io.StringIO()
    names = dict.fromkeys(name for line in lines for name in line)
    writer = csv.DictWriter(text, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return {_named(records, given): encodable(text.getvalue()).encode()}


def _svg(records: Sequence[Record], given: argparse.Namespace) -> dict[Path, bytes]:
    curves = chosen_curves(records, given.metrics)
    labels = {one.number: run_label(one.number) for one in records}
    picture = curves_picture(curves, labels, axes_of(curves)[0])
    return {_named(records, given): encodable(picture.svg).encode()}


def _png(records: Sequence[Record], given: argparse.Namespace) -> dict[Path, bytes]:
    content = io.BytesIO()
    figure(records, given.metrics).savefig(content, format="png", dpi=150)
    return {_named(records, given): content.getvalue()}


_FILES = {"tensorboard": _tensorboard, "csv": _csv, "svg": _svg, "png": _png}


def _write(files: Mapping[Path, bytes], *, overwrite: bool) -> None:
    """Write files, unless that would replace others."""
    for path in files:
        if path.exists() and not overwrite:
            raise FileTrouble(present_words(path, "`--file` names another"))
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            paths.replace(path, content)
    except FileExistsError:
        raise FileTrouble(
            f"{path.parent} is a file, not a directory: `--file` names another place"
        ) from None
    except OSError as error:
        raise FileTrouble(file_words(error, path)) from error
