"""DataFrames, Series and indexes of pandas, as tables of Apache Arrow.

Arrow has no objects of Python and one kind of missing value, and pyarrow chooses itself how texts
are stored; what it would change is noted beside the table.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Inner = Callable[[Any, str], Any]
    Read = Callable[[Any], Any]

__all__ = ["FRAME_READERS", "NotPlain", "is_pandas", "packed"]

VERSIONS = {"pandas": 1, "pyarrow": 15}
"""The oldest that are used: before pyarrow 14.0.1, reading a table could run code in it."""

_OBJECTS = frozenset({"string", "bytes", "boolean", "date", "time", "decimal", "empty"})
"""What `infer_dtype` says of the objects that Arrow gives back equal."""


class NotPlain(TypeError):
    """A value that cannot be moved, as only a pickle could hold it or pyarrow is missing."""


def is_pandas(value: object) -> bool:
    """Return whether a value is of a class of pandas, or of one that derives from it."""
    return any(one.__module__.partition(".")[0] == "pandas" for one in type(value).__mro__)


def _installed(module: str) -> Any:  # noqa: ANN401 - a module
    """Import pandas or pyarrow."""
    version = VERSIONS[module]
    try:
        found = import_module(module)
        if int(found.__version__.partition(".")[0]) >= version:
            return found
    except ImportError:
        pass
    raise NotPlain(
        f"values of pandas travel as tables of Apache Arrow, for which {sys.executable} lacks "
        f"{module} {version} or later; `pip install {module}` there"
    )


def packed(value: Any, name: str, inner: Inner) -> dict[str, Any]:  # noqa: ANN401 - pandas's
    """Return a value of pandas as a JSON value."""
    pd = _installed("pandas")
    if type(value) is pd.DataFrame:
        columns = [
            (f"column {label!r} of {name}", value.iloc[:, number])
            for number, label in enumerate(value.columns)
        ]
        axes = [_index(axis, name, inner) for axis in (value.columns, value.index)]
        return {"frame": [inner(value.attrs, f"{name}.attrs"), *axes, _table(columns, inner)]}
    if type(value) is pd.Series:
        series = [inner(value.name, f"the name of {name}"), inner(value.attrs, f"{name}.attrs")]
        index = _index(value.index, name, inner)
        return {"series": [*series, index, _table([(name, value)], inner)]}
    if isinstance(value, pd.Index):
        return {"index": _index(value, name, inner)}
    raise NotPlain(
        f"{name} has a {type(value).__name__}; of pandas, only DataFrames, Series and indexes are "
        "moved, so make one of it"
    )


def _index(value: Any, name: str, inner: Inner) -> dict[str, Any]:  # noqa: ANN401 - pandas's
    pd = _installed("pandas")
    what = f"the index of {name}"
    names = inner(list(value.names), f"the names of {what}")
    if isinstance(value, pd.RangeIndex):
        return {"names": names, "range": [value.start, value.stop, value.step]}
    if isinstance(value, pd.MultiIndex):
        levels = [value.get_level_values(number) for number in range(value.nlevels)]
        return {"names": names, "levels": [_index(one, name, inner) for one in levels]}
    freq = value.freqstr if isinstance(value, pd.DatetimeIndex | pd.TimedeltaIndex) else None
    return {"names": names, "freq": freq, "values": _table([(what, value)], inner)}


def _table(columns: Sequence[tuple[str, Any]], inner: Inner) -> dict[str, Any]:
    """Return columns, each with what an error calls it, as a table."""
    pa, pd = _installed("pyarrow"), _installed("pandas")
    notes = [_note(column, what, inner) for what, column in columns]
    held = [
        np.asarray(column.array.codes) if "categories" in note else column.array
        for (_, column), note in zip(columns, notes, strict=True)
    ]
    typed = [pd.Series(one, dtype=one.dtype, copy=False) for one in held]
    frame = pd.DataFrame({str(number): one for number, one in enumerate(typed)}, copy=False)
    for number, (what, _) in enumerate(columns):
        if not notes[number]:
            _check(frame.iloc[:0, [number]], what)
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except _REFUSALS:
        for number, (what, _) in enumerate(columns):
            _check(frame.iloc[:, [number]], what)
        raise
    size = pa.MockOutputStream()
    _stream(table, size)
    data = np.empty(size.size(), "uint8")
    _stream(table, pa.FixedSizeBufferWriter(pa.py_buffer(data)))
    return {"arrow": inner(data, "a table"), "notes": notes}


def _stream(table: Any, sink: Any) -> None:  # noqa: ANN401 - pyarrow's
    with _installed("pyarrow").ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)


_REFUSALS = (TypeError, ValueError, NotImplementedError)
"""What pyarrow raises, by classes of its own, where it cannot hold something."""


def _check(part: Any, what: str) -> None:  # noqa: ANN401 - pandas's
    """Refuse a column that Arrow does not hold, or gives back in another type."""
    dtype, why = part.iloc[:, 0].dtype, "Arrow gives it back in another type"
    try:
        table = _installed("pyarrow").Table.from_pandas(part, preserve_index=False)
        if table.slice(0, 0).to_pandas().iloc[:, 0].dtype == dtype:
            return
    except _REFUSALS as error:
        why = str(error if isinstance(error, UnicodeError) else error.args[0]).partition("\n")[0]
    raise NotPlain(
        f"{what} holds values of type {dtype}, which cannot be moved ({why}); convert it, as with "
        "`astype`"
    )


def _note(column: Any, what: str, inner: Inner) -> dict[str, Any]:  # noqa: ANN401 - pandas's
    """Return what Arrow does not keep of a column, as a JSON value."""
    pd = _installed("pandas")
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        categories = _index(dtype.categories, f"the categories of {what}", inner)
        return {"categories": categories, "ordered": dtype.ordered}
    if isinstance(dtype, pd.StringDtype):
        return {"string": dtype.storage, "nan": dtype.na_value is not pd.NA}
    if not (isinstance(dtype, np.dtype) and dtype.hasobject):
        return {}
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind not in _OBJECTS:
        raise NotPlain(
            f"{what} holds Python objects that Arrow cannot keep as they are ({kind}); convert it, "
            "as with `astype`"
        )
    known = {id(one): kind for kind, one in _missing_values().items()}
    missing = (known.get(id(one), "n") for one in column[column.isna()])  # any NaN is NumPy's
    return {"missing": "".join(missing)}


def _missing_values() -> dict[str, Any]:
    """Return what may stand for a missing object, each with the letter that notes it."""
    pd = _installed("pandas")
    return {"0": None, "a": pd.NA, "t": pd.NaT, "n": np.nan}


# And together again, in the same order.


def _read_frame(held: Any, read: Read) -> Any:  # noqa: ANN401 - pandas's
    pd = _installed("pandas")
    attrs, columns, index = read(held[0]), _read_index(held[1], read), _read_index(held[2], read)
    data = {
        number: pd.Series(one.array, index=index, dtype=one.dtype, copy=False)
        for number, one in enumerate(_columns(held[3], read))
    }
    frame = pd.DataFrame(data, index=index, copy=True)
    frame.columns = columns
    frame.attrs = attrs
    return frame


def _read_series(held: Any, read: Read) -> Any:  # noqa: ANN401 - pandas's
    name, attrs, index = read(held[0]), read(held[1]), _read_index(held[2], read)
    [column] = _columns(held[3], read)
    series = column.copy().set_axis(index)
    series.name = name
    series.attrs = attrs
    return series


def _read_index(held: Any, read: Read) -> Any:  # noqa: ANN401 - pandas's
    pd = _installed("pandas")
    names = read(held["names"])
    if "range" in held:
        return pd.RangeIndex(*held["range"], name=names[0])
    if "levels" in held:
        levels = [_read_index(one, read) for one in held["levels"]]
        return pd.MultiIndex.from_arrays(levels, names=names)
    [values] = _columns(held["values"], read)
    index = pd.Index(values.array, name=names[0], dtype=values.dtype)
    if held["freq"] is not None:
        index.freq = held["freq"]
    return index


def _columns(held: dict[str, Any], read: Read) -> list[Any]:
    """Return the columns of a table as Series, some of which cannot be written to."""
    pa = _installed("pyarrow")
    # In the order in which they were taken apart: a note's own arrays come before the table.
    notes = [
        {**one, "categories": _read_index(one["categories"], read)} if "categories" in one else one
        for one in held["notes"]
    ]
    table = pa.ipc.open_stream(pa.py_buffer(read(held["arrow"]))).read_all()
    frame = table.to_pandas(split_blocks=True)
    return [_as_noted(frame.iloc[:, number], note) for number, note in enumerate(notes)]


def _as_noted(column: Any, note: dict[str, Any]) -> Any:  # noqa: ANN401 - a Series
    """Return a column as it was before Arrow held it."""
    pd = _installed("pandas")
    if not note:
        return column
    if "categories" in note:
        given = note["categories"], note["ordered"]
        return pd.Series(pd.Categorical.from_codes(column.to_numpy(), *given))
    if "string" in note:
        lacks = {"na_value": np.nan} if note["nan"] else {}  # as pandas 2 has only the other
        return column.astype(pd.StringDtype(note["string"], **lacks))
    objects, known = column.to_numpy(object, copy=True), _missing_values()
    for number, kind in zip(np.flatnonzero(column.isna()), note["missing"], strict=True):
        objects[number] = known[kind]
    return pd.Series(objects, dtype=object)


FRAME_READERS: dict[str, Callable[[Any, Read], Any]] = {
    "frame": _read_frame,
    "series": _read_series,
    "index": _read_index,
}
"""How each kind of value is put together again, with a function that reads what is in it."""
