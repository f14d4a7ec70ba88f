"""Values of pandas in a file."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from mwmagic.worker.live.parcel import NotPlain, read, write

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

MOMENTS = pd.date_range("2026-01-01", periods=3, freq="h")
COLUMNS = {
    "whole": [1, 2, 3],
    "real": [1.5, np.nan, np.inf],
    "flag": [True, False, True],
    "moment": MOMENTS,
    "zoned": MOMENTS.tz_localize("Europe/Berlin"),
    "offset": MOMENTS.tz_localize("UTC+01:00"),
    "span": pd.to_timedelta([1, None, 3], unit="s"),
    "text": pd.Series(["a", "größer", ""], dtype=object),
    "lacking": pd.Series(["a", None, np.nan], dtype=object),
    "string": pd.array(["a", None, "c"], dtype="string"),
    "inferred": ["x", "y", "z"],
    "category": pd.Categorical(["b", "a", None], categories=["b", "a"], ordered=True),
    "nullable": pd.array([1, None, 3], dtype="Int16"),
    "fraction": pd.array([1.5, None, 3], dtype="Float32"),
    "logical": pd.array([True, None, False], dtype="boolean"),
    "python": pd.array(["a", None, "c"], dtype=pd.StringDtype("python")),
    "absent": pd.Series([None, np.nan, pd.NA], dtype=object),
    "bytes": pd.Series([b"a", b"\xff", None], dtype=object),
    "dates": pd.Series([MOMENTS[0].date(), None, pd.NaT], dtype=object),
    "flags": pd.Series([True, None, False], dtype=object),
    "large": pd.array([2**62 + 1, None, 3], dtype="Int64"),
    "unsigned": np.array([2**64 - 1, 1, 2], dtype="uint64"),
    "half": np.array([1, 2, 3], dtype="float16"),
    "old": pd.Series(["1600-01-01", None, "2026-01-01"]).astype("datetime64[s]"),
    "period": pd.period_range("2026", periods=3, freq="M"),
    "interval": pd.interval_range(0, 3),
    "arrow": pd.array([1, None, 3], dtype="int64[pyarrow]"),
    "moments": pd.Categorical(MOMENTS.tz_localize("Europe/Berlin")),
    "letters": pd.Categorical(pd.array(["b", "a", None], dtype=pd.StringDtype("python"))),
    "words": pd.Categorical(pd.Index(["b", "a", "b"], dtype=object)),
}


@pytest.fixture
def moved(tmp_path):
    """Write a value to a file and read it again."""

    def moved(value):
        path = tmp_path / "values"
        write(str(path), {"x": value})
        found = read(str(path))["x"]
        path.unlink()
        return found

    return moved


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_comes_back_as_it_was(moved, name):
    series = pd.Series(COLUMNS[name], name=("a", name)).set_axis([2, 3, 5])
    found = moved(series)
    pd.testing.assert_series_equal(found, series)
    assert repr(found.dtype) == repr(series.dtype)
    assert [type(one) for one in found] == [type(one) for one in series]
    found.iloc[0] = series.iloc[1]
    index = pd.Index(COLUMNS[name], name=name) if name != "half" else pd.Index([1])
    pd.testing.assert_index_equal(moved(index), index, exact=True)


@pytest.mark.parametrize(
    "index",
    [
        pd.RangeIndex(1, 7, 2, name="step"),
        MOMENTS[:3],
        pd.MultiIndex.from_product([["a"], MOMENTS], names=["letter", None]),
        pd.Index(["x", "x", "y"]),
        pd.CategoricalIndex(["a", "b", "a"]),
    ],
)
def test_a_frame_comes_back_as_it_was(moved, index):
    frame = pd.DataFrame(COLUMNS).set_axis(index)
    frame.attrs = {"from": "here"}
    found = moved(frame)
    pd.testing.assert_frame_equal(found, frame, check_freq=True)
    assert found.attrs == {"from": "here"}
    found.iloc[0, 0] = 9
    assert frame.iloc[0, 0] == 1


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(),
        pd.DataFrame({"a": []}),
        pd.DataFrame(np.ones((2, 2)), columns=["a", "a"]),
        pd.DataFrame({"a": [1]}, index=pd.Index(["x"], name="name")),
        pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])),
    ],
)
def test_frames_at_the_edges_come_back(moved, frame):
    pd.testing.assert_frame_equal(moved({"in": [frame]})["in"][0], frame)


@pytest.mark.parametrize(
    ("column", "why"),
    [
        ([object()] * 3, "holds Python objects that Arrow cannot keep as they are (mixed)"),
        (
            [1, "two", 3.5],
            "holds Python objects that Arrow cannot keep as they are (mixed-",
        ),
        ([[1, 2], (3,), {}], "holds Python objects that Arrow cannot keep as they are (mixed)"),
        (pd.Series([1, 2, 3], dtype=object), "holds Python objects that Arrow cannot keep"),
        (["\ud800", "a", "b"], "holds values of type object, which cannot be moved ('utf-8' codec"),
        ([1j, 2, 3], "holds values of type complex128, which cannot be moved (Unsupported numpy"),
        (
            pd.arrays.SparseArray([0, 0, 1]),
            "holds values of type Sparse[int64, 0], which cannot be moved (Sparse pandas data",
        ),
    ],
)
def test_what_arrow_cannot_hold_is_refused_with_its_column(tmp_path, column, why):
    frame = pd.DataFrame({"good": [1, 2, 3]})
    frame["bad"] = pd.Series(column, dtype=object if isinstance(column[0], str) else None)
    with pytest.raises(NotPlain) as caught:
        write(str(tmp_path / "values"), {"x": frame})
    assert str(caught.value).startswith(f"column 'bad' of x {why}")
    assert str(caught.value).endswith("; convert it, as with `astype`")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("version", [None, "14.0.2"])
def test_without_arrow_the_error_says_where_to_install_it(tmp_path, monkeypatch, version):
    other = None if version is None else SimpleNamespace(__version__=version)
    path = str(tmp_path / "values")
    write(path, {"x": pd.DataFrame({"a": [1]}), "y": 1})
    monkeypatch.setitem(sys.modules, "pyarrow", other)
    needs = f"for which {sys.executable} lacks pyarrow 15 or later; `pip install pyarrow` there"
    with pytest.raises(NotPlain, match=re.escape(needs)):
        read(path)
    with pytest.raises(NotPlain, match=re.escape(needs)):
        write(f"{path}-2", {"x": pd.DataFrame({"a": [1]})})
    write(f"{path}-3", {"x": np.ones(3)})


def test_a_class_of_ones_own_is_refused(tmp_path):
    class Frame(pd.DataFrame):
        pass

    with pytest.raises(NotPlain, match="x has a Frame"):
        write(str(tmp_path / "values"), {"x": Frame({"a": [1]})})
