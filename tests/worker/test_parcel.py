"""Values in a file."""

from __future__ import annotations

import math
import stat

import numpy as np
import pytest

from mwmagic.worker.live.parcel import NotPlain, read, write

ARRAYS = {
    "strided": np.arange(12).reshape(3, 4)[:, ::2],
    "empty": np.zeros((0, 3)),
    "scalar": np.array(3.5),
    "text": np.array(["a", "long"]),
    "moment": np.array(["2020-01-01"], "datetime64[D]"),
    "complex": np.ones((2, 2), "complex64"),
}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "values")


def test_arrays_come_back_as_they_were(path):
    write(path, ARRAYS)
    found = read(path)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


FIELDS = np.dtype([("x", "<f4"), ("n", "<i8", (2,)), ("in", [("a", "S3"), ("when", "<M8[s]")])])

KINDS = {
    "masked": np.ma.masked_invalid([1.0, math.nan, 3.0]),
    "masked nowhere": np.ma.MaskedArray([1, 2], fill_value=7),
    "masked fields": np.ma.MaskedArray(np.zeros(3, FIELDS), [True, False, True]),
    "matrix": np.matrix([[1, 2], [3, 4]]),
    "fields": np.zeros((2, 2), FIELDS),
    "aligned": np.zeros(3, np.dtype("i1, f8", align=True)),
    "record": np.rec.array([(1, 2.5), (3, 4.5)], names="a, b"),
    "bytes": np.array([b"abc", b"d"], "V3"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_arrays_stay_what_they_are(path, kind):
    array = KINDS[kind]
    write(path, {"x": array})
    found = read(path)["x"]
    assert (type(found), found.dtype, found.shape) == (type(array), array.dtype, array.shape)
    assert repr(np.asarray(found).tolist()) == repr(np.asarray(array).tolist())
    if isinstance(array, np.ma.MaskedArray):
        assert repr(found.mask) == repr(array.mask)
        assert repr(found.fill_value) == repr(array.fill_value)


def test_a_record_of_an_array_comes_back(path):
    write(path, {"x": [np.zeros(2, FIELDS)[1]]})
    [found] = read(path)["x"]
    assert (type(found), found.dtype, found["x"]) == (np.void, FIELDS, 0)


class Unit(np.ndarray):
    """An array that knows more than its numbers."""


class Labelled:
    """What other libraries make of an array."""

    def __array__(self, *_, **__):
        return np.zeros(3)


@pytest.mark.parametrize("value", [np.zeros(3).view(Unit), Labelled(), np.ma.masked])
def test_an_array_that_knows_more_is_refused(path, value):
    with pytest.raises(NotPlain, match=f"x has a {type(value).__name__}, which is neither"):
        write(path, {"x": value})


def test_a_value_that_holds_itself_is_refused(path):
    value = []
    value.append(value)
    with pytest.raises(NotPlain, match="x holds itself, or is nested too deeply"):
        write(path, {"x": value})


def test_bfloat16_comes_back(path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    write(path, {"x": np.ones(3, ml_dtypes.bfloat16)})
    assert read(path)["x"].dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        7,
        10**400,
        0.1,
        math.inf,
        "\u00e9",
        b"\x00\xff",
        [],
        (1, [2.5, None]),
        {3: {"a": (1,)}},
    ],
)
def test_plain_data_comes_back_as_it_was(path, value):
    write(path, {"x": value})
    found = read(path)["x"]
    assert (type(found), found) == (type(value), value)


def test_not_a_number_comes_back(path):
    write(path, {"x": math.nan})
    assert math.isnan(read(path)["x"])


def test_what_is_written_to_an_array_is_its_own(path):
    write(path, {"x": np.zeros(3)})
    first = read(path)["x"]
    first[0] = 1
    assert read(path)["x"][0] == 0


@pytest.mark.parametrize("value", [object(), {1: [object()]}, np.array([object()]), {1, 2}])
def test_what_is_neither_an_array_nor_plain_is_refused_and_leaves_no_file(path, tmp_path, value):
    with pytest.raises(NotPlain, match="x has a"):
        write(path, {"x": value})
    assert not list(tmp_path.iterdir())


def test_the_file_is_private_and_never_another_one(path, tmp_path):
    write(path, {"x": 1})
    assert stat.S_IMODE((tmp_path / "values").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        write(path, {"x": 1})


def test_no_objects_are_made_of_a_file(path, tmp_path):
    write(path, {"x": np.zeros(1)})
    file = tmp_path / "values"
    file.write_bytes(file.read_bytes().replace(b"<f8", b"|O8"))
    with pytest.raises(ValueError, match="an array of objects"):
        read(path)


def test_a_file_that_was_cut_off_is_refused(path, tmp_path):
    write(path, {"x": np.zeros(1000)})
    file = tmp_path / "values"
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(ValueError, match=r"buffer|seek"):
        read(path)
