"""Virtual CPU devices, so that a guide's "8 GPUs" run on a laptop."""

from __future__ import annotations

from mwmagic.repairs.imports import after_import

TYPE_CHECKING = False  # a worker starts without `typing`
if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["install"]


def install(count: int) -> None:
    """Give TensorFlow `count` logical CPUs as soon as user code imports it.

    TensorFlow has no environment variable for that. JAX has ``JAX_NUM_CPU_DEVICES``,
    which the supervisor sets.
    """
    if count > 1:
        after_import("tensorflow", lambda module: _split(module, count))


def _split(tensorflow: ModuleType, count: int) -> None:
    config = tensorflow.config
    cpu = config.list_physical_devices("CPU")[0]
    logical = [config.LogicalDeviceConfiguration() for _ in range(count)]
    config.set_logical_device_configuration(cpu, logical)
