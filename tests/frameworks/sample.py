"""A framework that mwmagic does not know: nothing but the class.

Every process of the test imports this module, as ``sitecustomize`` asks it to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from mwmagic.frameworks import Framework, Milestone, register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mwmagic.model.cluster import ClusterSpec, Task


class Sample(Framework):
    """Its processes meet over a socket of the first of them."""

    name = "sample"
    title = "Sample"
    module = "json"
    requirements: ClassVar[Mapping[str, str]] = {"samplelib": "sample-lib"}

    ranks = ("SAMPLE_RANK",)
    sizes = ("SAMPLE_SIZE",)
    defaults: ClassVar[Mapping[str, str]] = {"SAMPLE_COLOUR": "green"}
    device_variable = "SAMPLE_DEVICES"
    early = ("SAMPLE_",)
    late = ("SAMPLE_ADDRESS", "SAMPLE_DEVICES", *ranks, *sizes)
    threads: ClassVar[Mapping[str, int]] = {"SAMPLE_THREADS": 3}

    notices = (r"\[sample\] tuning ",)
    milestones = (
        Milestone("server", r"^sample: listening$", native=False),
        Milestone("missing", r"^sample: waiting for (?P<count>\d+)$", native=False),
        Milestone("connected", r"^sample: all \d+ have met$", native=False),
    )
    consequences = (r"sample: peer \d+ has left",)
    blames_ranks = (r"sample: peer (\d+) has left",)
    frames = (r"/samplelib\.py$",)

    def environment(self, spec: ClusterSpec, task: Task) -> dict[str, str]:
        """Return the address of rank 0, the number of processes and this one's rank."""
        peers, task = self._peers(spec, task)
        return {
            "SAMPLE_ADDRESS": spec.addresses[peers[0]],
            "SAMPLE_SIZE": str(len(peers)),
            "SAMPLE_RANK": str(peers.index(task)),
        }


register(Sample())
