"""Whose code a file is."""

import concurrent.futures
import json
from pathlib import Path

import pytest

import mwmagic
from mwmagic.model.ownership import is_ours, is_users

SCRIPT = "/home/ann/project/main.py"
PACKAGE = Path(mwmagic.__file__).parent
ROOMS = ("agent", "recovery", "repairs", "worker")


@pytest.mark.parametrize(
    "file",
    [
        SCRIPT,
        "main.py",
        "/home/ann/project/package/helper.py",
        "/home/ann/shared/helper.py",
    ],
)
def test_a_module_at_any_other_place_is_the_users(file):
    assert is_users(file, SCRIPT)


@pytest.mark.parametrize(
    "file",
    [
        "",
        "<string>",
        "<frozen importlib._bootstrap>",
        json.__file__,
        concurrent.futures.__file__,
        pytest.__file__,
        "/home/ann/project/.venv/lib/python3.11/site-packages/keras/x.py",
        "/usr/lib/python3/dist-packages/numpy/x.py",
        "/usr/lib/python311.zip/json/decoder.py",
        "/tmp/__autograph_generated_filebcmjy713.py",
        "pandas/_libs/index.pyx",
        str(PACKAGE / "hooks.py"),
        *(str(path) for room in ROOMS for path in (PACKAGE / room).rglob("*.py")),
    ],
)
def test_what_is_installed_or_generated_is_not(file):
    assert not is_users(file, SCRIPT)


def test_a_project_may_lie_in_a_folder_like_that_of_a_library():
    script = "/data/lib/python3-course/main.py"
    assert is_users(script, script)
    assert is_users("/data/lib/python3-course/helper.py", script)
    assert not is_users("/data/lib/python3-course/venv/lib/python3.11/json/decoder.py", script)


def test_what_is_mwmagics_own():
    assert is_ours(str(PACKAGE / "repairs/fit.py"))
    assert is_ours(str(PACKAGE / "agent/wing/module.py"))
    assert is_ours("/opt/site-packages/mwmagic/worker/bootstrap.py")
    assert is_ours(str(PACKAGE / "keras.py"))
    assert is_ours(f"/home/ann/.cache/mwmagic/code-{'0' * 64}/mwmagic/agent/system.py")
    assert is_ours("/home/ann/.cache/mwmagic/new-a_b1c2d3/mwmagic/worker/task.py")


@pytest.mark.parametrize("folder", ["", "notebooks/", "worker/", "model/"])
def test_a_project_may_lie_in_a_folder_of_mwmagics_name(folder):
    file = f"/home/ann/mwmagic/{folder}keras.py"
    assert not is_ours(file)
    assert is_users(file, file)
