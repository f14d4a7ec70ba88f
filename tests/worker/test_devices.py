"""Virtual devices, on a framework that only notes what it is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mwmagic

FRAMEWORK = """
class config:
    LogicalDeviceConfiguration = object
    def list_physical_devices(kind):
        return [f"the {kind}"]
    def set_logical_device_configuration(device, logical):
        print(device, len(logical))
"""


@pytest.mark.parametrize(
    ("count", "said"), [(0, ""), (1, ""), (2, "the CPU 2\n"), (8, "the CPU 8\n")]
)
def test_tensorflow_shows_so_many_devices_once_it_is_imported(tmp_path, count, said):
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text(FRAMEWORK)
    code = f"""
import sys
sys.path[:1] = [{str(tmp_path)!r}, {str(Path(mwmagic.__file__).parents[1])!r}]
from mwmagic.worker.preparation import split_devices
split_devices({count})
assert "tensorflow" not in sys.modules
import tensorflow
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.stdout, done.stderr) == (said, "")
