"""What is said of failures, and that nothing of it is taken for a sign."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from golden import GOLDEN, golden

import mwmagic
from mwmagic.diagnosis.known import recognise
from mwmagic.diagnosis.table import ENTRIES, REMARKS
from mwmagic.model.findings import Finding, Remark, Symptom
from mwmagic.words.failure import _OBSERVED, observed, remark

ROOM = Path(mwmagic.__file__).parent
READERS = ("diagnosis", "frameworks", "logs")
"""The rooms that know what others print."""

PRESENT = re.compile(r"\b(is|trains|creates|sees|sets|listens|runs)\b")


def test_the_words_are_the_golden_ones():
    assert golden() == GOLDEN.read_text(encoding="utf-8"), "run `make words` and read the changes"


def test_every_symptom_has_words():
    assert set(_OBSERVED) == set(Symptom)


def test_what_is_noticed_when_a_run_is_over_is_reported_in_the_past():
    noticed = [
        Remark(one.name, ("worker:1",), one.symptoms[0] if one.symptoms else Finding())
        for one in REMARKS
    ]
    told = [remark(one).partition(" Try: ")[0] for one in noticed]
    told += [observed(Finding(one, address="x")) for one in (Symptom.ALONE, Symptom.ELSEWHERE)]
    assert [text for text in told if PRESENT.search(text)] == []


def test_every_symptom_but_a_few_is_a_known_failure_of_its_own():
    listed = [one.symptom for known in ENTRIES.values() for one in known.symptoms]
    unlisted = {Symptom.UNKNOWN, Symptom.STALLED, Symptom.LOGGED, Symptom.JOB_ENDS}
    unlisted |= {Symptom.IMPORTED_LONG, Symptom.LEFT_OUT, Symptom.LOG_UNWRITTEN}
    unlisted |= {Symptom.HOSTS_APART, Symptom.HOST_UNUSED, Symptom.LOG_CUT}
    cold = {one for one in Symptom if one.name.startswith("COLD_")}
    assert set(Symptom) - set(listed) == unlisted | cold


def texts():
    """Yield every text in the sources of the rooms that do not read what others print."""
    for path in ROOM.rglob("*.py"):
        if path.relative_to(ROOM).parts[0] not in READERS:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield path, node.value


@pytest.mark.parametrize("known", ENTRIES.values(), ids=lambda known: known.name)
def test_no_sign_is_found_in_what_mwmagic_says_itself(known):
    entries = [text for one in ENTRIES.values() for text in (one.title, one.meaning, one.remedy)]
    said = [line for line in (*golden().splitlines(), *entries) if recognise([known], [line])]
    assert said == []
    found = [(str(path), text) for path, text in TEXTS if recognise([known], [text])]
    assert found == []


TEXTS = list(texts())
