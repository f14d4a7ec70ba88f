"""Describes what is known of runs, hosts and files in sentences."""

from __future__ import annotations

from .failure import explain, headline, remark

__all__ = ["explain", "headline", "remark"]
