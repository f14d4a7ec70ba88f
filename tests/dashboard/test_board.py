"""What the browser loads."""

from __future__ import annotations

from mwmagic.dashboard.board import Widget

MOST_BYTES = 41_000
"""Of code and style together: every notebook that shows a dashboard may keep a copy."""


def test_the_pages_code_stays_small():
    assert len(str(Widget._esm).encode()) + len(str(Widget._css).encode()) < MOST_BYTES
