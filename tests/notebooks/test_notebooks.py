"""Every notebook, executed; and what they have in common."""

from __future__ import annotations

import re

import nbformat
import pytest
from executing import NBVAL, NOTEBOOKS, SHARING, execute
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
CHECKED = "nbval-check-output"
ELSEWHERE = (*SHARING, "torch_ddp")
"""Notebooks that tests of their own execute."""

BADGE = (
    "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
    "(https://colab.research.google.com/#upload=true) In Colab, upload this notebook."
)
INSTALL = """# In Colab, this installs mwmagic: the wheel that you uploaded, or else the release.
import sys
from glob import glob

if "google.colab" in sys.modules:
    wanted = max(glob("mwmagic-*.whl"), default="mwmagic")
    %pip install --quiet {wanted}
    print("installed", wanted)"""
CRASH = [
    "%load_ext mwmagic",
    "%mw_cluster 2 --no-warm",
    """%%mw_worker
import json, os, time
def train():
    raise ValueError("the learning rate must be positive")
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
    train()
time.sleep(600)
""",
    "%mw_wait",
    "print('never')",
]
CAUSE = (
    "WorkerFailed: run 1 failed: worker:1 exited with code 1: "
    "ValueError: the learning rate must be positive"
)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ELSEWHERE])
def test_nbval_passes(name, tmp_path, nothing_survives):
    path = tmp_path / f"{name}.ipynb"
    path.write_bytes((NOTEBOOKS / path.name).read_bytes())
    said, succeeded = execute(tmp_path, *NBVAL, path.name)
    assert succeeded, said


def read(name):
    """Return a notebook's cells: markdown's sources, then code cells."""
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    kinds = ("markdown", "code")
    return [[cell for cell in notebook.cells if cell.cell_type == kind] for kind in kinds]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_opens_with_a_question_and_ends_with_what_to_try_next(name):
    texts, codes = read(name)
    assert re.match(r"# .*\?\n", texts[0].source)
    assert "%mw_stop --cluster" in codes[-1].source, "nothing is left running"
    assert texts[-1].source.startswith("## What to try next\n\n- ")


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_opens_in_colab_and_installs_what_it_needs_there(name):
    texts, codes = read(name)
    assert texts[0].source.splitlines()[1:4] == ["", BADGE, ""], "below the title"
    assert [cell.source for cell in codes[:2]] == [INSTALL, "%load_ext mwmagic"]


SHOWN = ("%mw_runs", "%mw_compare", "%mw_sweep units", "%mw_sweep --show")
"""What the lesson on experiments shows also where it is only read."""


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_stores_results_that_need_no_kernel_and_name_no_machine(name):
    _, codes = read(name)
    for cell in codes:
        if CHECKED in cell.metadata.get("tags", ()):
            assert cell.outputs, f"nbval compares nothing: {cell.source}"
        assert "NBVAL" not in cell.source
        for output in cell.outputs:
            assert not {one for one in output.get("data", ()) if "widget" in one}, cell.source
            expected = "raises-exception" in cell.metadata.get("tags", ())
            assert output.output_type != "error" or expected, cell.source
            assert "/tmp/" not in str(output), cell.source
        if name == "experiments" and cell.source.startswith(SHOWN):
            [output] = cell.outputs
            assert set(output.data) == {"text/plain", "text/html"}


@pytest.mark.parametrize("name", NAMES)
def test_run_all_stops_at_no_prompt_and_every_kill_is_seen_on_a_dashboard(name):
    asks = ("%mw_debug", "breakpoint(", "input(")
    for cell in read(name)[1]:
        lines = cell.source.splitlines()
        assert not [line for line in lines if line.startswith(asks)]
        if "cluster.run(" in cell.source and "%mw_kill" in cell.source:
            assert "%mw_show" in lines, cell.source


def test_the_lesson_on_experiments_shows_its_table_and_comparison_without_a_kernel():
    [table, comparison, sweep, more] = [
        re.sub(r"<script.*?</script>", "", cell.outputs[0].data["text/html"], flags=re.DOTALL)
        for cell in read("experiments")[1]
        if cell.source.startswith(SHOWN)
    ]
    assert ">val_loss</th>" in table
    assert table.count('scope="row"') == 3
    assert re.search(
        r"<b>run 3 is best by val_loss \([\d.]+\); it differs from run 2 in ", comparison
    )
    assert "data:image/svg+xml;base64," in comparison
    assert "sweep 1, 4 trials: 4 finished" in sweep
    assert "sweep 1, 6 trials: 6 finished" in more
    assert more.count('scope="row"') == 6
    assert "best: trial" in more


def test_lessons_load_the_data_alike_and_repeat_no_long_module():
    modules = {}
    for name in NAMES:
        for cell in read(name)[1]:
            if cell.source.startswith("%%writefile"):
                modules.setdefault(cell.source, []).append(name)
    for module, names in modules.items():
        assert len(names) == 1 or len(module.splitlines()) <= 30, names
    shared = [module for module, names in modules.items() if names != ["from_the_tutorial"]]
    assert len([module for module in shared if "def load_data" in module]) == 2, "digits and MNIST"


@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_shows_its_runs_without_a_kernel_and_stays_small(name):
    assert (NOTEBOOKS / f"{name}.ipynb").stat().st_size <= 100_000
    outputs = [output for cell in read(name)[1] for output in cell.outputs]
    pages = [one.data["text/html"] for one in outputs if "text/html" in one.get("data", ())]
    assert not [page for page in pages if "<script" in page]
    if name != "live_cells":
        assert [page for page in pages if "mwmagic-static" in page], "no dashboard is stored"


NUMBERED = re.compile(
    r"^%mw_(?:(?:rerun|compare|show|note|tag|export \w+) \d|sweep .*--(?:show|extend|resume) \d)",
    re.MULTILINE,
)
"""A run or sweep by its number, which is another one when the lesson is executed again."""


@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_can_be_executed_again_where_it_was(name):
    codes = read(name)[1]
    assert not [cell.source for cell in codes if NUMBERED.search(cell.source)]


@pytest.mark.parametrize("name", NAMES)
def test_a_lesson_shows_what_holds_and_asserts_nothing(name):
    for cell in read(name)[1]:
        assert not re.search(r"^\s*assert ", cell.source, re.MULTILINE), cell.source


def test_lines_that_gloo_prints_reach_nothing_that_is_compared():
    for cell in read("keras_distribution_jax")[1]:
        if CHECKED in cell.metadata.get("tags", ()):
            assert "%mw_logs" not in cell.source


@pytest.mark.slow
@pytest.mark.tensorflow
def test_the_demonstration_prints_each_workers_last_metrics(tmp_path):
    said, succeeded = execute(tmp_path, "mwmagic.cli", "demo")
    assert succeeded, said
    both = [line.split() for line in said.splitlines() if line.startswith("  worker:")]
    assert [words[0] for words in both] == ["worker:0", "worker:1"]
    assert both[0][1:] == both[1][1:], "both report the same metrics"
    assert "jupyter lab mwmagic-demo/quickstart.ipynb" in said
    assert "0000" not in said, "no notices of TensorFlow"


@pytest.fixture
def crashing(tmp_path):
    """A notebook whose second worker fails."""
    cells = [nbformat.v4.new_code_cell(source) for source in CRASH]
    kernel = {"kernelspec": {"name": "python3", "display_name": "", "language": "python"}}
    path = tmp_path / "crash.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    return path


@pytest.mark.slow
def test_a_crashing_worker_fails_nbclient(crashing):
    notebook = nbformat.read(crashing, as_version=4)
    client = NotebookClient(notebook, resources={"metadata": {"path": str(crashing.parent)}})
    with pytest.raises(CellExecutionError) as caught:
        client.execute()
    assert CAUSE in str(caught.value)
    assert 'raise ValueError("the learning rate must be positive")' in str(caught.value)
    assert notebook.cells[-1].outputs == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [(*NBVAL, "crash.ipynb"), ("papermill", "--no-progress-bar", "crash.ipynb", "out.ipynb")],
    ids=["nbval", "papermill"],
)
def test_a_crashing_worker_fails_other_runners(crashing, command):
    said, succeeded = execute(crashing.parent, *command)
    assert not succeeded
    assert CAUSE in said
