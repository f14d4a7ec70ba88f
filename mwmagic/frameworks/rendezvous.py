"""What each framework's processes read to find each other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Protocol

from mwmagic.errors import ClusterError

if TYPE_CHECKING:
    from mwmagic.model.cluster import ClusterSpec, Task

__all__ = ["FRAMEWORKS", "Rendezvous", "rendezvous_for", "tf_config"]


class Rendezvous(Protocol):
    """How the processes of one framework meet.

    Attributes
    ----------
    module : str
        The framework itself.
    warm : tuple of str
        The modules that a warm process imports, where they are installed.
    """

    module: str
    warm: tuple[str, ...]

    def environment(self, spec: ClusterSpec, task: Task) -> dict[str, str]:
        """Return the variables that `task` needs to join the cluster `spec`."""


def tf_config(spec: ClusterSpec, task: Task) -> str:
    """Return TF_CONFIG for one task, as JSON.

    The others do not know an evaluator, since it takes no part in their
    collectives. It knows itself: without an entry of its own in ``cluster``,
    ``MultiWorkerMirroredStrategy`` in an evaluator is a ``KeyError`` in
    ``multi_worker_util.worker_count``, and ``TFConfigClusterResolver.master``
    a ``ValueError``.

    Raises
    ------
    ClusterError
        The cluster has no such task.
    """
    task = spec.find(task)
    known = (*spec.members, task) if task.type == "evaluator" else spec.members
    cluster: dict[str, list[str]] = {}
    for member in known:
        cluster.setdefault(member.type, []).append(spec.addresses[member])
    return json.dumps({"cluster": cluster, "task": {"type": task.type, "index": task.index}})


class TensorFlow:
    """TF_CONFIG, for every strategy of ``tf.distribute``."""

    module = "tensorflow"
    warm: tuple[str, ...] = ("tensorflow",)  # and with it Keras

    def environment(self, spec: ClusterSpec, task: Task) -> dict[str, str]:
        """Return TF_CONFIG, and the flag that lets a server bind a held port."""
        return {"TF_CONFIG": tf_config(spec, task), "TF_GRPC_REUSE_PORT": "1"}


def _ranks(spec: ClusterSpec, framework: str) -> tuple[Task, ...]:
    odd = [str(task) for task in spec.tasks if task.type in ("ps", "evaluator")]
    if odd:
        raise ClusterError(
            f"{framework} clusters have workers only; remove {', '.join(odd)} or use "
            "--framework tensorflow"
        )
    return spec.members


class Jax:
    """What ``keras.distribution.initialize`` reads, and the same for JAX alone.

    Of the JAX_ variables ``jax.distributed.initialize`` itself reads only the
    coordinator's address (``jax/_src/distributed.py``); a script without Keras
    passes it the other two as ``num_processes`` and ``process_id``.
    """

    module = "jax"
    warm: tuple[str, ...] = ("jax", "keras")

    def environment(self, spec: ClusterSpec, task: Task) -> dict[str, str]:
        """Return the coordinator's address, the process count and this process's id."""
        ranks, task = _ranks(spec, "JAX"), spec.find(task)
        address, count, rank = spec.addresses[ranks[0]], str(len(ranks)), str(ranks.index(task))
        return {
            "KERAS_BACKEND": "jax",
            "KERAS_DISTRIBUTION_JOB_ADDRESSES": address,
            "KERAS_DISTRIBUTION_NUM_PROCESSES": count,
            "KERAS_DISTRIBUTION_PROCESS_ID": rank,
            "JAX_COORDINATOR_ADDRESS": address,
            "JAX_NUM_PROCESSES": count,
            "JAX_PROCESS_ID": rank,
        }


class Torch:
    """What ``torch.distributed.init_process_group`` reads with ``env://``."""

    module = "torch"
    warm: tuple[str, ...] = ("torch",)

    def environment(self, spec: ClusterSpec, task: Task) -> dict[str, str]:
        """Return the master's address, the world size and this process's rank."""
        ranks, task = _ranks(spec, "torch"), spec.find(task)
        host, _, port = spec.addresses[ranks[0]].rpartition(":")
        own = spec.addresses[task].rpartition(":")[0]
        beside = [rank for rank in ranks if spec.addresses[rank].rpartition(":")[0] == own]
        return {
            "KERAS_BACKEND": "torch",
            "MASTER_ADDR": host.strip("[]"),  # it resolves the name, which has no brackets
            "MASTER_PORT": port,
            "WORLD_SIZE": str(len(ranks)),
            "RANK": str(ranks.index(task)),
            "LOCAL_RANK": str(beside.index(task)),
        }


FRAMEWORKS: dict[str, Rendezvous] = {"tensorflow": TensorFlow(), "jax": Jax(), "torch": Torch()}
"""The frameworks by the name that ``--framework`` takes."""


def rendezvous_for(framework: str) -> Rendezvous:
    """Return the rendezvous of a framework.

    Raises
    ------
    ClusterError
        The framework is unknown.
    """
    if framework not in FRAMEWORKS:
        known = ", ".join(FRAMEWORKS)
        raise ClusterError(f"unknown framework {framework!r}; the frameworks are {known}")
    return FRAMEWORKS[framework]
