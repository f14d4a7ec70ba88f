"""PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .framework import Framework

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mwmagic.model.cluster import ClusterSpec, Task

__all__ = ["Torch"]


class Torch(Framework):
    """Its processes meet through the variables that ``init_process_group`` reads (``env://``)."""

    name = "torch"
    title = "PyTorch"
    module = "torch"
    requirements: ClassVar[Mapping[str, str]] = {"torch": "torch"}
    warm = ("torch",)

    ranks = ("RANK",)
    sizes = ("WORLD_SIZE",)
    keras_backend = "torch"
    slurm: ClassVar[Mapping[str, str]] = {"LOCAL_RANK": "SLURM_LOCALID"}

    virtual_devices = False
    early = ("PYTORCH_", "TORCH_")

    frames = (r"/torch/(?:distributed|autograd)/",)  # gradients are reduced in `backward`

    def environment(self, spec: ClusterSpec, task: Task) -> dict[str, str]:
        """Return the address of rank 0, the number of processes and this one's ranks."""
        peers, task = self._peers(spec, task)
        host, _, port = spec.addresses[peers[0]].rpartition(":")
        own = spec.addresses[task].rpartition(":")[0]
        beside = [peer for peer in peers if spec.addresses[peer].rpartition(":")[0] == own]
        return {
            "MASTER_ADDR": host.strip("[]"),  # PyTorch resolves it as a name, which has no brackets
            "MASTER_PORT": port,
            "WORLD_SIZE": str(len(peers)),
            "RANK": str(peers.index(task)),
            "LOCAL_RANK": str(beside.index(task)),
        }
