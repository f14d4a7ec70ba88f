"""What ``%mw_runs`` and ``%mw_status`` show of records in any condition."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from mwmagic.dashboard.runs import NotebookTable
from mwmagic.magics.records import StatusTable
from mwmagic.model.findings import SlowCause, Slowdown
from mwmagic.model.status import RunState, RunStatus
from mwmagic.record import RunDirectory, runs
from mwmagic.words.slowness import slow_words


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"format": 99, "state": 3, "tasks": ["worker:0"], "supervisor": "me"}',
        b'{"state": "finished", "tasks": {"worker:0": 1, "who?": {}}}',
        b"\xff\xfe",
    ],
)
def test_a_damaged_record_is_listed_with_the_others(tmp_path, data):
    whole = RunDirectory.create(tmp_path, "whole")
    whole.write({"state": "finished", "tasks": {"worker:0": {}, "worker:1": {}}})
    whole.flush()
    RunDirectory.create(tmp_path, "damaged").paths.state.write_bytes(data)
    RunDirectory.create(tmp_path, "empty")
    table = NotebookTable(runs(tmp_path))
    head, first, second, third, *troubles = repr(table).splitlines()
    assert head.split() == ["run", "program", "began", "took", "state", "tasks"]
    assert first.split() == ["1", "whole", "finished", "2"]
    assert second.split()[:2] == ["2", "damaged"]
    assert third.split()[:3] == ["3", "empty", "lost"]
    readable = b'"finished"' in data
    newer = b'"format": 99' in data
    assert len(troubles) == (1 if readable else 2)
    assert troubles[-1].startswith("the record of run 3 in ")
    assert newer == troubles[0].startswith("run 2 was recorded by a newer version of mwmagic")
    assert "damaged" in table._repr_html_()


def test_a_list_of_runs_is_the_table_until_the_extension_is_unloaded(tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    shown = shell.display_formatter.formatters["text/html"]
    RunDirectory.create(tmp_path, "first")
    every = runs(tmp_path)
    assert shown(every) is None
    shell.run_cell("%load_ext mwmagic")
    assert ">first<" in shown(every)
    assert shown([1, *every]) is None
    assert shown([]) is None
    shell.run_cell("%unload_ext mwmagic")
    assert shown(every) is None


def test_the_status_as_text_says_what_makes_training_slow():
    slow = Slowdown(SlowCause.INPUT_WAITS, "worker:1", share=0.5, step=0.1)
    status = RunStatus(number=1, state=RunState.RUNNING, slow=slow)
    assert slow_words(slow) in repr(StatusTable(status))
