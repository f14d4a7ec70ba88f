"""No sign in the table of known failures is without its provocation."""

import errno

from provocations import CASES, NOTED, PLAIN, STUCK

from mwmagic.diagnosis.migration import REMOVED
from mwmagic.diagnosis.table import ENTRIES
from mwmagic.model.findings import Finding, Symptom


def test_every_sign_is_provoked():
    """What is provoked by other means than a script, most of it in test_known, is named here."""
    cases = {(case.name, case.sign) for case in (*CASES, *PLAIN, *NOTED, *STUCK)}
    others = {"killed", "stopped", "silent", "agent-lost", "host-lost", "cut-off"}
    others |= {"oom-killed", "notebook-name", "profiler", "lost-each-other", "module-misspelled"}
    full = ("disk-full", Finding(Symptom.NOT_STARTED, errno=errno.ENOSPC))
    here = [known for known in ENTRIES.values() if known not in REMOVED]  # see test_migration
    signs = {(known.name, sign) for known in here for sign in (*known.signs, *known.symptoms)}
    assert {(name, sign) for name, sign in signs if name not in others} == {*cases, full}
