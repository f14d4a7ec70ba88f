"""What the repairs need of Keras, found by what it is, because releases of Keras move their files.

Public things are imported by their public names. A class that is not is found as the base that
gives a public class one of its functions, and everything else in the module of something public.
"""

from __future__ import annotations

import sys
from typing import Any

from keras import (
    Layer,
    Model,
    StatelessScope,
    Variable,
    config,
    losses,
    name_scope,
    ops,
    saving,
    tree,
    utils,
)
from keras.callbacks import (
    BackupAndRestore,
    Callback,
    CallbackList,
    CSVLogger,
    History,
    LambdaCallback,
    ModelCheckpoint,
    ProgbarLogger,
    RemoteMonitor,
    TensorBoard,
)
from keras.layers import BatchNormalization
from keras.optimizers import LossScaleOptimizer, Optimizer

from .repair import UnknownKeras

__all__ = [
    "ArrayDataAdapter",
    "BackendVariable",
    "BackupAndRestore",
    "BaseOptimizer",
    "BaseTrainer",
    "BatchNormalization",
    "CSVLogger",
    "Callback",
    "CallbackList",
    "CompileLoss",
    "CompileMetrics",
    "GeneratorDataAdapter",
    "H5IOStore",
    "History",
    "KerasVariable",
    "LambdaCallback",
    "Layer",
    "LossScaleOptimizer",
    "Model",
    "ModelCheckpoint",
    "ProgbarLogger",
    "PyDatasetAdapter",
    "RemoteMonitor",
    "StatelessScope",
    "TFDatasetAdapter",
    "TFEpochIterator",
    "TFOptimizer",
    "TensorBoard",
    "TensorFlowTrainer",
    "compile_utils",
    "file_utils",
    "global_state",
    "is_default",
    "legacy_h5_format",
    "loss_module",
    "name_scope",
    "ops",
    "saving_lib",
    "traceback_utils",
    "trainer",
    "tree",
]


def _defining(public: Any, name: str) -> Any:  # noqa: ANN401 - Keras has no annotations
    """Return the class, of a public one and its bases, that defines a function."""
    for cls in public.__mro__:
        if name in vars(cls):
            return cls
    raise UnknownKeras(f"{public.__name__}.{name}")


def _module(public: Any) -> Any:  # noqa: ANN401 - Keras has no annotations
    """Return the module of something public."""
    return sys.modules[public.__module__]


def _named(module: Any, name: str) -> Any:  # noqa: ANN401 - Keras has no annotations
    """Return what a module calls by a name."""
    try:
        return getattr(module, name)
    except AttributeError:
        raise UnknownKeras(f"{module.__name__}.{name}") from None


def _beside(public: Any, name: str) -> Any:  # noqa: ANN401 - Keras has no annotations
    """Return what the module of something public calls by a name."""
    return _named(_module(public), name)


TensorFlowTrainer = _defining(Model, "_make_function")
"""What gives a model the `fit` that runs on TensorFlow."""
BaseTrainer = _defining(Model, "compile")
"""What gives a model what it has with every backend."""
trainer = _module(TensorFlowTrainer)
TFEpochIterator = _beside(TensorFlowTrainer, "TFEpochIterator")

BackendVariable = _defining(Variable, "_direct_assign")
"""The class of variables that hold one of TensorFlow's."""
KerasVariable = _defining(Variable, "__float__")
"""The class of variables of every backend."""

TFOptimizer = _defining(Optimizer, "_all_reduce_sum_gradients")
BaseOptimizer = _defining(Optimizer, "apply")
loss_module = _module(losses.Loss)
CompileLoss = _beside(BaseTrainer, "CompileLoss")
CompileMetrics = _beside(BaseTrainer, "CompileMetrics")
compile_utils = _module(CompileLoss)

# What chooses how a model reads the data that it is given.
_adapters = _beside(TFEpochIterator.__base__, "data_adapters")
ArrayDataAdapter = _named(_adapters, "ArrayDataAdapter")
GeneratorDataAdapter = _named(_adapters, "GeneratorDataAdapter")
PyDatasetAdapter = _named(_adapters, "PyDatasetAdapter")
TFDatasetAdapter = _named(_adapters, "TFDatasetAdapter")

saving_lib = _beside(saving.save_model, "saving_lib")
legacy_h5_format = _beside(saving.save_model, "legacy_h5_format")
H5IOStore = _named(saving_lib, "H5IOStore")

file_utils = _module(utils.get_file)
global_state = _module(utils.clear_session)
is_default = _named(_beside(CallbackList, "utils"), "is_default")
traceback_utils = _module(config.enable_traceback_filtering)
