"""The record of a run on disk: a directory, which outlives the run.

`paths` is its layout; `writer` and `reader` write and read it; `metrics` has them and their
summary, `provenance` where the code comes from, and `annotations` the user's note and tags; `files`
says how files are written, and which of the user's mwmagic wrote.
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
