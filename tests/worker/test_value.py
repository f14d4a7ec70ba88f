"""Values as a notebook shows them."""

from __future__ import annotations

import pytest

from mwmagic.worker.live.names import bundle


class Table:
    def __repr__(self):
        return "a table"

    def _repr_html_(self):
        return "<table>"

    def _repr_png_(self):
        return b"\x89PNG", {"width": 1}

    def _repr_svg_(self):
        raise ValueError("too small")


class Chart:
    def __repr__(self):
        return "a chart"

    def _repr_mimebundle_(self):
        return {"application/x": {"a": 1}, "text/plain": "its own"}


def test_a_value_is_shown_in_all_its_ways():
    shown = {"text/plain": "a table", "text/html": "<table>", "image/png": "iVBORw=="}
    assert bundle(Table()) == shown
    assert bundle(Chart()) == {"text/plain": "its own", "application/x": {"a": 1}}


def test_none_is_not_shown_and_a_class_only_as_text():
    assert bundle(None) is None
    assert bundle(None, none=True) == {"text/plain": "None"}
    assert set(bundle(Table)) == {"text/plain"}


def test_a_long_text_is_cut_off():
    assert len(bundle("x" * 200_000)["text/plain"]) == 100_000


def test_what_a_representation_raises_is_the_cells_error():
    class Broken:
        def __repr__(self):
            raise KeyError("x")

    with pytest.raises(KeyError):
        bundle(Broken())


@pytest.mark.slow
def test_a_figure_is_a_picture():
    from matplotlib.figure import Figure

    figure = Figure()
    assert bundle(figure)["image/png"].startswith("iVBORw")
