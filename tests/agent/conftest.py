"""Agents for the tests."""

from __future__ import annotations

import pytest
from speaker import Speaker
from warming import RUNNER


@pytest.fixture
def speak(tmp_path):
    """Start agents that are closed at the end."""
    speakers = []

    def begin(**options):
        speakers.append(Speaker(tmp_path, **options))
        return speakers[-1]

    yield begin
    for speaker in speakers:
        speaker.close()


@pytest.fixture
def agent(speak):
    """One agent."""
    return speak()


@pytest.fixture
def bootstrap(tmp_path):
    """The smallest first module that a worker can have."""
    path = tmp_path / "runner" / "bootstrap.py"
    path.parent.mkdir()
    path.write_text(RUNNER)
    return path
