"""The record of a run: what is kept of it on disk."""

from __future__ import annotations

from .paths import FOLDER, RunPaths, TaskPaths
from .reader import Record, runs
from .writer import FORMAT, RunDirectory

__all__ = ["FOLDER", "FORMAT", "Record", "RunDirectory", "RunPaths", "TaskPaths", "runs"]
