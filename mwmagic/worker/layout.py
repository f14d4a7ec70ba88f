"""How ``keras.distribution`` lays out a model's variables on the devices."""

# ruff: noqa: ANN401 - Keras has no annotations

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["LayoutReport", "layout_report"]

COLUMNS = ("variable", "shape", "axes", "on each device")


@dataclass(frozen=True)
class LayoutReport:
    """The layout of each variable; its text is a table.

    Attributes
    ----------
    rows : tuple
        For each variable its path, its shape, the mesh axis along which each dimension
        is split (None if it is not), and the shape of the part that a device holds.
    unmatched : tuple of str
        The keys of the ``LayoutMap`` that match nothing.
    """

    rows: tuple[tuple[str, tuple[int, ...], tuple[Any, ...], tuple[int, ...]], ...]
    unmatched: tuple[str, ...] = ()

    @property
    def sharded(self) -> tuple[str, ...]:
        """The paths of the variables that no device holds whole."""
        return tuple(path for path, shape, _, part in self.rows if part != shape)

    def __str__(self) -> str:
        table = [COLUMNS, *(tuple(map(str, row)) for row in self.rows)]
        widths = [max(len(row[column]) for row in table) for column in range(len(COLUMNS))]
        lines = [
            "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        ]
        return "\n".join([*lines, *map(self._advice, self.unmatched)])

    def _advice(self, key: str) -> str:
        """Suggest a replacement for a key that matches nothing."""
        ends = [path for path, *_ in self.rows if path.endswith(f"/{key}")]
        hint = f"; did you mean {ends[0]!r} or {'.*' + key!r}?" if ends else ""
        return f"the LayoutMap's {key!r} matches no variable's whole path{hint}"


def _placed(variable: Any) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """Return the mesh axes of a variable's dimensions, and the shape of a device's part."""
    shape = tuple(variable.shape)
    sharding = getattr(variable.value, "sharding", None)
    spec = tuple(getattr(sharding, "spec", None) or ())
    part = shape if sharding is None else tuple(sharding.shard_shape(shape))
    return (*spec, *(None for _ in shape[len(spec) :])), part


def _unmatched(layout_map: Any, paths: list[str]) -> tuple[str, ...]:
    """Return the keys that match none of `paths`, as Keras itself matches them."""

    def matches(key: str) -> bool:
        alone = type(layout_map)(layout_map.device_mesh)
        alone[key] = layout_map[key]
        return any(alone[path] is not None for path in paths)

    return tuple(key for key in layout_map if not matches(key))


def layout_report(model: Any) -> LayoutReport:
    """Return how the variables of a built model are laid out.

    Keras silently ignores a ``LayoutMap`` key that matches nothing, and the variable it
    was meant for stays whole on every device.

    Parameters
    ----------
    model : keras.Model
        Built, under the distribution in force (``keras.distribution.distribution``).

    Returns
    -------
    LayoutReport
        ``print`` shows it as a table.

    Raises
    ------
    ValueError
        The model is not built, so it has no variables yet.
    """
    import keras

    if not model.built:
        raise ValueError("the model has no variables yet; build it first (model.build(...))")
    rows = tuple((one.path, tuple(one.shape), *_placed(one)) for one in model.weights)
    layout_map = getattr(keras.distribution.distribution(), "_layout_map", None)
    if layout_map is None:
        return LayoutReport(rows)
    # A key may also name a layer's output.
    outputs = [f"{layer.path}/output" for layer in model._flatten_layers()]  # noqa: SLF001 - no public way
    return LayoutReport(rows, _unmatched(layout_map, [*(row[0] for row in rows), *outputs]))
