"""What a program shows in a window that a worker does not have."""

from __future__ import annotations

import stat

import pytest

pytestmark = pytest.mark.slow

SHOWS = """
import matplotlib.pyplot as plt
import sys
plt.plot([1, 2, 4])
plt.show()
for number in range({more}):
    plt.title(number)
    plt.show()
print("open", plt.get_fignums(), plt.get_backend(), plt.show.__name__)
"""


@pytest.fixture(autouse=True)
def no_display(monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MPLBACKEND"):
        monkeypatch.delenv(name, raising=False)


def test_a_figure_that_is_shown_is_in_the_record(cluster):
    run = cluster(2).run("main.py", source=SHOWS.format(more=0)).wait(120)
    for index in (0, 1):
        log = run.logs(index).decode()
        path = run.record.path / "attempt-1" / f"worker-{index}.figure-1.png"
        assert f"the figure is in {path.relative_to(path.parents[4])}\n" in log
        assert path.read_bytes().startswith(b"\x89PNG")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "open [1] agg show" in log, "as under `python main.py`"
        assert log.count("mwmagic: ") == 1


SEVERAL = """
import matplotlib.pyplot as plt
first, axes = plt.subplots()
second = plt.figure()
plt.figure(1)
plt.show()
assert plt.gcf() is first, "as under `python main.py`"
plt.show()
axes.plot([1, 2])
plt.show()
plt.close(first)
plt.figure(1)
plt.show()
"""


def test_a_figure_that_did_not_change_is_kept_once(cluster):
    run = cluster(1).run("main.py", source=SEVERAL).wait(120)
    found = sorted((run.record.path / "attempt-1").glob("*.png"))
    assert len(found) == 4, "two, the first one with a line, and the new one"
    assert len({path.read_bytes() for path in found[:1] + found[2:3]}) == 2


def test_so_many_figures_are_kept_and_the_rest_is_mentioned_once(cluster):
    run = cluster(1).run("main.py", source=SHOWS.format(more=60)).wait(120)
    log = run.logs(0).decode()
    assert len([*(run.record.path / "attempt-1").glob("*.png")]) == 50
    assert log.count("further figures are not kept") == 1


def test_what_cannot_be_drawn_ends_no_program(cluster):
    code = SHOWS.format(more=0).replace("plt.show()", "plt.title('$\\\\frac{$'); plt.show()", 1)
    run = cluster(1).run("main.py", source=code).wait(120)
    assert "the figure is not kept" in run.logs(0).decode()
