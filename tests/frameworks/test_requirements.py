import importlib.util

import pytest

from mwmagic.errors import NotInstalled
from mwmagic.frameworks import check_installed


def test_what_is_not_installed_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        NotInstalled, match=r'tensorflow is not installed: pip install "mwmagic\[tens'
    ):
        check_installed("import os\nimport tensorflow as tf\n")
    with pytest.raises(NotInstalled, match='pip install "torch"'):
        check_installed("from torch import nn\n")
    check_installed("try:\n    import jax\nexcept ImportError:\n    jax = None\n")
    check_installed("import tensorflow_datasets\n# import torch\n")
