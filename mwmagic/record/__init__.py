"""The record of a run on disk."""

from __future__ import annotations

from .paths import FOLDER, FORMAT_VERSION, RunPaths, TaskPaths, inside
from .reader import Record, runs
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
]
