"""The run directory: everything about a run, written so that a crash leaves it readable."""

from __future__ import annotations

from .directory import FOLDER, Record, RunDirectory, runs

__all__ = ["FOLDER", "Record", "RunDirectory", "runs"]
