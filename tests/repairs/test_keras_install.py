"""How the repairs get into a process, or stay out of it."""

import ast
import json
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from keras_comparison import keras_version
from processes import printed

from mwmagic import repairs as package
from mwmagic.errors import MwmagicError, NotInstalled
from mwmagic.repairs import repair
from mwmagic.repairs.repair import FIRST_COVERED

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "use" / "keras.md"
REPAIRS = DOCS / "internals" / "repairs.md"


def run(code, **env):
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", **env}
    return printed(code, env=env)


def test_an_unknown_mode_lists_the_modes():
    with pytest.raises(
        MwmagicError, match="unknown Keras mode 'new'; the modes are auto, plain, legacy"
    ):
        package.install("new", print)


def test_legacy_chooses_keras_2(monkeypatch):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")  # what is set then is taken back
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    package.install("legacy", print)
    assert os.environ["TF_USE_LEGACY_KERAS"] == "1"


def test_legacy_without_tf_keras_says_what_to_install(monkeypatch):
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(NotInstalled, match="pip install tf-keras"):
        package.install("legacy", print)
    assert "TF_USE_LEGACY_KERAS" not in os.environ


def test_plain_waits_for_nothing():
    before = list(sys.meta_path)
    package.install("plain", print)
    assert sys.meta_path == before


@pytest.mark.slow
def test_installing_imports_neither_keras_nor_tensorflow():
    modules = run("import sys, mwmagic.keras; print(*sys.modules)").split()
    assert not {"keras", "tensorflow", "numpy"} & set(modules)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")
def test_keras_on_jax_is_left_alone():
    code = (
        "import mwmagic.keras, keras, sys;"
        "print('mwmagic.repairs.repairs' in sys.modules, keras.backend.backend())"
    )
    assert run(code, KERAS_BACKEND="jax").split() == ["False", "jax"]


def links():
    """Yield each repair's feature and link, read without importing TensorFlow."""
    for path in Path(package.__file__).parent.glob("*.py"):
        module = ast.parse(path.read_text())
        names = {
            node.targets[0].id: node.value.value
            for node in module.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        }
        for call in ast.walk(module):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Repair":
                feature, link = call.args[:2]
                yield feature.value, names[link.id] if isinstance(link, ast.Name) else link.value


def test_each_repair_has_its_link():
    thread, line = r"(keras-team|tensorflow)/[a-z-]+#\d+", r"[a-z_/]+\.py#L\d+"
    found = dict(links())
    assert len(found) > 20
    assert not [name for name, at in found.items() if not re.fullmatch(f"{thread}|{line}", at)]


def test_the_repairs_name_no_file_of_keras():
    """Releases move them: `parts` finds what is needed by what it is."""
    paths = Path(package.__file__).parent.glob("*.py")
    assert [
        path.name
        for path in paths
        if re.search(r"import.*keras\.src|from keras\.src", path.read_text())
    ] == []


def anchor(heading):
    """Return what a link to a heading ends with, as GitHub makes it."""
    return "#" + re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-")


def test_the_first_page_says_that_it_works_and_what_is_refused():
    text = PAGE.read_text(encoding="utf-8")
    first = text.partition("## What works")[0]
    refused = ("strategy.scope()", "`OrbaxCheckpoint`", f"a Keras before 3.{FIRST_COVERED}")
    assert not [one for one in ("Keras 3 just works", *refused) if one not in first]
    headings = {anchor(one) for one in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    linked = re.findall(r"\]\((#[^)]*)\)", first)
    assert "#what-is-refused-and-what-gets-a-warning" in linked
    assert set(linked) <= headings


INSTALLED_FIRST = """
import mwmagic.keras
import tensorflow as tf
tf.keras.Model
from mwmagic.repairs.parts import TensorFlowTrainer as Trainer
print(Trainer.evaluate.__module__, Trainer._make_function.__code__.co_filename)
repaired = Trainer._make_function
from mwmagic import repairs as package
package.install("auto", print)
print(Trainer._make_function is repaired)
"""


@pytest.mark.slow
@pytest.mark.tensorflow
def test_keras_is_repaired_once_as_it_is_imported():
    evaluate, steps, once = run(INSTALLED_FIRST).split()
    assert evaluate.startswith("keras.")
    assert "/mwmagic/repairs/" in steps
    assert once == "True"


IMPORTED_FIRST = """
import json, linecache, os, sys, types
import keras
from mwmagic import repairs as package
from mwmagic.repairs import callbacks, repair, repairs
from mwmagic.repairs.parts import TensorFlowTrainer, TFEpochIterator

said = {"idle": [r.feature for r in repairs.REPAIRS if r.state is not repair.State.DEFECTIVE]}
said["table"] = [
    [r.feature, r.apply.__doc__.partition("\\n")[0], r.link, r.url] for r in repairs.REPAIRS
]
if keras.__version__ == repair.READ:
    source = os.path.dirname(keras.src.__file__)
    at = [r.link.split("#L") for r in repairs.REPAIRS if "#L" in r.link]
    said["lines"] = [linecache.getline(os.path.join(source, file), int(n)) for file, n in at]

pid = os.fork()
if not pid:
    package.install("auto", print)
    module = TFEpochIterator.__init__.__globals__["__name__"]
    os._exit(not module.startswith("mwmagic."))
said["forked"] = os.waitpid(pid, 0)[1]

several = lambda strategy: strategy == "several"
repair.divides_batches = callbacks.spans_workers = several
user = types.SimpleNamespace(distribute_strategy="several")
fit, own = TensorFlowTrainer.fit, repairs
for case in ("3.3.3", "3.12.0", "3.99.0", "3.99.0 made otherwise"):
    lines = []
    keras.__version__ = case.partition(" ")[0]
    sys.modules["mwmagic.repairs.repairs"] = own if case == keras.__version__ else None
    package.__dict__.pop("repairs", None)
    package.install("auto", lines.append)
    for _ in range(2):
        try:
            TensorFlowTrainer.fit(user)
        except Exception as error:
            lines.append(f"{type(error).__name__}: {error}")
    TensorFlowTrainer.fit = fit
    said[case] = lines

if hasattr(keras.callbacks, "OrbaxCheckpoint"):
    checkpoint = object.__new__(keras.callbacks.OrbaxCheckpoint)
    try:
        checkpoint.set_model(types.SimpleNamespace(distribute_strategy="several"))
    except ValueError as error:
        said["orbax"] = str(error)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def imported_first():
    return json.loads(run(IMPORTED_FIRST))


@pytest.mark.slow
@pytest.mark.tensorflow
def test_every_defect_is_found(imported_first):
    """Fails on the day Keras repairs one, or moves it: then look whether its repair goes."""
    gone = {"activity regularizers", "OrbaxCheckpoint (refused)"}
    if keras_version() >= "3.16":  # of two digits each, up to 3.99
        gone |= {"shuffled arrays", "a shuffled PyDataset"}
    assert set(imported_first["idle"]) <= gone


@pytest.mark.slow
@pytest.mark.tensorflow
def test_links_into_the_source_lead_to_functions(imported_first):
    lines = imported_first.get("lines", [])  # of another release, they are elsewhere
    assert [line for line in lines if not line.lstrip().startswith("def ")] == []


@pytest.mark.slow
@pytest.mark.tensorflow
def test_the_documentation_lists_the_repairs(imported_first):
    """MWMAGIC_WRITE_DOCS=1 writes them again."""
    text = REPAIRS.read_text()
    start, end = "<!-- repairs -->\n", "<!-- end of repairs -->"
    before, _, rest = text.partition(start)
    found, _, after = rest.partition(end)
    made = "| for | the repair | upstream |\n| --- | --- | --- |\n"
    for feature, what, link, url in imported_first["table"]:
        made += f"| {feature} | {what.rstrip('.')} | [{link}]({url}) |\n"
    if os.environ.get("MWMAGIC_WRITE_DOCS"):
        REPAIRS.write_text(before + start + made + end + after)
    else:
        assert found == made


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_process_forked_after_the_import_is_repaired(imported_first):
    assert imported_first["forked"] == 0


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("version", ["3.3.3", "3.12.0"])
def test_an_older_keras_is_refused(imported_first, version):
    for error in imported_first[version]:
        assert error.startswith(f"KerasRefused: Keras {version} does not work")
        assert "pip install -U keras" in error
        assert "--keras legacy" in error


def test_the_remedy_for_an_older_keras_names_the_python_that_it_needs(monkeypatch):
    assert "Python" not in repair.says_older("3.12.4")
    monkeypatch.setattr(repair, "sys", SimpleNamespace(version_info=(3, 10)))
    assert "pip install -U keras (it needs Python 3.11 or later; it" in repair.says_older("3.12.4")


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_newer_keras_is_announced_as_such(imported_first):
    assert imported_first["3.99.0"][0] == (
        "mwmagic: repaired Keras 3.99.0 for several workers, as docs/use/keras.md describes; "
        "tested up to 3.15, this one is newer; --keras plain turns this off"
    )
    assert sum("repaired" in line for line in imported_first["3.99.0"]) == 1


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_newer_keras_without_what_is_replaced_is_refused(imported_first):
    for error in imported_first["3.99.0 made otherwise"]:
        assert error.startswith("KerasRefused: mwmagic repairs Keras 3.13 to 3.15")
        assert "pip install 'keras<3.16'" in error
        assert "--keras legacy" in error


@pytest.mark.slow
@pytest.mark.tensorflow
def test_orbax_checkpoint_is_refused(imported_first):
    assert "ModelCheckpoint or BackupAndRestore" in imported_first.get(
        "orbax", "ModelCheckpoint or BackupAndRestore: this Keras has none"
    )
