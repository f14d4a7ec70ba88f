"""The Ray engine in a Python that has no Ray, and what can be said of it without one."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from mwmagic import Cluster
from mwmagic.engines import engine_for
from mwmagic.errors import ClusterError
from mwmagic.model.options import ClusterOptions


@pytest.fixture
def there(monkeypatch):
    """Let the engine find a Ray, which it does not start before it allocates."""
    monkeypatch.setattr("mwmagic.engines.ray.find_spec", lambda _: True)


def declared(**options):
    return engine_for(ClusterOptions(directory="/", engine="ray", **options))


@pytest.mark.skipif(find_spec("ray") is not None, reason="this Python has Ray")
def test_a_python_without_ray_is_told_how_to_get_it():
    with pytest.raises(ClusterError) as caught:
        declared()
    assert f"needs Ray, which {sys.executable} does not have" in str(caught.value)
    assert 'pip install "mwmagic[ray]"' in str(caught.value)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is not None, reason="this Python has Ray")
def test_a_cluster_without_ray_is_refused(tmp_path, monkeypatch, own_sockets):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ClusterError, match="the engine ray needs Ray"):
        Cluster(2, engine="ray", address="auto")


@pytest.mark.parametrize("word", ["CPU", "CPU=many", "=1", "GPU=-1", "CPU=nan", "CPU=inf"])
def test_a_word_that_is_no_resource_is_refused(word, there):
    with pytest.raises(ClusterError, match=r"is not a resource of Ray; write .* CPU=4"):
        declared(scheduler=[word])


def test_a_task_needs_something(there):
    with pytest.raises(ClusterError, match="each task needs a resource"):
        declared(scheduler=["CPU=0"])


def test_the_bridge_needs_nothing_of_this_package():
    code = "import sys, runpy; runpy.run_path(sys.argv[1]); print('mwmagic' in sys.modules)"
    path = find_spec("mwmagic.engines.ray.driver").origin
    words = [sys.executable, "-I", "-S", "-c", code, path]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
