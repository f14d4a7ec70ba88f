"""What TensorFlow and JAX share: absl's C++ logging, XLA, gRPC and the coordination service."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .framework import Framework

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Xla"]


class Xla(Framework):
    """The common part of the frameworks that are built on XLA."""

    early = ("ABSL_", "GRPC_", "XLA_")
    late = ("XLA_FLAGS",)

    notices = (
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
    native_failures = (
        r"StartAbort",
        r"unhealthy",
        r"\b(?:UNAVAILABLE|INTERNAL|ABORTED|FAILED_PRECONDITION|UNKNOWN):",
    )

    consequences = (
        *Framework.consequences,
        r"failed to connect to all addresses",
        r"stopped sending heartbeats",
        r"CoordinationService/",
        r"Error reported from /job:",
        r"\bUNAVAILABLE: ",
    )
    mismatches = (
        r"tried to connect with a different incarnation",
        r"expects a different device incarnation",
    )
    port_taken = (r"Could not start gRPC server", r"Failed to add port to server")  # add_port.cc
    blames = (
        r"(?:remote target |Error reported from |^)/job:(\w+)/(?:replica:\d+/)?task:(\d+)",
    )
    blames_leader = (r"CoordinationService/",)
