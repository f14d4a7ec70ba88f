"""Owners for the tests."""

from __future__ import annotations

from contextlib import ExitStack, closing

import pytest
from owner import Owner


@pytest.fixture
def own(tmp_path, monkeypatch, nothing_survives):
    """Start clients in processes of their own, which are killed at the end."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        yield lambda *options: stack.enter_context(closing(Owner(*options)))
