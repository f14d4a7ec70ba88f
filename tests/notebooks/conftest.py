"""What executed notebooks have in common."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _digits(monkeypatch):
    """Let warm processes import scikit-learn: otherwise each worker would, for its digits."""
    monkeypatch.setenv("IMPORTS_NOT_SPARED", "sklearn")
