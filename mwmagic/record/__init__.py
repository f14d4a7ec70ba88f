"""The record of a run on disk: a directory, which outlives the run.

`paths` is its layout, and how files are written; `writer` and `reader` write and read it, and the
user's note and tags; `metrics` has them and their summary, and `provenance` where the code comes
from.
"""

from __future__ import annotations

from .paths import FOLDER, FORMAT_VERSION, RunPaths, TaskPaths, inside
from .reader import Record, runs, runs_below
from .writer import RunDirectory

__all__ = [
    "FOLDER",
    "FORMAT_VERSION",
    "Record",
    "RunDirectory",
    "RunPaths",
    "TaskPaths",
    "inside",
    "runs",
    "runs_below",
]
