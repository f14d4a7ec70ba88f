"""Values in a file, between a notebook and a worker: arrays as they are in memory, never pickles.

The file has the length of a header, the header as JSON, and the arrays' bytes one after the other,
each at a multiple of `ALIGNED_BYTES`. The reader maps the file instead of copying it. A value in
the header is a JSON value, or an object with one key that says what else it is.

DataFrames, Series and indexes of pandas are tables of Apache Arrow. Arrow has no objects of Python
and one kind of missing value, and pyarrow chooses itself how texts are stored; what it would change
is noted beside the table.
"""

from __future__ import annotations

import ast
import base64
import json
import math
import mmap
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from mwmagic.model.live import parcel_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Inner = Callable[[Any, str], Any]
    Read = Callable[[Any], Any]

__all__ = ["NotPlain", "Parcel", "drop", "give", "read", "roomy", "take", "write"]

ALIGNED_BYTES = 64
"""Arrays begin at multiples of it, as NumPy's own do."""

_LENGTH_BYTES = 8

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


def packed_frame(value: Any, name: str, inner: Inner) -> dict[str, Any]:  # noqa: ANN401 - pandas's
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
        f"{name} has a {type(value).__name__} of pandas, which cannot be moved; convert it to a "
        "DataFrame, a Series or an index"
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


class Parcel:
    """Values on their way to a file, which has at most `size` bytes."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._arrays: list[np.ndarray] = []
        held = {name: _held(value, self._arrays, name) for name, value in values.items()}
        self._header = json.dumps(held).encode()
        padded = sum(array.nbytes + ALIGNED_BYTES for array in self._arrays)
        self.size = _LENGTH_BYTES + len(self._header) + padded

    def write(self, path: str) -> None:
        """Write them to a new file that only its owner can read, and that must not exist."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(len(self._header).to_bytes(_LENGTH_BYTES, "little"))
            file.write(self._header)
            for array in self._arrays:
                file.write(bytes(-file.tell() % ALIGNED_BYTES))
                file.write(_bytes(array))


def roomy(places: Sequence[str], size: int) -> str:
    """Return the first place whose disk has room for some bytes; else the last."""
    for place in places[:-1]:
        disk = os.statvfs(os.path.dirname(place))  # noqa: PTH120 - as in `read`
        if disk.f_bavail * disk.f_frsize > size:
            return place
    return places[-1]


def write(path: str, values: Mapping[str, Any]) -> None:
    """Write values to a new file; see `Parcel`."""
    Parcel(values).write(path)


def read(path: str) -> dict[str, Any]:
    """Return the values in a file."""
    with open(path, "rb") as file:  # noqa: PTH123 - a worker need not import pathlib for this
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    size = int.from_bytes(data.read(_LENGTH_BYTES), "little")
    header = json.loads(data.read(size))
    return {name: _unpacked(value, data) for name, value in header.items()}


def _held(value: Any, arrays: list[np.ndarray], name: str) -> Any:  # noqa: ANN401 - any
    try:
        held = _packed(value, arrays, name)
        json.dumps(held)
    except RecursionError:
        raise NotPlain(f"{name} holds itself, or is nested too deeply") from None
    return held


def _packed(value: Any, arrays: list[np.ndarray], name: str) -> Any:  # noqa: ANN401 - any
    if value is None or type(value) in (bool, int, str):
        return value
    pack = _PACKERS.get(type(value))
    if pack is not None:
        return pack(value, lambda one: _packed(one, arrays, name))
    if is_pandas(value):
        return packed_frame(value, name, lambda one, part: _packed(one, arrays, part))
    if type(value) is np.ma.MaskedArray:
        mask = None if value.mask is np.ma.nomask else value.mask
        parts = value.data, mask, value.fill_value
        return {"masked": [_packed(one, arrays, name) for one in parts]}
    return {_kind(value, name): _packed_array(value, arrays, name)}


def _kind(value: Any, name: str) -> str:  # noqa: ANN401 - any
    """Return how a value is an array, of which none loses what it knows besides its numbers."""
    if isinstance(value, np.generic) and type(value) is not np.record:
        return "scalar"
    kind = _ARRAYS.get(type(value))
    roots = {one.__module__.partition(".")[0] for one in type(value).__mro__}
    if kind is None and roots & _FRAMEWORKS and hasattr(value, "__array__"):
        kind = "array"
    if kind is None:
        raise _refused(value, name)
    return kind


_ARRAYS: dict[type, str] = {
    np.ndarray: "array",
    np.memmap: "array",
    np.matrix: "matrix",
    np.recarray: "recarray",
}
_FRAMEWORKS = frozenset({"tensorflow", "keras", "tf_keras", "jax", "jaxlib", "torch"})
"""The packages whose tensors and variables are arrays and nothing else."""

_PACKERS: dict[type, Callable[[Any, Callable[[Any], Any]], Any]] = {
    float: lambda value, _: {"float": value.hex()},
    bytes: lambda value, _: {"bytes": base64.b64encode(value).decode()},
    dict: lambda value, inner: {"dict": [[inner(k), inner(v)] for k, v in value.items()]},
    list: lambda value, inner: {"list": [inner(one) for one in value]},
    tuple: lambda value, inner: {"tuple": [inner(one) for one in value]},
}
"""How values that are plain data are distinguished; `_KINDS` reads each."""


def _packed_array(value: Any, arrays: list[np.ndarray], name: str) -> dict[str, Any]:  # noqa: ANN401 - any
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if array.dtype.hasobject:
        raise _refused(value, name)
    named = _dtype(array.dtype)
    if _named(named) != array.dtype:
        raise NotPlain(
            f"{name} has an array of {array.dtype}, which cannot be moved; convert it with `astype`"
        )
    arrays.append(np.ascontiguousarray(array))
    return {"dtype": named, "shape": list(array.shape)}


def _refused(value: object, name: str) -> NotPlain:
    return NotPlain(
        f"{name} has a {type(value).__name__}, which is neither an array nor plain data; name "
        "what you need of it, such as `history.history` or `model.get_weights()`"
    )


def _dtype(dtype: np.dtype) -> str:
    """Return what `_named` makes a dtype of."""
    if dtype.names is not None or dtype.subdtype is not None:
        return repr(np.lib.format.dtype_to_descr(dtype))
    return str(dtype.str if np.dtype(dtype.str) == dtype else dtype.name)


def _unpacked(value: Any, data: mmap.mmap) -> Any:  # noqa: ANN401 - any
    if not isinstance(value, dict):
        return value
    [(kind, inner)] = value.items()
    if kind in FRAME_READERS:
        return FRAME_READERS[kind](inner, lambda one: _unpacked(one, data))
    return _KINDS[kind](inner, data)


def _array(inner: Any, data: mmap.mmap) -> np.ndarray:  # noqa: ANN401 - JSON values
    """Return the next array, which uses the mapped memory; what is written to it is its own."""
    dtype, shape = np.dtype(_named(inner["dtype"])), inner["shape"]
    if dtype.hasobject:
        raise ValueError("an array of objects")
    start = data.tell() + -data.tell() % ALIGNED_BYTES
    count = math.prod(shape)
    data.seek(start + count * dtype.itemsize)
    return (
        np.frombuffer(data, dtype, count, start).reshape(shape) if count else np.empty(shape, dtype)
    )


def _bytes(array: np.ndarray) -> memoryview:
    """Return an array's memory."""
    return array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


def _named(name: str) -> Any:  # noqa: ANN401 - a dtype
    """Return a dtype by its name or fields; bfloat16 and its like are those of ml_dtypes."""
    if name[0] in "[(":
        return np.lib.format.descr_to_dtype(ast.literal_eval(name))
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def _masked(inner: Any, data: mmap.mmap) -> np.ndarray:  # noqa: ANN401 - JSON values
    array, mask, fill = (_unpacked(one, data) for one in inner)
    known = np.ma.nomask if mask is None else mask
    return np.ma.MaskedArray(array, known, fill_value=fill)


_KINDS: dict[str, Callable[[Any, mmap.mmap], Any]] = {
    "float": lambda inner, _: float.fromhex(inner),
    "bytes": lambda inner, _: base64.b64decode(inner),
    "dict": lambda inner, data: {_unpacked(k, data): _unpacked(v, data) for k, v in inner},
    "list": lambda inner, data: [_unpacked(one, data) for one in inner],
    "tuple": lambda inner, data: tuple(_unpacked(one, data) for one in inner),
    "array": _array,
    "masked": _masked,
    "matrix": lambda inner, data: np.asmatrix(_array(inner, data)),
    "recarray": lambda inner, data: _array(inner, data).view(np.recarray),
    "scalar": lambda inner, data: _array(inner, data)[()],
}


# What tasks do to exchange values with a notebook.


def give(places: Sequence[str], values: Mapping[str, Any]) -> None:
    """Write values to a file of this task's own, at the first place that has room for them."""
    packed = Parcel(values)
    chosen = roomy([_whole(place) for place in places], packed.size)
    packed.write(parcel_name(chosen, _place()[0]))


def take(place: str) -> dict[str, Any]:
    """Return the values in a file, which is the same for all tasks."""
    return read(_whole(place))


def drop(place: str) -> None:
    """Remove what was exchanged at a place beside the log."""
    for path in (_whole(place), parcel_name(_whole(place), _place()[0])):
        with suppress(FileNotFoundError):  # another task on the same disk was first
            os.unlink(path)  # noqa: PTH108 - pathlib is not needed here


def _place() -> tuple[str, str]:
    """Return this task's name, and the folder of its log."""
    from .cells import place

    return place()


def _whole(place: str) -> str:
    """Return the path of a place, which is beside the task's log if it has no directory."""
    return os.path.join(_place()[1], place)  # noqa: PTH118 - pathlib is not needed here
