"""Agents for the tests."""

from __future__ import annotations

import pytest
from speaker import Speaker


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
