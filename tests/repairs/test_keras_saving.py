"""Files and directories that many processes write at once are always whole."""

import json
import multiprocessing
import os
from importlib.util import find_spec

import pytest
from processes import printed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.tensorflow,
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed"),
]


def write(path, text, kind):
    from mwmagic.repairs.saving import at_once

    for _ in range(50):
        with at_once(path) as temporary:
            if kind == "directory":
                temporary.mkdir()
                (temporary / "a").write_text(text)
                (temporary / "b").write_text(text)
            else:
                temporary.write_text(text)


def start(path, kind):

    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write, args=(path, str(i) * 9000, kind)) for i in (0, 1)]
    for writer in writers:
        writer.start()
    while not path.exists():
        assert any(writer.is_alive() for writer in writers)
    return writers


def test_a_file_that_two_processes_write_is_always_whole(tmp_path):
    path = tmp_path / "model"
    writers = start(path, "file")
    while any(writer.is_alive() for writer in writers):
        assert path.read_text() in {"0" * 9000, "1" * 9000}
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert [name.name for name in tmp_path.iterdir()] == ["model"]


def test_a_directory_that_two_processes_write_is_always_there(tmp_path):
    path = tmp_path / "model"
    writers = start(path, "directory")
    while any(writer.is_alive() for writer in writers):
        assert path.is_dir()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert [name.name for name in tmp_path.iterdir()] == ["model"]
    assert {name.read_text() for name in path.iterdir()} in ({"0" * 9000}, {"1" * 9000})


def test_directories_replace_each_other_where_they_cannot_be_exchanged(tmp_path, monkeypatch):
    from mwmagic.repairs import saving

    monkeypatch.setattr(saving, "_exchanged", lambda *_: False)
    path = tmp_path / "model"
    writers = start(path, "directory")
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert [name.name for name in tmp_path.iterdir()] == ["model"]
    assert {name.read_text() for name in path.iterdir()} in ({"0" * 9000}, {"1" * 9000})


SAVES = """
import contextlib, sys
import keras
import mwmagic.keras
from mwmagic.repairs import saving

at_once, model = saving.at_once, keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])

@contextlib.contextmanager
def noted(path):
    with at_once(path) as temporary:
        yield temporary
    print(path.name, path.exists() and path != temporary, flush=True)

saving.at_once = noted
for _ in range(2):
    model.save("model.keras")
    model.save("model.h5")
    model.save_weights("model.weights.h5")
    model.export("model", verbose=False)
"""


def test_every_way_to_save_writes_to_a_path_of_its_own(tmp_path):
    """Twice, because Keras's `export` makes another module `tf.saved_model`."""
    config = {
        "cluster": {"worker": ["localhost:1", "localhost:2"]},
        "task": {"type": "worker", "index": 0},
    }
    env = {**os.environ, "TF_CONFIG": json.dumps(config), "CUDA_VISIBLE_DEVICES": ""}
    said = printed(SAVES, env=env, cwd=tmp_path)
    names = ["model.keras", "model.h5", "model.weights.h5", "model"]
    assert said.split("\n") == [f"{name} True" for name in [*names, *names]] + [""]


def test_a_failed_write_leaves_what_was_there(tmp_path):
    from mwmagic.repairs.saving import at_once

    path = tmp_path / "model"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), at_once(path) as temporary:
        (temporary / "missing").write_text("new")
    assert path.read_text() == "old"
    assert [name.name for name in tmp_path.iterdir()] == ["model"]


def test_a_file_does_not_replace_a_directory(tmp_path):
    from mwmagic.repairs.saving import at_once

    (tmp_path / "model").mkdir()
    with pytest.raises(IsADirectoryError), at_once(tmp_path / "model") as temporary:
        temporary.write_text("new")
