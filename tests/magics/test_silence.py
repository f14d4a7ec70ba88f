"""What a cell shows after a magic kept its result from being shown, in the IPython installed."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from mwmagic.magics.magic import silence

SHOWN = "shown"


def quiet(*_):
    silence(SHOWN)
    return SHOWN


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """Execute a cell in a shell of its own and return the value that it showed."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    shell.register_magic_function(quiet, "line", "quiet")
    shell.register_magic_function(quiet, "cell", "quiet")
    return lambda cell: shell.run_cell(cell).result


@pytest.mark.parametrize("cell", ["%quiet", "x = 1\n%quiet", "%%quiet\nbody"])
def test_a_magic_at_the_end_of_a_cell_shows_nothing(shown, cell):
    assert shown(cell) is None


def test_a_variable_that_the_result_was_assigned_to_is_shown(shown):
    assert shown("x = %quiet\nx") is SHOWN


def test_another_value_after_the_magic_is_shown(shown):
    assert shown("%quiet\n1 + 1") == 2


def test_another_value_of_a_line_that_calls_a_magic_is_shown(shown):
    assert shown("[get_ipython().run_line_magic('quiet', '')]") == [SHOWN]


@pytest.mark.parametrize("before", ["%quiet", "x = %quiet", "%quiet\n1 / 0"])
def test_the_next_cell_shows_what_it_always_does(shown, before):
    shown(before)
    assert shown(repr(SHOWN)) == SHOWN
    assert shown("2 + 2") == 4
