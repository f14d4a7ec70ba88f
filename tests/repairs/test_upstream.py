"""The patches for Keras itself apply to the Keras that they were made for."""

import importlib.metadata
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from keras_comparison import keras_version

FOLDER = Path(__file__).parents[2] / "upstream"
PATCHES = sorted(FOLDER.glob("*.patch"))
VERSION = re.search(r"Keras (3\.\d+\.\d+)", (FOLDER / "README.md").read_text())[1]


@pytest.mark.skipif(keras_version() != VERSION, reason=f"they are for Keras {VERSION}")
def test_the_patches_apply_one_after_another(tmp_path):
    installed = Path(importlib.metadata.distribution("keras").locate_file(""))
    for patch in PATCHES:
        for name in re.findall(r"^--- a/(\S+)$", patch.read_text(), re.MULTILINE):
            if not (tmp_path / name).exists():
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(installed / name, tmp_path / name)
        subprocess.run(["git", "apply", str(patch)], cwd=tmp_path, check=True)


def test_the_page_names_every_patch():
    page = (FOLDER / "README.md").read_text()
    assert [patch.name for patch in PATCHES if patch.name not in page] == []
