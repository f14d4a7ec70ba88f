"""What the environment of a kernel does to a cluster that it declares."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

DECLARE = "%mw_cluster 1 --no-warm"


@pytest.fixture
def broken(kernel, tmp_path):
    """Put a broken module of some name where PYTHONPATH leads to."""

    def place(name):
        folder = tmp_path / "lib"
        folder.mkdir()
        (folder / f"{name}.py").write_text("raise RuntimeError('not the one you know')")
        before = "os.environ.get('PYTHONPATH', '')"
        kernel.run(f"import os; os.environ['PYTHONPATH'] = '{folder}:' + {before}")
        return folder / f"{name}.py"

    return place


def test_a_module_that_is_named_like_one_of_pythons_own_is_not_taken_for_it(kernel, broken):
    broken("asyncio")
    assert kernel.run(DECLARE).error is None


def test_a_module_that_breaks_the_supervisor_is_named(kernel, broken):
    file = broken("psutil")
    assert kernel.run(DECLARE).error == (
        "SupervisorError: the supervisor did not start: RuntimeError: not the one you know "
        f"({file}, line 1); PYTHONPATH leads to this file: repair or rename it, or change "
        "PYTHONPATH"
    )
