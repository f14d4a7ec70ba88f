"""Downloads of several workers to one cache."""

from __future__ import annotations

import os
import subprocess
import sys
from urllib.error import URLError
from urllib.request import urlretrieve

import pytest

from mwmagic.worker.preparation import whole


def test_a_download_comes_to_its_place_as_a_whole(tmp_path):
    (tmp_path / "origin").write_bytes(b"x" * 100_000)
    place, seen = tmp_path / "place", []
    filename, _ = whole(urlretrieve)(
        (tmp_path / "origin").as_uri(), str(place), lambda *_: seen.append(place.exists())
    )
    assert (filename, place.read_bytes()) == (str(place), b"x" * 100_000)
    assert len(seen) > 1
    assert not any(seen)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["origin", "place"]


def test_a_download_that_fails_leaves_what_was_there(tmp_path):
    (tmp_path / "place").write_text("another worker's")
    with pytest.raises(URLError):
        whole(urlretrieve)((tmp_path / "missing").as_uri(), str(tmp_path / "place"))
    assert [path.read_text() for path in tmp_path.iterdir()] == ["another worker's"]


KERAS = """
from mwmagic.worker import preparation
preparation.prepare_child()
import tf_keras
from keras.src.utils import file_utils
from tf_keras.src.utils import data_utils
assert file_utils.urlretrieve.__code__ is data_utils.urlretrieve.__code__
from urllib.request import urlretrieve
assert file_utils.urlretrieve.__wrapped__ is urlretrieve
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_both_editions_of_keras_download_so():
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, "-c", KERAS], env=env, check=True)
