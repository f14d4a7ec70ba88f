"""DataFrames, Series and indexes of pandas, taken apart into arrays and plain data."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    Inner = Callable[[Any, str], Any]
    Read = Callable[[Any], Any]

__all__ = ["FRAME_READERS", "NotPlain", "is_pandas", "packed"]

_MISSING = (None, np.nan)
"""What stands for a text that is missing; beyond these it is ``pandas.NA``."""


class NotPlain(TypeError):
    """A value that only a pickle could hold."""


def _pandas() -> Any:  # noqa: ANN401 - it may be missing
    return import_module("pandas")


def is_pandas(value: object) -> bool:
    """Return whether a value is of a class of pandas, or of one that derives from it."""
    return any(one.__module__.partition(".")[0] == "pandas" for one in type(value).__mro__)


def packed(value: Any, name: str, inner: Inner) -> dict[str, Any]:  # noqa: ANN401 - pandas's
    """Return a value of pandas as a JSON value.

    Parameters
    ----------
    value : object
        The value.
    name : str
        What an error calls it.
    inner : callable
        Takes apart a value with its name, and raises an error where only a pickle could hold it.

    Raises
    ------
    NotPlain
        It cannot be held without a pickle.
    """
    pd = _pandas()

    if type(value) is pd.DataFrame:
        return {"frame": _frame(value, name, inner)}
    if type(value) is pd.Series:
        series = [inner(value.name, f"the name of {name}"), inner(value.attrs, f"{name}.attrs")]
        return {"series": [*series, _index(value.index, name, inner), _column(value, name, inner)]}
    if isinstance(value, pd.Index):
        return {"index": _index(value, name, inner)}
    raise NotPlain(
        f"{name} has a {type(value).__name__}; of pandas, only DataFrames, Series and indexes are "
        "moved, so make one of it"
    )


def _frame(value: Any, name: str, inner: Inner) -> list[Any]:  # noqa: ANN401 - pandas's
    attrs = inner(value.attrs, f"{name}.attrs")
    axes = [_index(axis, name, inner) for axis in (value.columns, value.index)]
    columns = [
        _column(value.iloc[:, number], f"column {label!r} of {name}", inner)
        for number, label in enumerate(value.columns)
    ]
    return [attrs, *axes, columns]


def _index(value: Any, name: str, inner: Inner) -> dict[str, Any]:  # noqa: ANN401 - pandas's
    pd = _pandas()

    what = f"the index of {name}"
    names = inner(list(value.names), f"the names of {what}")
    if isinstance(value, pd.RangeIndex):
        return {"names": names, "range": [value.start, value.stop, value.step]}
    if isinstance(value, pd.MultiIndex):
        levels = [value.get_level_values(number) for number in range(value.nlevels)]
        return {"names": names, "levels": [_index(one, name, inner) for one in levels]}
    freq = getattr(value, "freqstr", None)
    return {"names": names, "freq": freq, "values": _column(value, what, inner)}


def _column(value: Any, name: str, inner: Inner) -> dict[str, Any]:  # noqa: ANN401 - pandas's
    """Take a Series or an Index apart."""
    pd = _pandas()

    dtype = value.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        codes = value.cat.codes if isinstance(value, pd.Series) else value.codes
        categories = _index(dtype.categories, f"the categories of {name}", inner)
        return {"codes": inner(np.asarray(codes), name), "of": [categories, dtype.ordered]}
    if isinstance(dtype, pd.DatetimeTZDtype):
        moments = pd.DatetimeIndex(value).tz_convert("UTC").tz_localize(None)
        return {"zone": str(dtype.tz), "plain": inner(moments.to_numpy(), name)}
    if isinstance(dtype, pd.StringDtype):
        lacks = {"string": dtype.storage, "nan": dtype.na_value is not pd.NA}
        return {**_texts(value.to_numpy(object), name, inner), **lacks}
    if isinstance(dtype, np.dtype) and dtype.hasobject:
        return _texts(value.to_numpy(object), name, inner)
    if not isinstance(dtype, np.dtype) and str(dtype) in _MASKED:
        absent = np.asarray(value.isna())
        held = value.array.to_numpy(_MASKED[str(dtype)], na_value=0)
        return {"masked": str(dtype), "plain": inner(held, name), "absent": inner(absent, name)}
    if not isinstance(dtype, np.dtype):
        raise NotPlain(
            f"{name} holds values of pandas's type {dtype}, which cannot be moved; convert it, as "
            "with `astype`"
        )
    return {"plain": inner(value.to_numpy(), name)}


_MASKED = {
    **{
        f"{kind}{bits}": f"{kind.lower()}{bits}"
        for kind in ("Int", "UInt")
        for bits in (8, 16, 32, 64)
    },
    **{f"Float{bits}": f"float{bits}" for bits in (32, 64)},
    "boolean": "bool",
}
"""The types of pandas that can lack values, and the type of NumPy in which they are held."""


def _texts(values: np.ndarray, name: str, inner: Inner) -> dict[str, Any]:
    """Take texts apart into their bytes, where each ends, and which are missing."""
    pd = _pandas()

    kinds = np.zeros(len(values), "int8")
    parts: list[bytes] = []
    for number, one in enumerate(values):
        if type(one) is str:
            parts.append(one.encode("utf-8", "surrogatepass"))
            continue
        kinds[number] = 1 if one is None else 2 if isinstance(one, float) and one != one else 3  # noqa: PLR0124
        parts.append(b"")
        if kinds[number] == 3 and one is not pd.NA:  # noqa: PLR2004 - the last kind
            return {"values": [inner(other, name) for other in values]}
    ends = np.cumsum([len(part) for part in parts], dtype="int64")
    data = np.frombuffer(b"".join(parts), "uint8")
    texts = [inner(one, name) for one in (data, ends, kinds)]
    return {"texts": texts}


# And together again, in the same order.


def _read_frame(held: Any, read: Read) -> Any:  # noqa: ANN401 - pandas's
    pd = _pandas()

    attrs, columns, index = read(held[0]), _read_index(held[1], read), _read_index(held[2], read)
    data = {number: _typed(_read_column(one, read), index) for number, one in enumerate(held[3])}
    frame = pd.DataFrame(data, index=index, copy=False)
    frame.columns = columns
    frame.attrs = attrs
    return frame


def _read_series(held: Any, read: Read) -> Any:  # noqa: ANN401 - pandas's
    name, attrs, index = read(held[0]), read(held[1]), _read_index(held[2], read)
    series = _typed(_read_column(held[3], read), index)
    series.name = name
    series.attrs = attrs
    return series


def _typed(values: Any, index: Any) -> Any:  # noqa: ANN401 - a Series
    """Return values as a Series of their own type, not of one that pandas would infer."""
    return _pandas().Series(values, index=index, dtype=values.dtype, copy=False)


def _read_index(held: Any, read: Read) -> Any:  # noqa: ANN401 - pandas's
    pd = _pandas()

    names = read(held["names"])
    if "range" in held:
        return pd.RangeIndex(*held["range"], name=names[0])
    if "levels" in held:
        return pd.MultiIndex.from_arrays(
            [_read_index(one, read) for one in held["levels"]], names=names
        )
    values = _read_column(held["values"], read)
    index = pd.Index(values, name=names[0], dtype=values.dtype)
    if held["freq"] is not None and hasattr(index, "freq"):
        index.freq = held["freq"]
    return index


def _read_column(held: Any, read: Read) -> Any:  # noqa: ANN401 - an array
    found = next((one for one in _COLUMNS if one in held), None)
    return _COLUMNS[found](held, read) if found else read(held["plain"])


def _categories(held: Any, read: Read) -> Any:  # noqa: ANN401 - an array
    categories, ordered = _read_index(held["of"][0], read), held["of"][1]
    return _pandas().Categorical.from_codes(read(held["codes"]), categories, ordered=ordered)


def _strings(held: Any, read: Read) -> Any:  # noqa: ANN401 - an array
    pd, found = _pandas(), _objects(held, read)
    lacks = {"na_value": np.nan} if held["nan"] else {}  # as pandas 2 has only the other
    return pd.array(found, dtype=pd.StringDtype(held["string"], **lacks))


def _objects(held: Any, read: Read) -> Any:  # noqa: ANN401 - an array
    data, ends, kinds = map(read, held["texts"])
    return _read_texts(data, ends, kinds)


def _mixed(held: Any, read: Read) -> Any:  # noqa: ANN401 - an array
    found = np.empty(len(held["values"]), object)
    for number, one in enumerate(held["values"]):  # NumPy would take lists apart
        found[number] = read(one)
    return found


def _zoned(held: Any, read: Read) -> Any:  # noqa: ANN401 - an array
    moments = _pandas().DatetimeIndex(read(held["plain"]))
    return moments.tz_localize("UTC").tz_convert(held["zone"]).array


def _lacking(held: Any, read: Read) -> Any:  # noqa: ANN401 - an array
    pd = _pandas()
    array = pd.array(read(held["plain"]), dtype=held["masked"])
    array[read(held["absent"])] = pd.NA
    return array


_COLUMNS: dict[str, Callable[[Any, Read], Any]] = {
    "codes": _categories,
    "string": _strings,
    "texts": _objects,
    "values": _mixed,
    "zone": _zoned,
    "masked": _lacking,
}
"""How a column is put together again, by what is held of it."""


def _read_texts(data: np.ndarray, ends: np.ndarray, kinds: np.ndarray) -> Any:  # noqa: ANN401 - an array
    pd = _pandas()

    whole, found, start = data.tobytes(), np.empty(len(ends), object), 0
    missing = (None, *_MISSING, pd.NA)
    for number, (end, kind) in enumerate(zip(ends.tolist(), kinds.tolist(), strict=True)):
        text = whole[start:end].decode("utf-8", "surrogatepass")
        found[number], start = (missing[kind] if kind else text), end
    return found


FRAME_READERS: dict[str, Callable[[Any, Read], Any]] = {
    "frame": _read_frame,
    "series": _read_series,
    "index": _read_index,
}
"""How each kind of value is put together again, with a function that reads what is in it."""
