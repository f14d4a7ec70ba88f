# ruff: noqa: ANN401, SLF001 - TensorFlow has no annotations, and these are its private names
"""Every name of TensorFlow's that a recovery needs and that is not public.

Another version may lack any of them. `lacking` says which, and if one is gone nothing is freed
and nothing counted. It imports nothing: what is not imported yet is not lacking to anybody.
"""

# TensorFlow has no public way to leave a collective that others never enter. Its own failure
# handling calls `Context.abort_collective_ops`, from any thread: every collective of the process
# then raises, now and from then on, while plain operations and variables still work. Calling
# `enable_collective_ops` again with the same server definition gives the context new collectives,
# but not before the executor has forgotten the error (`Executor.clear_error`).
#
# Collectives meet by number: each strategy numbers its groups of devices, and each group its
# instances, by counting. Tasks that were freed at different places have counted differently, so
# `number_keys` and `number_groups` make all continue from the same number.

from __future__ import annotations

import sys

TYPE_CHECKING = False  # a worker starts without `typing`
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "CONTEXT",
    "IN_COLLECTIVE",
    "KEYS",
    "PRIVATE",
    "VARIABLES",
    "context",
    "first_group",
    "has_effects",
    "lacking",
    "number_groups",
    "number_keys",
    "plain_variable",
    "restart_collectives",
    "server_of",
]

CONTEXT = "tensorflow.python.eager.context"

IN_COLLECTIVE = "tensorflow.python.ops.gen_collective_ops"
"""The module of which a thread runs a function while it is in a collective."""

VARIABLES = ("tensorflow.python.distribute.values", "DistributedVariable")
"""The class of every variable of a distribution strategy."""

KEYS = ("tensorflow.python.distribute.cross_device_utils", "CollectiveKeys")
"""The class of what numbers a strategy's collectives."""

STRATEGIES = (
    "tensorflow.python.distribute.collective_all_reduce_strategy",
    "CollectiveAllReduceStrategy",
)
"""The class of which each instance is a strategy of several workers."""

PRIVATE = (
    (CONTEXT, "Context.abort_collective_ops"),
    (CONTEXT, "Context.enable_collective_ops"),
    (CONTEXT, "Context._collective_ops_server_def"),
    (CONTEXT, "Context.executor"),
    ("tensorflow.python.eager.executor", "Executor.clear_error"),
    ("tensorflow.python.framework.ops", "Operation._is_stateful"),
    ("tensorflow.python.ops.resource_variable_ops", "ResourceVariable"),
    (IN_COLLECTIVE, "collective_reduce_v2"),
    VARIABLES,
    (STRATEGIES[0], f"{STRATEGIES[1]}._collective_key_base"),
    KEYS,
    (KEYS[0], f"{KEYS[1]}._instance_key_table"),
    (KEYS[0], f"{KEYS[1]}._lock"),
)
"""All of them: module, name."""


def lacking() -> list[str]:
    """Return which of the private names this TensorFlow does not have."""
    return [f"{module}.{name}" for module, name in PRIVATE if not _has(module, name)]


def _has(module: str, name: str) -> bool:
    import inspect

    owner, _, attribute = name.rpartition(".")
    found = sys.modules.get(module)
    if not owner:
        return hasattr(found, attribute)
    cls = getattr(found, owner, None)
    if cls is None or hasattr(cls, attribute):
        return cls is not None
    return attribute in inspect.unwrap(cls.__init__).__code__.co_names  # instances have it


def context() -> Any:
    """Return TensorFlow's context if it has collectives with other processes."""
    module = sys.modules.get(CONTEXT)
    found = module.context() if module is not None else None
    return found if server_of(found) else None


def server_of(found: Any) -> Any:
    """Return what TensorFlow's context knows of the processes with which it has collectives."""
    return getattr(found, "_collective_ops_server_def", None)


def restart_collectives(found: Any) -> None:
    """Make the collectives of TensorFlow's context work again, with the same processes."""
    found.executor.clear_error()
    found.enable_collective_ops(found._collective_ops_server_def)


def number_keys(keys: Any, first: int) -> None:
    """Have a strategy number its collectives from here."""
    with keys._lock:
        for table in keys._instance_key_table.values():
            table.update(dict.fromkeys(table, first))


def first_group() -> int:
    """Return the number from which the next strategy numbers its groups of devices."""
    return int(_strategies()._collective_key_base)


def number_groups(start: int) -> None:
    """Have the next strategy number its groups of devices, and so its collectives, from here."""
    _strategies()._collective_key_base = start


def _strategies() -> Any:
    return getattr(sys.modules[STRATEGIES[0]], STRATEGIES[1])


def has_effects(operation: Any) -> bool:
    """Return whether an operation of a graph changes something."""
    return bool(operation._is_stateful)


def plain_variable(value: Any, dtype: Any = None) -> Any:
    """Return a variable on the CPU that belongs to no strategy."""
    import tensorflow as tf
    from tensorflow.python.ops.resource_variable_ops import ResourceVariable

    with tf.init_scope(), tf.device("CPU:0"):
        return ResourceVariable(value, trainable=False, dtype=dtype)
