"""What a cluster's workers find imported when they start."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from processes import eventually

from mwmagic import Cluster, ClusterError, NotInstalled
from mwmagic.words.run import remarks

FILES = {
    "torch": "",  # the framework, which is not needed here
    "slow_one": "import os\nPID, SIZE = os.getpid(), os.environ.get('SLOW_ONE_SIZE')\n",
    "slow_one_settings": "import slow_one\n",
    "drawing_one": "import os\nBACKEND = os.environ.get('MPLBACKEND')\n",
    "settled_one": "import json, os\nfrom pathlib import Path\n"
    "from mwmagic.agent.fork_server.imports import KERAS_DEFAULTS\n"
    "file = Path.home() / '.keras' / 'keras.json'\nfile.parent.mkdir(exist_ok=True)\n"
    "settings = {**KERAS_DEFAULTS, 'floatx': os.environ['FLOATX']}\n"
    "file.exists() or file.write_text(json.dumps(settings, indent=4))\n",
    "thread_one": "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n",
    "exit_one": "import sys\nsys.exit('no')\n",
    "variable_one": "import os\nos.environ['SET_BY_AN_IMPORT'] = '1'\n",
    "file_one": "import os\nOPEN = open(os.devnull)\n",
    "print_one": "print('printed by an import', flush=True)\n",
    "long_one/__init__": "import time\ntime.sleep(0.1)\n",
    "long_one/part": "import time, slow_one_settings\ntime.sleep(0.5)\n",
}
"""Modules that are installed, as far as a cluster can see."""

LOOK = """
import os, sys
print("slow_one" in sys.modules, "helper" in sys.modules)
import slow_one
print(slow_one.PID == os.getpid())
"""

ALL = """
import sys
known = {*sys.modules}
import builtins, json, keras, tensorflow as tf
there = [one for one in ("jax", "matplotlib", "pandas", "sklearn") if one in known]
found = [
    str(tf.keras.wrappers.SKLearnClassifier.__mro__), str(builtins.__import__),
    sorted(one for one in sys.modules if not one.startswith("mwmagic")),
]
with open(sys.argv[1], "w") as file:
    json.dump([there, found], file)
"""
"""Shows what a plain import of TensorFlow imports, and what a warm process has imported before."""


LEFT = "--preload names modules that each worker has to import itself:"


@pytest.fixture
def declared(tmp_path, monkeypatch, nothing_survives):
    """Declare a cluster with a warm process; return it once that is ready."""
    installed, folder = tmp_path / "lib" / "site-packages", tmp_path / "work"
    installed.mkdir(parents=True)
    folder.mkdir()
    for name, code in FILES.items():
        (installed / f"{name}.py").parent.mkdir(exist_ok=True)
        (installed / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(installed)
    monkeypatch.setenv("PYTHONPATH", str(installed), prepend=os.pathsep)
    monkeypatch.chdir(folder)

    def declare(**options):
        cluster = Cluster(2, framework="torch", **options)
        eventually(lambda: cluster.machines[0].warm.state == "ready", "a warm process")
        return cluster

    return declare


def printed(cluster, code, **options):
    run = cluster.run("main.py", source=code, **options)
    run.wait()
    return [run.logs(task).decode() for task in cluster.tasks]


@pytest.mark.slow
def test_nothing_is_preloaded_that_is_not_named(declared, tmp_path):
    (tmp_path / "work" / "helper.py").write_text("import slow_one_settings\n")
    with declared() as cluster:
        for _ in range(2):
            assert printed(cluster, LOOK + "import helper") == ["False False\nTrue\n"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("code", ["import long_one.part", "import helper"])
def test_a_run_that_imports_for_long_names_the_option(declared, tmp_path, code):
    (tmp_path / "work" / "helper.py").write_text("def f():\n    import long_one.part\nf()\n")
    with declared(preload=("slow_one",)) as cluster:
        printed(cluster, "import slow_one, json, file_one")
        assert remarks(cluster.latest.status()) == []
        printed(cluster, code)
        [told] = remarks(cluster.latest.status())
        assert re.fullmatch(
            r"worker:[01] spent 0\.[67] s on imports; declare the cluster with "
            r"--preload slow_one,long_one\.part, and its workers start with these imported\.",
            told,
        )
    with declared(preload=("slow_one", "long_one.part")) as cluster:
        printed(cluster, code)
        assert remarks(cluster.latest.status()) == []


@pytest.mark.slow
def test_a_module_keeps_no_trace_of_being_timed(declared):
    code = "import long_one as one, sys\nprint(type(one.__loader__), type(one.__spec__.loader))"
    with declared() as cluster:
        loader = "<class '_frozen_importlib_external.SourceFileLoader'>"
        assert printed(cluster, code) == [f"{loader} {loader}\n"] * 2


@pytest.mark.slow
def test_a_package_that_is_upgraded_between_runs_is_the_new_one(declared, tmp_path):
    code = "import slow_one\nprint(hasattr(slow_one, 'NEW'))"
    with declared(preload=("slow_one",)) as cluster:
        assert printed(cluster, code) == ["False\n"] * 2
        assert cluster.latest.status().tasks["worker:0"].warm
        (tmp_path / "new.py").write_text("NEW = True\n")
        (tmp_path / "new.py").rename(tmp_path / "lib" / "site-packages" / "slow_one.py")
        (tmp_path / "lib" / "site-packages" / "slow_one-2.dist-info").mkdir()
        assert printed(cluster, code) == ["True\n"] * 2
        assert not cluster.latest.status().tasks["worker:0"].warm
        eventually(lambda: cluster.machines[0].warm.state == "ready", "another warm process")
        assert printed(cluster, code) == ["True\n"] * 2
        assert cluster.latest.status().tasks["worker:0"].warm


@pytest.mark.slow
@pytest.mark.parametrize("named", [("slow_one",), ("exit_one", "slow_one")])
def test_what_is_named_is_imported_for_programs_and_live_cells(declared, named):
    with declared(preload=named) as cluster:
        assert printed(cluster, LOOK) == ["True False\nFalse\n"] * 2
        said = [f"{LEFT} exit_one: SystemExit: no."] if "exit_one" in named else []
        assert remarks(cluster.latest.status()) == said
        live = cluster.live()
        found = live.run("'slow_one' in __import__('sys').modules").values()
        assert [answer.value["text/plain"] for answer in found] == ["True", "True"]


@pytest.mark.slow
def test_live_sessions_stay_warm_with_a_package_that_draws(declared):
    with declared(preload=("drawing_one",)) as cluster:
        for _ in range(2):
            with cluster.live() as live:
                assert live.run("1")["worker:0"].value == {"text/plain": "1"}
                status = live.process.status()
                assert remarks(status) == []
                assert status.tasks["worker:0"].warm


@pytest.mark.slow
@pytest.mark.parametrize("bad", ["thread_one", "print_one", "variable_one", "file_one"])
def test_a_module_of_which_a_fork_would_lose_something_is_left_out(declared, bad):
    with declared(preload=(bad, "slow_one")) as cluster:
        assert printed(cluster, LOOK) == ["True False\nFalse\n"] * 2
        [said] = remarks(cluster.latest.status())
        assert said.startswith(f"{LEFT} {bad}: its import ")
        code = f"import sys, threading\nprint('{bad}' in sys.modules)\nimport {bad}\n"
        code += "import os\nprint(threading.active_count(), 'SET_BY_AN_IMPORT' in os.environ)"
        more = "printed by an import\n" if bad == "print_one" else ""
        count = 2 if bad == "thread_one" else 1
        expected = f"False\n{more}{count} {bad == 'variable_one'}\n"
        assert printed(cluster, code + "\nos._exit(0)") == [expected] * 2
        assert remarks(cluster.latest.status()) == [], "it is reported once"


ANOTHER = (
    "workers start cold: the warm process did its imports with another value of SLOW_ONE_SIZE; "
)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["given", "set"])
def test_a_variable_that_an_import_read_starts_one_run_cold(declared, how):
    code = "import os, sys\nos.environ['SLOW_ONE_SIZE'] = '3'\n" if how == "set" else "import sys\n"
    code += "there = 'slow_one' in sys.modules\nimport slow_one\nprint(there, slow_one.SIZE)"
    env = {"SLOW_ONE_SIZE": "3"} if how == "given" else {}
    with declared(preload=("slow_one",)) as cluster:
        first = cluster.machines[0].warm.pid
        assert printed(cluster, code, env=env) == ["False 3\n"] * 2
        assert remarks(cluster.latest.status()) == [
            f"{ANOTHER}the next run of this program is warm."
        ]
        eventually(lambda: cluster.machines[0].warm.pid not in (None, first), "another one")
        assert printed(cluster, code, env=env) == ["True 3\n"] * 2
        assert remarks(cluster.latest.status()) == []
        assert printed(cluster, LOOK) == ["False False\nTrue\n"] * 2


@pytest.mark.slow
def test_what_may_set_one_starts_each_run_cold(declared):
    code = "import os\nfor name in ['SLOW_ONE_SIZE']:\n    os.environ[name] = '3'\n"
    code += "import slow_one\nprint(slow_one.SIZE)"
    with declared(preload=("slow_one",)) as cluster:
        for _ in range(2):
            assert printed(cluster, code) == ["3\n"] * 2
            [said] = remarks(cluster.latest.status())
            assert said.startswith("workers start cold: main.py:3 may set variables")


@pytest.mark.slow
def test_a_library_that_is_edited_is_the_new_one(declared, tmp_path):
    code = "import slow_one\nprint(hasattr(slow_one, 'NEW'))"
    with declared(preload=("slow_one",)) as cluster:
        assert printed(cluster, code) == ["False\n"] * 2
        file = tmp_path / "lib" / "site-packages" / "slow_one.py"
        file.write_text("NEW = True\n")
        assert printed(cluster, code) == ["True\n"] * 2
        [said] = remarks(cluster.latest.status())
        assert said.startswith(f"workers start cold: {file} is not as it was read")
        eventually(lambda: cluster.machines[0].warm.state == "ready", "another one")
        assert printed(cluster, code) == ["True\n"] * 2
        assert cluster.latest.status().tasks["worker:0"].warm


@pytest.mark.slow
@pytest.mark.parametrize(("there", "floatx"), [("", "float32"), ("", "float16"), ("{}", "float32")])
def test_settings_that_kerass_own_import_writes_are_no_change(
    declared, tmp_path, monkeypatch, there, floatx
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FLOATX", floatx)
    file = tmp_path / ".keras" / "keras.json"
    file.parent.mkdir()
    if there:
        file.write_text(there)
    with declared(preload=("settled_one",)) as cluster:
        assert printed(cluster, "print(1)") == ["1\n"] * 2
        same = floatx == "float32"
        assert cluster.latest.status().tasks["worker:0"].warm == same, "the others are a user's"
        assert file.read_text() == there or floatx in file.read_text()
        if same:
            file.write_text('{"floatx": "float64"}')
            assert printed(cluster, "print(2)") == ["2\n"] * 2
            [said] = remarks(cluster.latest.status())
            assert said.startswith(f"workers start cold: {file} is not as it was read")


@pytest.mark.slow
def test_a_module_beside_the_program_is_the_programs(declared, tmp_path):
    (tmp_path / "work" / "slow_one.py").write_text("OWN = True\n")
    with declared(preload=("slow_one",)) as cluster:
        assert printed(cluster, "import slow_one\nprint(slow_one.OWN)") == ["True\n"] * 2
        [said] = remarks(cluster.latest.status())
        assert "the warm process has imported (slow_one)" in said
        assert cluster.machines[0].warm.state == "ready"


def test_what_cannot_be_imported_is_refused(declared, monkeypatch):
    with pytest.raises(NotInstalled, match="no_such_one is not installed here"):
        Cluster(2, preload=("slow_one", "no_such_one.part"))
    monkeypatch.setitem(sys.modules, "made_one", ModuleType("made_one"))
    with pytest.raises(NotInstalled, match="made_one is not installed here"):
        Cluster(2, preload=("made_one",))
    for wrong in ("a b", "1a", "", "a..b", "a;b"):
        with pytest.raises(ClusterError, match="preload"):
            Cluster(2, preload=(wrong,))


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_warm_process_has_imported_all_that_a_plain_import_does(cluster):
    found = {}
    for warm in (True, False):
        one = cluster(1, warm=warm, preload=())
        if warm:
            eventually(lambda one=one: one.machines[0].warm.state == "ready", "a warm process")
        printed(one, ALL, args=("found.json",))
        assert one.latest.status().tasks["worker:0"].warm is warm
        there, found[warm] = json.loads(Path("found.json").read_bytes())
        assert there == (["jax", "matplotlib", "pandas", "sklearn"] if warm else [])
    assert found[True] == found[False]
