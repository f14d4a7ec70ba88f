"""The three ways of a program, for all the tests of this folder."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("compare")

from compare import Ways  # noqa: E402 - with its assertions rewritten


@pytest.fixture(scope="session")
def ways(hidden, tmp_path_factory):
    """Run programs plain, cold and warm, each in clusters that all tests share."""
    ways = hidden(lambda: Ways(tmp_path_factory.mktemp("ways")))
    yield ways
    ways.close()
