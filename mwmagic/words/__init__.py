"""Describes states in sentences, from ids and fields.

A run and its logs are described in `run`, a failure in `failure`, live cells in `live`, hosts in
`host`, files in `file`, and what makes training slow in `slowness`; the `table` of runs, their
`comparison`, with an earlier one too, and a `sweep` (with scaling studies) have their own.
No code matches these sentences, and the text of an error stands where it is raised.
"""

from __future__ import annotations

from .failure import explain, headline, remark

__all__ = ["explain", "headline", "remark"]
