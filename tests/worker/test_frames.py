"""Values of pandas in a file."""

from __future__ import annotations

import numpy as np
import pytest

from mwmagic.worker.parcel import NotPlain, read, write

pd = pytest.importorskip("pandas")

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
    "mixed": pd.Series([1, "two", 3.5], dtype=object),
    "listed": pd.Series([[1, 2], (3,), {"a": b"b"}], dtype=object),
    "scalars": pd.Series([np.float32(1), np.int8(2), None], dtype=object),
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
    pd.testing.assert_series_equal(moved(series), series)
    index = pd.Index(COLUMNS[name], name=name) if name != "listed" else pd.Index([1])
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
    assert [type(one) for one in found["scalars"]] == [type(one) for one in frame["scalars"]]
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
        ([object()] * 3, "column 'bad' of x has a object, which is neither"),
        (
            pd.period_range("2026", periods=3, freq="M"),
            "column 'bad' of x holds values of pandas's type period",
        ),
        (
            pd.arrays.SparseArray([0, 0, 1]),
            "column 'bad' of x holds values of pandas's type Sparse",
        ),
        ([{1, 2}] * 3, "column 'bad' of x has a set"),
    ],
)
def test_what_only_a_pickle_could_hold_is_refused_with_its_column(tmp_path, column, why):
    frame = pd.DataFrame({"good": [1, 2, 3]})
    frame["bad"] = column
    with pytest.raises(NotPlain) as caught:
        write(str(tmp_path / "values"), {"x": frame})
    assert str(caught.value).startswith(why)
    assert not list(tmp_path.iterdir())


def test_a_class_of_ones_own_is_refused(tmp_path):
    class Frame(pd.DataFrame):
        pass

    with pytest.raises(NotPlain, match="x has a Frame"):
        write(str(tmp_path / "values"), {"x": Frame({"a": [1]})})
