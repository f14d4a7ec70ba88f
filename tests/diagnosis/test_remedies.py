"""No remedy recommends what is in force already."""

from __future__ import annotations

import itertools
import re

import pytest
from provocations import GANG, MODEL

from mwmagic import Cluster
from mwmagic.diagnosis.known import AT_LINES, Choice
from mwmagic.diagnosis.running import REMARKS, STALLS
from mwmagic.diagnosis.table import ENTRIES
from mwmagic.errors import WorkerFailed
from mwmagic.model.options import ClusterOptions
from mwmagic.model.variables import KERAS_MODES

OPTIONS = [
    {"keras": keras, "restarts": restarts}
    for keras, restarts in itertools.product(KERAS_MODES, ("0", "1", "5"))
]
RECOMMENDED = re.compile(r"--([a-z-]+) (\S+?)[`,;.)]")
TOLD_EACH_TIME = {"args", "env", "signal"}
"""Options of one command, which are in force for that command only."""


def recommended(text):
    """Return the options of a cluster that a text recommends."""
    return [
        (name, value) for name, value in RECOMMENDED.findall(text) if name not in TOLD_EACH_TIME
    ]


def in_force(name, value, options):
    if name == "restarts":
        return int(options[name]) >= int(value)
    return options[name] == value


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_no_entry_recommends_what_is_in_force(options):
    for known in ENTRIES.values():
        if known.possible({**options, AT_LINES: "same"}) or known.possible({AT_LINES: "different"}):
            advice = known.advice(options)
            assert "default" not in advice, advice
            wrong = [one for one in recommended(advice) if in_force(*one, options)]
            assert wrong == [], known.name


def test_what_a_remedy_recommends_depends_on_a_known_option():
    """Without the values nothing is recommended that might be in force."""
    recommends = {
        known.name for known in ENTRIES.values() if recommended(known.remedy) and not known.when
    }
    assert recommends == set()
    choices = [
        choice
        for known in ENTRIES.values()
        for choice in (*known.choices, *([known.when] if known.when else []))
    ]
    names = {choice.option for choice in choices} - {AT_LINES}
    assert names <= set(vars(ClusterOptions())), names
    assert all(set(one.values) <= set(KERAS_MODES) for one in choices if one.option == "keras")
    assert not [known for known in (*REMARKS, *STALLS) if known.choices or known.when]


def test_a_choice_whose_option_is_not_known_is_not_offered():
    choice = Choice("restarts", ("0",), "restart")
    assert choice.applies({"restarts": "0"})
    assert not choice.applies({"restarts": "1"})
    assert not choice.applies({})


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize(("keras", "restarts"), [("auto", 0), ("legacy", 1)])
def test_a_failed_run_recommends_by_its_own_options(tmp_path, keras, restarts):
    """The text of a run in which both are advised, by default."""
    (tmp_path / "main.py").write_text(
        "import keras, os\n"
        "if os.environ['MWMAGIC_ATTEMPT'] == '1':\n"
        "    keras.metrics.Mean().reset_states()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    with Cluster(1, directory=tmp_path, keras=keras, grace=0.1) as cluster:
        run = cluster.run(tmp_path / "main.py", restarts=restarts)
        with pytest.raises(WorkerFailed) as failed:
            run.wait(120)
    text = str(failed.value)
    assert ("--keras legacy" in text) == (keras == "auto")
    assert "--restarts 1" not in text


@pytest.mark.slow
@pytest.mark.tensorflow
def test_an_unrepaired_process_is_not_told_to_use_the_mode_that_it_is_in(tmp_path):
    """Another Python program that it starts, without what mwmagic repairs."""
    child = GANG.replace("from mwmagic.worker.runtime import configure_heartbeat\n", "")
    child = child.replace("configure_heartbeat(5.0, context)\n", "").replace(
        "import os\n", "import os, keras\n"
    )
    (tmp_path / "train.py").write_text(
        child + MODEL + "with strategy.scope():\n    model = make()\nmodel.fit(*data(8))"
    )
    (tmp_path / "main.py").write_text(
        "import os, sys\n"
        "train = os.path.join(os.path.dirname(__file__), 'train.py')\n"
        "os.execv(sys.executable, [sys.executable, '-I', train])"
    )
    with Cluster(2, directory=tmp_path, warm=False, grace=0.1) as cluster:
        run = cluster.run(tmp_path / "main.py")
        with pytest.raises(WorkerFailed) as failed:
            run.wait(120)
    assert run.cause.known == "per-replica", failed.value
    assert "`import mwmagic.keras`" in str(failed.value)
    assert "--keras" not in str(failed.value).partition("Try: ")[2]
