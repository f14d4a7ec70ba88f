import importlib
import importlib.util
import inspect
import sys
import threading

import pytest
from processes import printed

from mwmagic.hooks import after_import
from mwmagic.worker.warm import time_imports


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write modules into a directory on the path, and forget them afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before, finders = set(sys.modules), list(sys.meta_path)

    def write(name, body="VALUE = 1\n"):
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(body)
        importlib.invalidate_caches()
        return path

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]
    sys.meta_path[:] = finders


def test_runs_at_once_for_a_module_already_imported():
    seen = []
    after_import("sys", seen.append)
    assert seen == [sys]


def test_runs_after_the_body_and_imports_nothing_itself(package):
    package("mw_late")
    seen = []
    after_import("mw_late", lambda module: seen.append(module.VALUE))
    assert "mw_late" not in sys.modules
    importlib.import_module("mw_late")
    importlib.import_module("mw_late")
    assert seen == [1]


def test_actions_keep_their_order_and_leave_no_finder_behind(package):
    package("mw_order")
    before, seen = list(sys.meta_path), []
    after_import("mw_order", lambda _: seen.append("first"))
    after_import("mw_order", lambda _: seen.append("second"))
    importlib.import_module("mw_order")
    assert seen == ["first", "second"]
    assert sys.meta_path == before


def test_a_submodule_can_be_waited_for(package):
    package("mw_parent.__init__")
    package("mw_parent.child")
    seen = []
    after_import("mw_parent.child", lambda module: seen.append(module.__name__))
    importlib.import_module("mw_parent")
    assert seen == []
    importlib.import_module("mw_parent.child")
    assert seen == ["mw_parent.child"]


def test_the_module_keeps_its_own_loader_and_source(package):
    package("mw_source", "def f():\n    return 1\n")
    after_import("mw_source", lambda _: None)
    spec = importlib.util.find_spec("mw_source")
    assert spec.loader.get_source("mw_source").startswith("def f")
    module = importlib.import_module("mw_source")
    assert type(module.__loader__).__module__ == "_frozen_importlib_external"
    assert module.__spec__.loader is module.__loader__
    assert inspect.getsource(module.f).endswith("return 1\n")


def test_an_action_may_wait_for_another_module(package):
    package("mw_one")
    package("mw_two")
    seen = []
    after_import("mw_one", lambda _: after_import("mw_two", lambda m: seen.append(m.__name__)))
    importlib.import_module("mw_one")
    importlib.import_module("mw_two")
    assert seen == ["mw_two"]


def test_it_is_found_beside_a_finder_that_asks_the_others_too(package):
    package("mw_asked")
    seen = []
    after_import("mw_asked", seen.append)
    time_imports("main.py")
    assert seen == [importlib.import_module("mw_asked")]
    after_import("mw_absent", seen.append)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("mw_absent")


def test_an_import_that_fails_is_tried_again(package):
    path = package("mw_broken", "raise ValueError('broken')\n")
    seen = []
    after_import("mw_broken", seen.append)
    with pytest.raises(ValueError, match="broken"):
        importlib.import_module("mw_broken")
    assert seen == []
    path.write_text("FIXED = True\n")
    importlib.invalidate_caches()
    assert importlib.import_module("mw_broken") is seen[0]


def test_what_an_action_raises_comes_out_of_the_import(package):
    package("mw_refused")

    def refuse(module):
        raise RuntimeError(f"{module.__name__} is refused")

    after_import("mw_refused", refuse)
    with pytest.raises(RuntimeError, match="mw_refused is refused"):
        importlib.import_module("mw_refused")


def test_a_missing_module_stays_missing():
    after_import("mw_no_such_module", print)
    with pytest.raises(ModuleNotFoundError, match="mw_no_such_module"):
        importlib.import_module("mw_no_such_module")


def test_many_threads_importing_run_an_action_once(package):
    names = [f"mw_thread_{i}" for i in range(20)]
    seen = []
    for name in names:
        package(name)
        after_import(name, lambda module: seen.append(module.__name__))

    def load():
        for name in names:
            importlib.import_module(name)

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == sorted(names)


def test_importing_it_is_light():
    code = (
        "import sys; before = set(sys.modules); import mwmagic.hooks;"
        "print(*sorted(set(sys.modules) - before))"
    )
    assert not {"asyncio", "IPython", "tensorflow", "keras"} & set(printed(code).split())
