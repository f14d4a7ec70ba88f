"""Puts what is known of runs into words; no other room does."""

from __future__ import annotations

from .failure import explain, headline, remark

__all__ = ["explain", "headline", "remark"]
