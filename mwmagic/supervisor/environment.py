"""The environment of a worker: what must be set before its framework is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mwmagic.frameworks.rendezvous import rendezvous_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mwmagic.model.cluster import ClusterSpec, Task
    from mwmagic.model.config import Config

__all__ = ["base_environment", "early", "forkable", "meeting_environment", "task_environment"]

_KERNEL_ONLY = ("JPY_PARENT_PID", "JPY_SESSION_NAME", "TF_CONFIG")
"""Of the notebook's own environment, what would mislead a worker."""

_EARLY = (
    "ABSL_",
    "CUDA_",
    "GOMP_",
    "GRPC_",
    "JAX_",
    "KERAS_",
    "KMP_",
    "LD_",
    "MKL_",
    "NVIDIA_",
    "OMP_",
    "OPENBLAS_",
    "PYTHON",
    "TF_",
    "XLA_",
)
"""Prefixes of variables that a framework may read while it is imported."""

_LATE = (
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "KMP_DUPLICATE_LIB_OK",
    "KMP_INIT_AT_FORK",
    "TF_CONFIG",
    "TF_NUM_INTEROP_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "XLA_FLAGS",
)
"""Exceptions: what TensorFlow reads when the strategy is made, or at the first op.

The driver reads the CUDA ones in its ``cuInit``, which no import calls. Scikit-learn's
import sets the two of Intel's OpenMP (``sklearn/__init__.py``), and TensorFlow's imports
it, in the notebook as in the warm process.
"""

_MEETING = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "KERAS_DISTRIBUTION_")
"""The same of JAX and of Keras on it: read when the processes meet, different for each."""


def base_environment(config: Config, env: Mapping[str, str]) -> dict[str, str]:
    """Return what the workers of a cluster have in common.

    Parameters
    ----------
    config : Config
        The cluster, as asked for.
    env : mapping of str to str
        What workers inherit.
    """
    base = {name: value for name, value in env.items() if name not in _KERNEL_ONLY}
    if "inline" in base.get("MPLBACKEND", ""):
        del base["MPLBACKEND"]
    base["PYTHONUNBUFFERED"] = "1"
    # Only level 0 says who waits for whom; what is noise is folded when shown.
    base.setdefault("TF_CPP_MIN_LOG_LEVEL", "0")
    base["MWMAGIC_KERAS"] = config.keras
    base["MWMAGIC_HEARTBEAT"] = str(config.heartbeat)
    base["MWMAGIC_DEVICES"] = str(config.devices)
    if config.keras == "legacy":
        base["TF_USE_LEGACY_KERAS"] = "1"
    if config.framework == "jax":
        # It would warn of `no_proxy`, which is set so that no proxy can be in the way.
        base.setdefault("JAX_CHECK_PROXY_ENVS", "false")
        if config.devices:
            base["JAX_NUM_CPU_DEVICES"] = str(config.devices)
    return base


def _without_proxy(env: Mapping[str, str], spec: ClusterSpec) -> dict[str, str]:
    """Keep the tasks' own connections off any proxy.

    With ``http_proxy`` alone set, gRPC asks the proxy for the other worker and
    both hang without a word (tensorflow/tensorflow#50626).
    """
    hosts = {address.rpartition(":")[0] for address in spec.addresses.values()}
    wanted = ["localhost", "127.0.0.1", *sorted(hosts - {"localhost", "127.0.0.1"})]
    given = [name for name in env.get("no_proxy", env.get("NO_PROXY", "")).split(",") if name]
    value = ",".join(dict.fromkeys([*given, *wanted]))
    return {"no_proxy": value, "NO_PROXY": value}


def meeting_environment(
    config: Config, spec: ClusterSpec, task: Task, env: Mapping[str, str]
) -> dict[str, str]:
    """Return what a task needs to meet the others, and nothing else.

    Parameters
    ----------
    config, spec, task, env
        As `task_environment` takes them.
    """
    meeting = rendezvous_for(config.framework).environment(spec, task)
    if "KERAS_BACKEND" in env:
        meeting.pop("KERAS_BACKEND", None)
    return {**meeting, **_without_proxy(env, spec)}


def _share(config: Config, task: Task, env: Mapping[str, str]) -> dict[str, str]:
    """Return a task's share of its machine, but for what was set since the cluster was declared."""
    share = config.shares.get(str(task), {})
    return {name: value for name, value in share.items() if env.get(name) == config.env.get(name)}


def task_environment(
    config: Config, spec: ClusterSpec, task: Task, env: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of one task.

    Parameters
    ----------
    config : Config
        The cluster, as asked for.
    spec : ClusterSpec
        The cluster, as placed.
    task : Task
        One of its tasks.
    env : mapping of str to str
        What workers inherit; what the framework needs to meet wins over it,
        except for ``KERAS_BACKEND``.
    """
    base = base_environment(config, env)
    meeting = meeting_environment(config, spec, task, base)
    share = _share(config, task, env)
    return {**base, **share, **meeting, "MWMAGIC_TASK": str(task)}


def early(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that must agree for a worker to be forked from a warm process."""
    return {
        name: value
        for name, value in env.items()
        if name.startswith(_EARLY) and name not in _LATE and not name.startswith(_MEETING)
    }


def forkable(env: Mapping[str, str], warm: Mapping[str, str]) -> bool:
    """Whether a worker may be forked from a process that imported under `warm`.

    Parameters
    ----------
    env : mapping of str to str
        The worker's environment.
    warm : mapping of str to str
        The early variables of the warm process. It imports with one OpenBLAS
        thread, or it could not be forked: a worker that asks for more starts cold.
    """
    return env.get("OPENBLAS_NUM_THREADS", "1") == "1" and early(env) == warm
