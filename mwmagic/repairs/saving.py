# ruff: noqa: ANN401 - Keras has no annotations
"""Saving to one path from all workers."""

from __future__ import annotations

import ctypes
import errno
import inspect
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from keras import models, saving
from tensorflow.python.saved_model import save as saved_model

from mwmagic.hooks import in_cluster

from .parts import Model, legacy_h5_format, saving_lib
from .repair import Repair, Sign, Use, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["REPAIRS", "at_once"]

# Of Linux's renameat2(2): AT_FDCWD and RENAME_EXCHANGE.
CWD, EXCHANGE = -100, 2


@contextmanager
def at_once(path: Path) -> Iterator[Path]:
    """Yield a temporary path; what is written there then appears at `path` as a whole.

    The last writer wins. The workers' models are equal, so it does not matter which one
    that is, but half of one file and half of another would.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    directory = Path(mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield directory / path.name
        _put(directory / path.name, path, directory / "replaced")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _put(written: Path, path: Path, aside: Path) -> None:
    """Move what was written to its place."""
    if not written.is_dir():
        written.replace(path)
        return
    placed = _renamed(written, path) or _exchanged(written, path)
    while not placed:
        shutil.rmtree(aside, ignore_errors=True)
        with suppress(FileNotFoundError):
            path.replace(aside)
        placed = _renamed(written, path)


def _renamed(written: Path, path: Path) -> bool:
    """Rename a directory, unless the target exists."""
    try:
        written.rename(path)
    except OSError as error:
        # Not `path.is_dir()`: another worker may have moved it aside by now.
        if error.errno in {errno.EEXIST, errno.ENOTEMPTY}:
            return False
        raise
    return True


def _exchanged(written: Path, path: Path) -> bool:
    """Exchange two directories in one step if the system can, so that one is always there."""
    exchange = getattr(ctypes.CDLL(None), "renameat2", None)
    if exchange is None:
        return False
    return bool(exchange(CWD, os.fsencode(written), CWD, os.fsencode(path), EXCHANGE) == 0)


def _local(path: Any) -> bool:
    return isinstance(path, (str, os.PathLike)) and "://" not in os.fspath(path)


def _whole(save: Callable[..., Any], argument: str) -> Callable[..., Any]:
    """Return a saving function whose file appears as a whole."""
    signature = inspect.signature(save)

    def saved(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        path = bound.arguments.get(argument)
        in_pieces = bound.arguments.get("max_shard_size") is not None
        if in_pieces or not in_cluster() or not _local(path):
            return save(*args, **kwargs)
        with at_once(Path(str(path))) as temporary:
            bound.arguments[argument] = str(temporary)
            return save(*bound.args, **bound.kwargs)

    return saved


def _save_at_once() -> None:
    """Write each saved model to a temporary path, and rename it.

    The originals open the path itself. When several workers save to the same path, HDF5
    raises BlockingIOError (its file lock), a .keras archive mixes two writers, and one
    SavedModel's temporary files are gone before the other merges them.

    For a SavedModel, the function that `tf.saved_model.save` calls is replaced, because
    that name itself does not last: TensorFlow recreates the module `tf.saved_model` when
    something below it is imported, as Keras's `export` does.
    """
    for module, name, argument in (
        (saving_lib, "save_model", "filepath"),
        (saving_lib, "save_weights_only", "filepath"),
        (legacy_h5_format, "save_model_to_hdf5", "filepath"),
        (saved_model, "save_and_return_nodes", "export_dir"),
    ):
        replace(module, name, _whole(getattr(module, name), argument))


def _beside_others(*_args: Any, **_kwargs: Any) -> bool:
    return in_cluster()


REPAIRS = (
    Repair(
        "save",
        "tensorflow/tensorflow#38635",
        (
            Sign(saving_lib, "save_model", 'open(filepath, "wb")'),
            Sign(saving_lib, "save_weights_only", "weights_store = H5IOStore(filepath"),
            Sign(legacy_h5_format, "save_model_to_hdf5", "h5py.File(filepath"),
            Sign(saved_model, "save_and_return_nodes", "export_dir"),
        ),
        _save_at_once,
        uses=(
            *(Use(Model, name, _beside_others) for name in ("save", "save_weights", "export")),
            *(Use(saving, name, _beside_others) for name in ("save_model", "save_weights")),
            Use(models, "save_model", _beside_others),
            Use(saved_model, "save_and_return_nodes", _beside_others),
        ),
    ),
)
