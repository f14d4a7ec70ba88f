"""The environment variables of tasks, derived from what the frameworks need."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from mwmagic.model.cluster import ClusterSpec, make_tasks
from mwmagic.model.variables import SESSION

from . import framework_for, frameworks

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from mwmagic.model.cluster import Task

    from .framework import Framework

__all__ = [
    "backend_environment",
    "decides",
    "default_environment",
    "differing",
    "inheritable",
    "is_early",
    "is_settable",
    "meeting_environment",
    "option_environment",
    "set_by_user",
    "thread_environment",
]

_EARLY = (
    "BLIS_",
    "CUDA_",
    "GLIBC_",
    "GOMP_",
    "GOTO_",
    "HDF5_",
    "JE_ARROW_",
    "KERAS_",
    "KMP_",
    "LC_",
    "LD_",
    "MALLOC_",
    "MKL_",
    "NVIDIA_",
    "OMP_",
    "OPENBLAS_",
    "PROTOCOL_BUFFERS_",
    "PYTHON",
)
"""Prefixes of variables that the interpreter, Keras and C libraries read on import.

The warm process notes by itself which others Python code asks for.
"""

_EARLY_NAMES = frozenset({"HOME", "LANG", "LANGUAGE", "TMPDIR", "TZ"})
"""Other variables that C libraries read."""

_AT_START = ("GLIBC_", "LANG", "LC_", "LD_", "MALLOC_", "PYTHON")
"""Prefixes of variables that only matter to a process that starts with them."""

_DECISIVE = ("JAX_", "KERAS_", "PROTOCOL_BUFFERS_", "PYTORCH_", "TF_", "TORCH_", "XLA_")
"""Prefixes of early variables that change what a program computes."""

_PRINTING = ("TF_CPP_",)
"""Prefixes of those among them that only change what it prints."""

_LATE = ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "PYTEST_CURRENT_TEST")
"""Variables that make no difference to an import.

The driver reads CUDA's in ``cuInit``, which no import calls. pytest sets its own for each test.
"""

_OWN = "MWMAGIC_"

_KERNEL_ONLY = ("JPY_PARENT_PID", SESSION)
_BACKEND = "KERAS_BACKEND"
_NO_PROXY = "no_grpc_proxy"
_LEGACY = {"TF_USE_LEGACY_KERAS": "1"}
_THREADS = {"OMP_NUM_THREADS": 1}
"""The variable that PyTorch and NumPy's libraries read, and the minimum that works."""


def _without_proxy(spec: ClusterSpec, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that keeps connections between tasks away from any proxy.

    gRPC would ask the proxy for the other worker, and both would wait without a word
    (tensorflow/tensorflow#50626). It reads ``no_proxy`` only if there is no ``no_grpc_proxy``, and
    nothing else reads that: what the program itself downloads goes where it would by hand.
    """
    given = env.get(_NO_PROXY, env.get("no_proxy", "")).split(",")
    wanted = ["localhost", "127.0.0.1", *sorted(spec.hosts - {"localhost", "127.0.0.1"})]
    return {_NO_PROXY: ",".join(dict.fromkeys([*filter(None, given), *wanted]))}


def backend_environment(framework: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variable for the framework's Keras backend, unless the user has set it."""
    backend = framework_for(framework).keras_backend
    return {} if backend is None or _BACKEND in env else {_BACKEND: backend}


def meeting_environment(
    framework: str, spec: ClusterSpec, task: Task, env: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables that a task needs to meet the others, and no more."""
    return {
        **backend_environment(framework, env),
        **framework_for(framework).holds_port,
        **framework_for(framework).environment(spec, task),
        **_without_proxy(spec, env),
    }


def default_environment() -> dict[str, str]:
    """Return the variables that every task gets unless the user sets them."""
    return {name: value for one in frameworks() for name, value in one.defaults.items()}


def option_environment(framework: str, *, keras: str, devices: int) -> dict[str, str]:
    """Return the variables that follow from the cluster's options, for every task."""
    legacy = _LEGACY if keras == "legacy" else {}
    return {**legacy, **framework_for(framework).settings(devices)}


def thread_environment(count: int) -> dict[str, str]:
    """Return the variables that give a task `count` threads."""
    minimums = dict(_THREADS)
    for one in frameworks():
        minimums |= one.threads
    return {name: str(max(count, minimum)) for name, minimum in minimums.items()}


def inheritable(env: Mapping[str, str]) -> dict[str, str]:
    """Return the part of a notebook's environment that a task may inherit."""
    misleading = {*_KERNEL_ONLY, *(name for one in frameworks() for name in one.not_inherited)}
    inherited = {name: value for name, value in env.items() if name not in misleading}
    if "inline" in inherited.get("MPLBACKEND", ""):
        del inherited["MPLBACKEND"]
    return inherited


def set_by_user(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` without the variables that importing a framework has set.

    With the log level that importing JAX sets, a worker would no longer log which tasks
    it waits for. TensorFlow also imports JAX, through Keras, if JAX is installed.
    """
    imported = {pair for one in frameworks() for pair in one.imports_set.items()}
    return {name: value for name, value in env.items() if (name, value) not in imported}


def _of_meeting(framework: Framework) -> Iterable[str]:
    """Return the variables that are read when the tasks meet, which is after the import."""
    spec = ClusterSpec.of(make_tasks(1), ["localhost:1"])
    return framework.environment(spec, spec.tasks[0])


@cache
def _timing() -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the prefixes of early variables, and the names that are exceptions."""
    prefixes = {prefix for one in frameworks() for prefix in one.early}
    late = {name for one in frameworks() for name in (*one.late, *_of_meeting(one))}
    return (*_EARLY, *prefixes), frozenset({*_LATE, *late})


def is_early(name: str, reads: Container[str] = ()) -> bool:
    """Return whether an import may read a variable."""
    prefixes, late = _timing()
    if name in late or name.startswith(_OWN):
        return False
    return name in reads or name in _EARLY_NAMES or name.startswith(prefixes)


def is_settable(name: str) -> bool:
    """Return whether a program that sets a variable before an import changes what that reads."""
    return not name.startswith(_AT_START)


def decides(name: str) -> bool:
    """Return whether an early variable changes what a program computes.

    Others change what it prints, where it writes, or how fast it is.
    """
    return name.startswith(_DECISIVE) and not name.startswith(_PRINTING)


def differing(
    env: Mapping[str, str],
    warm: Mapping[str, str],
    reads: Container[str] = (),
    sets: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return the variables that keep a worker from being forked from a warm process."""
    names = {name for name in {*env, *warm} if is_early(name, reads)}
    same = {name: {warm.get(name), sets.get(name, warm.get(name))} for name in names}
    return sorted(name for name, values in same.items() if env.get(name) not in values)
