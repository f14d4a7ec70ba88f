"""What is known of runs, in words: the only place that turns it into sentences."""

from __future__ import annotations

from .failure import explain, headline, remark

__all__ = ["explain", "headline", "remark"]
