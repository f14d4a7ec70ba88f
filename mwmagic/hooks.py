# ruff: noqa: ANN401 - TensorFlow has no annotations
"""What the repairs, the recovery and a worker share.

A worker's bootstrap has to prepare TensorFlow and Keras, but it is up to the user's code whether
and when they are imported, and importing them takes seconds. So a finder at the head of
`sys.meta_path` waits for a module's name, lets the ordinary finders do the work, and then runs a
function.

That and the repairs ask whether the strategy in use has several replicas or workers, and which of
them this is. Its replicas add up what each has, and only the chief writes.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock

from mwmagic.model import variables

TYPE_CHECKING = False  # a worker starts without `typing`
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    Action = Callable[[ModuleType], None]

__all__ = [
    "INPUT_WAIT",
    "METRIC_SUMS",
    "VOTE_SECONDS",
    "Loading",
    "add_up",
    "added",
    "after_import",
    "divides_batches",
    "first_local",
    "found_after",
    "has_several_devices",
    "in_cluster",
    "in_one_of_several_replicas",
    "is_chief",
    "of_chief",
    "scratch",
    "spans_workers",
    "trains_alone",
]

METRIC_SUMS = "_mwmagic_sums"
"""The attribute of a model with the identities of its metrics' variables and, in a tensor, their
state on all replicas after the last training step. The first number is the moment, for which the
identity is 0: all workers have the same."""

INPUT_WAIT = "_mwmagic_input_wait"
"""The attribute of a model with a tensor of how many seconds the steps of the last execution waited
for their batches."""

VOTE_SECONDS = "_mwmagic_vote_seconds"
"""The attribute of a strategy with how long callbacks have waited for those of other workers."""

_LOCK = RLock()

_PACKAGES = ("jax", "keras", "matplotlib", "tensorflow", "tf_keras", "torch")
"""What is only waited for where it is a package; a file of that name is the user's."""


def after_import(name: str, action: Callable[[ModuleType], None]) -> None:
    """Call `action` with a module as soon as that module is imported.

    A module whose body is still running counts as imported, so register before the
    user's code runs.
    """
    with _LOCK:
        module = sys.modules.get(name)
        if module is None:
            _waiting().add(name, action)
            return
    action(module)


def _waiting() -> _Finder:
    """Return this process's finder, installing it first if necessary."""
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            return finder
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    return finder


def found_after(
    finder: object, fullname: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    """Return what the finders behind another one in `sys.meta_path` find.

    Those before it have been asked, or are asking it: two that each ask all others would never
    come to an end.
    """
    finders = list(sys.meta_path)
    place = next((i for i, one in enumerate(finders) if one is finder), -1)
    for one in finders[place + 1 :]:
        spec = one.find_spec(fullname, path, target)
        if spec is not None:
            return spec
    return None


class _Finder:
    """Wraps the loader of each module that an action waits for.

    The bases in `importlib.abc` would cost each worker half of its start.
    """

    def __init__(self) -> None:
        self._actions: dict[str, list[Action]] = {}

    def add(self, name: str, action: Action) -> None:
        self._actions.setdefault(name, []).append(action)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._actions:
            return None
        spec = found_after(self, fullname, path, target)
        if spec is not None and spec.loader is not None and _is_meant(spec):
            spec.loader = Loading(spec.loader, self._load)  # type: ignore[assignment]
        return spec

    def _load(self, loader: Loader, module: ModuleType) -> None:
        loader.exec_module(module)
        self.imported(sys.modules.get(module.__name__, module))

    def imported(self, module: ModuleType) -> None:
        """Run the actions for `module`, and leave `sys.meta_path` after the last."""
        with _LOCK:
            actions = self._actions.pop(module.__name__, [])
            if not self._actions and self in sys.meta_path:
                sys.meta_path.remove(self)
        for action in actions:
            action(module)


def _is_meant(spec: ModuleSpec) -> bool:
    """Return whether a module is the one that is waited for, and not one of the user's own."""
    if spec.name in _PACKAGES:
        return spec.submodule_search_locations is not None
    folder = os.__file__.rpartition("/")[0]
    return spec.name not in sys.stdlib_module_names or spec.origin == f"{folder}/{spec.name}.py"


class Loading:
    """A module's own loader, with something done around or after it."""

    def __init__(self, loader: Loader, load: Callable[[Loader, ModuleType], None]) -> None:
        self._loader = loader
        self._load = load

    def __getattr__(self, name: str) -> object:
        # `importlib.util.find_spec` hands the spec to code that asks its
        # loader for source, resources and more.
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Make the module, as its loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module."""
        # The module keeps no trace of the detour: `inspect`, `pickle` and
        # `importlib.resources` look at these two.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._load(self._loader, module)


def divides_batches(strategy: Any) -> bool:
    """Return whether a `tf.distribute` strategy is a MultiWorkerMirroredStrategy of many replicas.

    They may all be in one worker that has several devices. With one replica in all, the same
    class trains like a single process and needs no repair.
    """
    return _is_multi_worker(strategy) and strategy.num_replicas_in_sync > 1


def has_several_devices(strategy: Any, *_args: Any, **_kwargs: Any) -> bool:
    """Return whether this worker has several replicas of a strategy that `divides_batches`."""
    return divides_batches(strategy) and len(strategy.extended.worker_devices) > 1


def in_one_of_several_replicas() -> bool:
    """Return whether this code is run for one replica of a strategy that `divides_batches`."""
    import tensorflow as tf

    in_replica = tf.distribute.get_replica_context() is not None
    return in_replica and divides_batches(tf.distribute.get_strategy())


def spans_workers(strategy: Any) -> bool:
    """Return whether a `tf.distribute` strategy is a MultiWorkerMirroredStrategy over workers.

    The same class works locally when TF_CONFIG names one task or none; there is no other
    worker then that has to do the same.
    """
    # Keras asks the same way.
    return _is_multi_worker(strategy) and strategy.extended._in_multi_worker_mode()  # noqa: SLF001


def trains_alone(strategy: Any) -> bool:
    """Return whether a model of this strategy trains alone, beside another over all workers."""
    from tensorflow.python.eager import context

    # Creating the other leaves this in TensorFlow's context.
    made = getattr(context.context(), "_collective_leader", None)
    return bool(made) and in_cluster() and not spans_workers(strategy)


def _is_multi_worker(strategy: Any) -> bool:
    import tensorflow as tf

    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def is_chief(strategy: Any) -> bool:
    """Return whether this worker is the one that writes for all."""
    return not spans_workers(strategy) or bool(strategy.extended.should_checkpoint)


def in_cluster() -> bool:
    """Return whether TF_CONFIG names other tasks that run the same code."""
    import json

    try:
        cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    except ValueError:
        return False  # TensorFlow reports what is wrong with it when it reads it
    return sum(len(cluster.get(kind, ())) for kind in ("chief", "worker")) > 1


def first_local(strategy: Any, values: Any) -> Any:
    """Return the values of this worker's first replica from a nest of per-replica values."""
    from keras import tree

    return tree.map_structure(lambda v: strategy.experimental_local_results(v)[0], values)


def add_up(values: list[Any]) -> list[Any]:
    """Return the sums of tensors over all replicas; call it in replica context.

    All tensors of one type travel in one reduction.
    """
    import math

    import tensorflow as tf

    sums: list[Any] = [None] * len(values)
    for dtype in dict.fromkeys(value.dtype for value in values):
        chosen = [i for i, value in enumerate(values) if value.dtype == dtype]
        flat = tf.concat([tf.reshape(values[i], [-1]) for i in chosen], axis=0)
        total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, flat)
        parts = tf.split(total, [math.prod(values[i].shape) for i in chosen])
        for i, part in zip(chosen, parts, strict=True):
            sums[i] = tf.reshape(part, values[i].shape)
    return sums


def added(strategy: Any, values: list[Any]) -> list[Any]:
    """Return the sums of what each worker has; call it on every worker."""
    mine = [_reducible(value) for value in values]
    return _run_once(strategy, lambda: add_up(mine))


def of_chief(strategy: Any, values: list[Any]) -> list[Any]:
    """Return the chief's numbers or variables; call it on every worker.

    Integers arrive as int64, narrow floats as float32.
    """
    import tensorflow as tf

    mine = [_reducible(value) for value in values]

    def replica() -> list[Any]:
        first = tf.distribute.get_replica_context().replica_id_in_sync_group == 0
        return add_up([tf.where(first, value, tf.zeros_like(value)) for value in mine])

    return _run_once(strategy, replica)


def _run_once(strategy: Any, replica: Callable[[], list[Any]]) -> list[Any]:
    """Run a function on every replica, and return this worker's first replica's values."""
    import tensorflow as tf

    # Traced, because TensorFlow warns about an untraced `run`, and called as a concrete
    # function, because it warns about tracing many functions.
    traced = tf.function(lambda: first_local(strategy, strategy.run(replica)), autograph=False)
    return traced.get_concrete_function()()  # type: ignore[no-any-return]


def _reducible(value: Any) -> Any:
    """Cast to a type that every kind of collective communication can add."""
    import tensorflow as tf

    if isinstance(value, int):
        return tf.constant(value, tf.int64)
    value = tf.convert_to_tensor(value)
    if value.dtype in {tf.float32, tf.float64}:
        return value
    return tf.cast(value, tf.float32 if value.dtype.is_floating else tf.int64)


def scratch() -> str | None:
    """Return the folder that the agent removes after this process; None without an agent."""
    folder = os.environ.get(variables.SCRATCH)
    if folder is None:
        return None
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - it is a string
    except OSError:
        return None  # then Python finds one that can be written
    return folder
