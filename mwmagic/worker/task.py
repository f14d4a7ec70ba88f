# ruff: noqa: ANN401 - Keras has no annotations
"""Which task this process is, with which parameters and layout, for code that runs on every task.

It reads the variables that the framework itself reads, so it also works with a plain
TF_CONFIG, without any cluster, and in scripts that mwmagic did not start.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mwmagic.errors import ClusterError
from mwmagic.frameworks import frameworks
from mwmagic.hooks import scratch
from mwmagic.model import variables
from mwmagic.model.cluster import Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "LayoutReport",
    "cluster_size",
    "is_chief",
    "layout_report",
    "params",
    "this_task",
    "write_path",
]

AnyPath = TypeVar("AnyPath", str, Path)

COLUMNS = ("variable", "shape", "axes", "on each device")


def _tf_config() -> Mapping[str, Any]:
    text = os.environ.get("TF_CONFIG", "")
    try:
        config = json.loads(text) if text else {}
    except ValueError as error:
        raise ClusterError(f"TF_CONFIG is not valid JSON ({error}): {text!r}") from error
    return config if isinstance(config, dict) else {}


def _number(names: Sequence[str]) -> int | None:
    """Return the first of these variables that is set, as a number."""
    for name in names:
        text = os.environ.get(name, "")
        if text:
            try:
                return int(text)
            except ValueError:
                raise ClusterError(f"{name} is not a whole number: {text!r}") from None
    return None


def _rank() -> int | None:
    """Return this process's rank, if a framework's variable holds one."""
    return _number([name for one in frameworks() for name in one.ranks])


def this_task() -> Task:
    """Return the task that this process is.

    Returns
    -------
    Task
        With its ``type`` and ``index``; ``worker:0`` without a cluster.

    Raises
    ------
    ClusterError
        The environment is malformed.
    """
    task = _tf_config().get("task")
    if task:
        return Task(task["type"], int(task["index"]))
    if variables.TASK in os.environ:
        return Task.parse(os.environ[variables.TASK])
    return Task("worker", _rank() or 0)


def is_chief() -> bool:
    """Return whether this process is the one that writes files for all.

    With TF_CONFIG it follows the rule of TensorFlow's guides: the chief or, without one, the
    first worker. A process without a cluster is its own chief; an evaluator is not.
    """
    if not _tf_config().get("task"):
        return not _rank()
    task, others = this_task(), _tf_config().get("cluster", {})
    return task.type == "chief" or (task == Task("worker", 0) and not others.get("chief"))


def cluster_size() -> int:
    """Return how many processes train together: the chief and the workers.

    Parameter servers and evaluators do not count; without a cluster it is 1.
    """
    cluster = _tf_config().get("cluster")
    if cluster:
        return len(cluster.get("chief", ())) + len(cluster.get("worker", ()))
    return _number([name for one in frameworks() for name in one.sizes]) or 1


@cache
def _scratch() -> Path:
    """Make a temporary directory that is removed when this process ends, or after it."""
    folder = Path(tempfile.mkdtemp(prefix=f"mwmagic-{this_task().slug}-", dir=scratch()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def write_path(path: AnyPath) -> AnyPath:
    """Return the path for this task to write a file to, of which only the chief's is kept.

    Saving takes part in collectives, so every worker must do it, but only the chief may
    write to `path`. The others write to a temporary directory that is removed when the
    process ends.

    Parameters
    ----------
    path : str or Path
        Where the chief writes.

    Returns
    -------
    str or Path
        `path` itself on the chief; elsewhere a temporary path, the same at each call,
        with the same last component.
    """
    if is_chief():
        return path
    folder = _scratch() / sha256(os.fsencode(path)).hexdigest()[:8]
    folder.mkdir(exist_ok=True)
    return type(path)(folder / os.path.basename(os.fspath(path).rstrip("/")))  # noqa: PTH119 - may be a URL


class _Parameters(Mapping[str, Any]):
    """What was given with ``-p NAME=VALUE`` for names that the program reads here.

    ``params.get("lr", 0.1)`` declares the parameter ``lr``, a number, and ``params["lr"]`` one
    that must be given. In a program that mwmagic did not start the mapping is empty.
    """

    def __getitem__(self, name: str) -> Any:
        try:
            return json.loads(os.environ[variables.PARAMETER + name])
        except KeyError:
            raise KeyError(
                f"{name}: launch the program with -p {name}=VALUE, or write "
                f"params.get({name!r}, DEFAULT)"
            ) from None

    def __iter__(self) -> Iterator[str]:
        given = [name for name in os.environ if name.startswith(variables.PARAMETER)]
        return iter([name.removeprefix(variables.PARAMETER) for name in given])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        return f"params({dict(self)})"


params: Mapping[str, Any] = _Parameters()
"""The parameters that this run was given, by name."""


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
