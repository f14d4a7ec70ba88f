"""What TensorFlow and JAX share: absl's C++ logging, XLA, gRPC and the coordination service."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .framework import Framework

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Xla"]


class Xla(Framework):
    """The common base of the frameworks that are built on XLA."""

    early: tuple[str, ...] = ("ABSL_", "GRPC_", "XLA_")
    late: tuple[str, ...] = ("XLA_FLAGS",)

    notices: tuple[str, ...] = (
        *Framework.notices,
        r"WARNING: All log messages before absl::InitializeLog\(\) is called",
    )
    native_notices: ClassVar[Mapping[str, str]] = {
        "cuda_platform.cc": r"failed call to cuInit: "
        r".*(?:\(303\)|NO_DEVICE|no CUDA-capable device)",
        "cuda_driver.cc": r"failed call to cuInit: .*(?:\(303\)|NO_DEVICE|no CUDA-capable device)",
        "cuda_dnn.cc": r"Unable to register cuDNN factory",
        "cuda_fft.cc": r"Unable to register cuFFT factory",
        "cuda_blas.cc": r"Unable to register cuBLAS factory",
        "computation_placer.cc": r"computation placer already registered",
    }
    native_failures: tuple[str, ...] = (
        r"StartAbort",
        r"unhealthy",
        r"\b(?:UNAVAILABLE|INTERNAL|ABORTED|FAILED_PRECONDITION|UNKNOWN):",
    )

    consequences: tuple[str, ...] = (
        *Framework.consequences,
        r"failed to connect to all addresses",
        r"stopped sending heartbeats",
        r"CoordinationService/",
        r"Error reported from /job:",
        r"\bUNAVAILABLE: ",
    )
    mismatches: tuple[str, ...] = (
        r"tried to connect with a different incarnation",
        r"expects a different device incarnation",
        r"Heartbeat: Incarnation ID mismatch",
    )
    port_taken: tuple[str, ...] = (
        r"Could not start gRPC server",
        r"Failed to add port to server",
    )  # add_port.cc
    blames: tuple[str, ...] = (
        r"(?:remote target |Error reported from |^)/job:(\w+)/(?:replica:\d+/)?task:(\d+)",
    )
    blames_leader: tuple[str, ...] = (r"CoordinationService/",)
