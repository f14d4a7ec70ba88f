"""JAX, with and without Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .framework import Milestone, Xla

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mwmagic.model.cluster import ClusterSpec, Task

__all__ = ["Jax"]


class Jax(Xla):
    """Its processes meet through the variables that ``keras.distribution.initialize`` reads.

    The JAX_ variables repeat them for JAX without Keras. Of these,
    ``jax.distributed.initialize`` reads only the coordinator's address
    (``jax/_src/distributed.py``); a script without Keras passes it the other two
    as ``num_processes`` and ``process_id``.
    """

    name = "jax"
    title = "JAX"
    module = "jax"
    companions = ("jaxlib",)
    requirements: ClassVar[Mapping[str, str]] = {"jax": "mwmagic[jax]"}
    warm = ("jax", "keras")

    ranks = ("KERAS_DISTRIBUTION_PROCESS_ID", "JAX_PROCESS_ID")
    sizes = ("KERAS_DISTRIBUTION_NUM_PROCESSES", "JAX_NUM_PROCESSES")
    addresses = ("KERAS_DISTRIBUTION_JOB_ADDRESSES", "JAX_COORDINATOR_ADDRESS")
    keras_backend = "jax"

    device_variable = "JAX_NUM_CPU_DEVICES"
    early = (*Xla.early, "JAX_")
    imports_set: ClassVar[Mapping[str, str]] = {"TF_CPP_MIN_LOG_LEVEL": "1"}  # jax/__init__.py
    threads: ClassVar[Mapping[str, int]] = {"NPROC": 1}  # XLA's thread pool

    milestones = (
        *Xla.milestones,
        Milestone("server", r"Jax service listening on"),
        Milestone("connected", r"Connected to distributed JAX controller"),
    )

    consequences = (*Xla.consequences, r"JAX distributed service detected fatal errors")
    blames_ranks = (r"stopped sending heartbeats\):\n((?:\d+\n)+)",)
    frames = (r"/jax/_src/", r"/jaxlib/")

    def environment(self, spec: ClusterSpec, task: Task) -> dict[str, str]:
        """Return the coordinator's address, the number of processes and this one's rank."""
        peers, task = self._peers(spec, task)
        return {
            **dict.fromkeys(self.addresses, spec.addresses[peers[0]]),
            **dict.fromkeys(self.sizes, str(len(peers))),
            **dict.fromkeys(self.ranks, str(peers.index(task))),
        }
